package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// plane is the demo's control plane.
type plane struct {
	world   *world
	ports   ports
	process *process
}

// ports of a control plane. They lie below 32768, where no outgoing connection takes one while the
// control plane is restarted.
type ports struct{ api, dataPlane, diagnostics int }

// freePorts finds three that are free, so that the demo runs beside another control plane.
func freePorts() (ports, error) {
	for base := 15600; base < 25000; base += 100 {
		p := ports{api: base + 81, dataPlane: base + 78, diagnostics: base + 80}
		if free("", p.api) && free("", p.dataPlane) && free("", p.diagnostics) {
			return p, nil
		}
	}
	return ports{}, fmt.Errorf("no three free ports between 15678 and 24981 for a control plane")
}

// free says whether a TCP port can be listened on; an empty address means all of them.
func free(address string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// startPlane starts the control plane and waits until it is ready.
func startPlane(ctx context.Context, w *world) (*plane, error) {
	found, err := freePorts()
	if err != nil {
		return nil, err
	}
	p := &plane{world: w, ports: found}
	w.console.command(fmt.Sprintf("export KUMA_API_SERVER_HTTP_PORT=%d KUMA_API_SERVER_HTTPS_PORT=0 KUMA_DP_SERVER_PORT=%d KUMA_DIAGNOSTICS_SERVER_PORT=%d",
		found.api, found.dataPlane, found.diagnostics))
	w.console.command("weft cp run --data-dir control-plane &")
	w.console.command("export WEFT_API=" + p.api())
	return p, p.start(ctx)
}

// start runs the control plane on the data that it has, and returns when it is ready.
func (p *plane) start(ctx context.Context) error {
	started, err := p.world.processes.start("control-plane", []string{
		fmt.Sprintf("KUMA_API_SERVER_HTTP_PORT=%d", p.ports.api),
		"KUMA_API_SERVER_HTTPS_PORT=0",
		fmt.Sprintf("KUMA_DP_SERVER_PORT=%d", p.ports.dataPlane),
		fmt.Sprintf("KUMA_DIAGNOSTICS_SERVER_PORT=%d", p.ports.diagnostics),
	}, p.world.options.Weft, "cp", "run", "--data-dir", "control-plane")
	if err != nil {
		return err
	}
	p.process = started
	ready := fmt.Sprintf("http://127.0.0.1:%d/ready", p.ports.diagnostics)
	return eventually(ctx, "the control plane is ready", func(ctx context.Context) error { return answersOK(ctx, ready) })
}

func (p *plane) kill() { p.world.processes.kill(p.process) }

// api is the address of the HTTP API.
func (p *plane) api() string { return fmt.Sprintf("http://127.0.0.1:%d", p.ports.api) }

// server is the address at which agents reach the control plane.
func (p *plane) server() string { return fmt.Sprintf("https://127.0.0.1:%d", p.ports.dataPlane) }

// overviews is what the demo reads of the API's answer about every proxy of a mesh.
type overviews struct {
	Items []struct {
		Name             string `json:"name"`
		DataplaneInsight struct {
			Subscriptions []struct {
				ConnectTime time.Time `json:"connectTime"`
			} `json:"subscriptions"`
		} `json:"dataplaneInsight"`
	} `json:"items"`
}

// connectedSince fails unless each of count proxies has connected after an instant.
func (p *plane) connectedSince(ctx context.Context, since time.Time, count int) error {
	body, err := fetch(ctx, p.api()+"/meshes/default/dataplanes/_overview")
	if err != nil {
		return err
	}
	var all overviews
	if err := json.Unmarshal(body, &all); err != nil {
		return err
	}
	connected := 0
	for _, proxy := range all.Items {
		s := proxy.DataplaneInsight.Subscriptions
		if len(s) > 0 && s[len(s)-1].ConnectTime.After(since) {
			connected++
		}
	}
	if connected < count {
		return fmt.Errorf("%d of %d proxies have connected again", connected, count)
	}
	return nil
}

// answersOK fails unless a GET is answered with 200.
func answersOK(ctx context.Context, url string) error {
	_, err := fetch(ctx, url)
	return err
}

// fetch answers the body of a GET, which must succeed with 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	reply, err := get(ctx, http.DefaultClient, url)
	if err != nil {
		return nil, err
	}
	if reply.status != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %d %s", url, reply.status, firstLine(string(reply.body)))
	}
	return reply.body, nil
}

// eventually tries until try succeeds or [stepTimeout] is over; the error says what never came true.
func eventually(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
	}
}
