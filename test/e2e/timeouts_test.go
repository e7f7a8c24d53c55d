package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft/internal/traffic"
)

// timeoutPolicy is a MeshTimeout of the client with a conf about every destination.
func timeoutPolicy(conf string) string {
	return fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: t\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// TestTimeoutsHaveTheirEffect: each field of a MeshTimeout does to traffic what it says, in one pair of Envoys.
func TestTimeoutsHaveTheirEffect(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	stalling(t, w.service(2, 18080, "web-1"))
	w.echo(2, 18081)
	w.proxy("default", "web-1", threeProtocols("web-1", "NET.2"))
	w.proxy("default", "client", everyCaller)
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	stalled := func(status int, body string) func() error {
		return func() error { return gets(url+"stall", status, body) }
	}
	const cluster = `cluster\.kri_msvc_default_[^.]*__http_\d+\.`
	// counted sends a request and requires that a counter of the client's cluster of "http" has grown.
	counted := func(name string) func() error {
		before := w.counter("client", name)
		return func() error {
			if err := get(url); err != nil {
				return err
			}
			if now := w.counter("client", name); now <= before {
				return fmt.Errorf("%s is %d", name, now)
			}
			return nil
		}
	}
	// idle sends a request, and requires that its connection is closed while no further one is sent.
	idle := func() error {
		const closed = cluster + "upstream_cx_idle_timeout"
		before := w.counter("client", closed)
		if err := get(url); err != nil {
			return err
		}
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
			if w.counter("client", closed) > before {
				return nil
			}
		}
		return errors.New("no connection was closed within 2s")
	}
	for _, c := range []struct {
		field, conf string
		effect      func() error
	}{
		{"requestTimeout", "http: {requestTimeout: 300ms}", stalled(504, "upstream request timeout")},
		{"streamIdleTimeout", "http: {requestTimeout: 0s, streamIdleTimeout: 300ms}", stalled(504, "stream timeout")},
		{"maxStreamDuration", "http: {requestTimeout: 0s, maxStreamDuration: 300ms}",
			stalled(504, "upstream max stream duration reached")},
		{"requestHeadersTimeout", "http: {requestHeadersTimeout: 300ms}", func() error {
			return w.unfinished(w.address(3) + ":10001")
		}},
		{"maxConnectionDuration", "http: {maxConnectionDuration: 300ms}",
			counted(cluster + "upstream_cx_max_duration_reached")},
		{"idleTimeout of HTTP", "idleTimeout: 300ms", idle},
		{"idleTimeout of TCP", "idleTimeout: 300ms", func() error { return w.closedWhenIdle(w.address(3) + ":10003") }},
	} {
		w.apply(timeoutPolicy(c.conf))
		w.eventually("the effect of "+c.field, c.effect)
	}
	if out, err := w.weft("inspect", "policies", "--for", "client", "--to", "tcp"); err != nil ||
		!regexp.MustCompile(`idleTimeout +300ms +MeshTimeout default/t to\[0\]`).MatchString(out) {
		t.Errorf("the effective value is not shown: %v\n%s", err, out)
	}
	if out, err := w.weft("delete", "meshtimeout", "t"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.eventually("the default after the policy is gone", func() error {
		out, err := w.weft("inspect", "dataplane", "client", "--config")
		if err == nil && !strings.Contains(out, "timeout: 15s") {
			err = errors.New(out)
		}
		return err
	})
}

// unfinished sends half of a request's headers, and requires the response 408.
func (w *world) unfinished(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web\r\n"); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	response := make([]byte, 64)
	n, err := conn.Read(response)
	if !strings.HasPrefix(string(response[:n]), "HTTP/1.1 408 ") {
		return fmt.Errorf("%q: %v", response[:n], err)
	}
	return nil
}

// closedWhenIdle exchanges bytes on a connection, and requires that it is closed while it is idle.
func (w *world) closedWhenIdle(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer := make([]byte, 4)
	if _, err := io.WriteString(conn, "weft"); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, buffer); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if n, err := conn.Read(buffer); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %d bytes: %w", n, err)
	}
	return nil
}

// proxyPath returns the API path of a Dataplane of the mesh default by its name, and of another proxy by PLURAL/NAME.
func proxyPath(proxy string) string {
	if strings.Contains(proxy, "/") {
		return "/" + proxy
	}
	return "/meshes/default/dataplanes/" + proxy
}

// counter returns the sum of the statistics of a proxy whose names match a pattern.
func (w *world) counter(proxy, name string) int {
	w.t.Helper()
	body, err := w.api(proxyPath(proxy) + "/stats")
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0
	for _, found := range regexp.MustCompile(`(?m)^`+name+`: (\d+)$`).FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(found[1])
		sum += n
	}
	return sum
}

// editTimeout edits the timeouts of an HTTP service, which change clusters and routes.
func (w *world) editTimeout(url string) {
	w.editUnder(traffic.Get(url), "client", "a MeshTimeout", clusterChanges, func(i int) string {
		return timeoutPolicy(fmt.Sprintf("connectionTimeout: %ds, idleTimeout: %dm, http: {requestTimeout: %ds, "+
			"streamIdleTimeout: %dm, maxStreamDuration: %dm, maxConnectionDuration: %dm}", 3+i, 3+i, 20+i, 3+i, 3+i,
			3+i%5))
	})
}
