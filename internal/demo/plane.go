package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weft/internal/demo/console"
	"weft/internal/wait"
)

// plane is one of the demo's control planes.
type plane struct {
	world   *world
	name    string // global, or of its zone
	address string // on which all of its servers listen
	joins   *plane // the global control plane; nil for global itself
	process *program
}

// The zones, and the address of each control plane; all have the same ports.
const (
	east = "east"
	west = "west"

	globalAddress = "127.0.0.1"
	eastAddress   = "127.0.1.1"
	westAddress   = "127.0.2.1"
)

// ports of a control plane. They lie below 32768, where no outgoing connection takes one while the
// control plane is restarted.
type ports struct{ api, dataPlane, diagnostics, sync int }

// freePorts returns ports that are free on all addresses, so the demo can run beside another control plane.
func freePorts() (ports, error) {
	for base := 15600; base < 25000; base += 100 {
		p := ports{api: base + 81, dataPlane: base + 78, diagnostics: base + 80, sync: base + 85}
		if p.free() {
			return p, nil
		}
	}
	return ports{}, fmt.Errorf("no four free ports between 15678 and 24985 for control planes")
}

func (p ports) free() bool {
	for _, port := range []int{p.api, p.dataPlane, p.diagnostics, p.sync} {
		if !free(":" + strconv.Itoa(port)) {
			return false
		}
	}
	return true
}

// environment returns the settings that all control planes share.
func (p ports) environment() []string {
	return []string{
		fmt.Sprintf("KUMA_API_SERVER_HTTP_PORT=%d", p.api),
		"KUMA_API_SERVER_HTTPS_ENABLED=false",
		// Both zones are on this machine, and so is the partner outside the mesh.
		"KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS=127.0.1.0/24,127.0.2.0/24," + partnerAddress + "/32",
		fmt.Sprintf("KUMA_DP_SERVER_PORT=%d", p.dataPlane),
		fmt.Sprintf("KUMA_DIAGNOSTICS_SERVER_PORT=%d", p.diagnostics),
		fmt.Sprintf("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT=%d", p.sync),
	}
}

// free returns whether a TCP address is free. An address without a host means all addresses of the machine.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// startPlanes starts the global control plane and joins two zones to it.
func startPlanes(ctx context.Context, w *world) (err error) {
	if w.ports, err = freePorts(); err != nil {
		return err
	}
	w.console.Command("export " + strings.Join(w.ports.environment(), " "))
	w.global = &plane{world: w, name: "global", address: globalAddress}
	w.east = &plane{world: w, name: east, address: eastAddress, joins: w.global}
	w.west = &plane{world: w, name: west, address: westAddress, joins: w.global}
	for _, p := range []*plane{w.global, w.east, w.west} {
		if err := p.prepare(ctx); err != nil {
			return err
		}
		w.console.Command(p.listening(), append(append([]string{"weft"}, p.arguments()...), "&")...)
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes the zone token with which a zone authenticates to the global control plane.
func (p *plane) prepare(ctx context.Context) error {
	if p.joins == nil {
		return nil
	}
	generate := []string{"generate", "zone-token", "--zone", p.name, "--scope", "cp", "--valid-for", "24h"}
	token, err := p.joins.quietly(ctx, generate...)
	if err != nil {
		return err
	}
	p.joins.show(append(generate, ">", p.tokenFile())...)
	return os.WriteFile(filepath.Join(p.world.dir, p.tokenFile()), []byte(token), 0o600)
}

func (p *plane) tokenFile() string { return p.name + "/zone.token" }

// listening returns the settings of the servers' addresses in the form of a shell.
func (p *plane) listening() string { return strings.Join(p.environment(), " ") }

func (p *plane) environment() []string {
	var env []string
	for _, server := range []string{"KUMA_API_SERVER_HTTP_INTERFACE", "KUMA_DP_SERVER_INTERFACE",
		"KUMA_DIAGNOSTICS_SERVER_INTERFACE"} {
		env = append(env, server+"="+p.address)
	}
	return env
}

// arguments returns the arguments of weft that run the control plane.
func (p *plane) arguments() []string {
	run := []string{"cp", "run", "--data-dir", p.name + "/data"}
	if p.joins == nil {
		return append(run, "--mode", "global")
	}
	return append(run, "--zone", p.name, "--zone-token-file", p.tokenFile(),
		"--global-address", fmt.Sprintf("grpcs://%s:%d", p.joins.address, p.world.ports.sync),
		"--global-ca-file", p.joins.name+"/data/ca.crt")
}

// start runs the control plane on the data that it has, and returns when it is ready.
func (p *plane) start(ctx context.Context) (err error) {
	env := append(p.world.ports.environment(), p.environment()...)
	p.process, err = p.world.processes.start("control-plane-"+p.name, env, p.world.options.Weft, p.arguments()...)
	if err != nil {
		return err
	}
	ready := fmt.Sprintf("http://%s:%d/ready", p.address, p.world.ports.diagnostics)
	return eventually(ctx, "the control plane of "+p.name+" is ready", func(ctx context.Context) error {
		return getOK(ctx, ready)
	})
}

func (p *plane) kill() { p.world.processes.kill(p.process) }

// weft prints a command of weft, runs it against the control plane to its end, and returns its output.
func (p *plane) weft(ctx context.Context, args ...string) (string, error) {
	p.show(args...)
	return p.quietly(ctx, args...)
}

// show prints a command of weft.
func (p *plane) show(args ...string) {
	p.world.console.Command("weft", append([]string{"--api", p.api()}, args...)...)
}

// quietly runs a command of weft against the control plane to its end, and returns its output.
func (p *plane) quietly(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return p.world.processes.run(ctx, p.world.options.Weft, append([]string{"--api", p.api()}, args...)...)
}

// socket is the path of the administrator's socket, by which the demo's user is the control plane's administrator.
func (p *plane) socket() string { return p.name + "/data/admin.sock" }

// proof is the path of the header that authenticates its user at the socket.
func (p *plane) proof() string { return p.name + "/data/admin.header" }

// api is the address of the HTTP API in the demo's folder.
func (p *plane) api() string { return "unix:" + p.socket() }

// fetch returns the body of a GET of the API, which must succeed with 200.
func (p *plane) fetch(ctx context.Context, path string) ([]byte, error) {
	socket := filepath.Join(p.world.dir, p.socket())
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	administrator := &http.Client{Transport: withHeader{transport, filepath.Join(p.world.dir, p.proof())}}
	return fetchBy(ctx, administrator, "http://"+p.name+path)
}

// withHeader is a transport that adds the header in a file to each request, as `curl -H @FILE` does: the file beside an
// administrator's socket proves that its sender may read it.
type withHeader struct {
	http.RoundTripper
	file string
}

// RoundTrip implements [http.RoundTripper].
func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := os.ReadFile(w.file)
	if err != nil {
		return nil, err
	}
	name, value, _ := strings.Cut(strings.TrimSpace(string(text)), ": ")
	r = r.Clone(r.Context())
	r.Header.Set(name, value)
	return w.RoundTripper.RoundTrip(r)
}

// server is the address at which agents reach the control plane.
func (p *plane) server() string {
	return fmt.Sprintf("https://%s:%d", p.address, p.world.ports.dataPlane)
}

// subscriptions are the subscriptions of an insight, as the API returns them.
type subscriptions []struct {
	ConnectTime    time.Time  `json:"connectTime"`
	DisconnectTime *time.Time `json:"disconnectTime"`
}

// since returns whether the last subscription began after an instant and has not ended.
func (s subscriptions) since(instant time.Time) bool {
	return len(s) > 0 && s[len(s)-1].ConnectTime.After(instant) && s[len(s)-1].DisconnectTime == nil
}

// overviews is the part of the API's overview of proxies or zones that the demo reads.
type overviews struct {
	Items []struct {
		DataplaneInsight struct {
			Subscriptions subscriptions `json:"subscriptions"`
		} `json:"dataplaneInsight"`
		ZoneInsight struct {
			Subscriptions subscriptions `json:"subscriptions"`
		} `json:"zoneInsight"`
	} `json:"items"`
}

// connectedSince returns an error unless at least count proxies or zones have connected after an instant.
func (p *plane) connectedSince(ctx context.Context, what string, since time.Time, count int) error {
	body, err := p.fetch(ctx, "/"+what+"/_overview")
	if err != nil {
		return err
	}
	var all overviews
	if err := json.Unmarshal(body, &all); err != nil {
		return err
	}
	connected := 0
	for _, item := range all.Items {
		if item.DataplaneInsight.Subscriptions.since(since) || item.ZoneInsight.Subscriptions.since(since) {
			connected++
		}
	}
	if connected < count {
		return fmt.Errorf("%d of %d have connected again", connected, count)
	}
	return nil
}

// hasAny returns an error if a list of the API is empty.
func (p *plane) hasAny(ctx context.Context, list string) error {
	body, err := p.fetch(ctx, list)
	if err != nil {
		return err
	}
	var response struct {
		Total int `json:"total"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return err
	}
	if response.Total == 0 {
		return fmt.Errorf("%s is empty", list)
	}
	return nil
}

// getOK returns an error unless a GET returns 200.
func getOK(ctx context.Context, url string) error {
	_, err := fetch(ctx, url)
	return err
}

// fetch returns the body of a GET, or an error if the status is not 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	return fetchBy(ctx, http.DefaultClient, url)
}

func fetchBy(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	reply, err := get(ctx, client, url)
	if err != nil {
		return nil, err
	}
	if reply.status != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %d %s", url, reply.status, console.FirstLine(string(reply.body)))
	}
	return reply.body, nil
}

// eventually calls try until it succeeds or [stepTimeout] has passed. The error names the condition.
func eventually(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := wait.Until(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		return try(attempt)
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}
