package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// timeoutPolicy is a MeshTimeout of the client with a conf about every destination.
func timeoutPolicy(conf string) string {
	return fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: t\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// withoutTimeout is a conf without the timeout of a request, for requests that last as long as the test decides.
const withoutTimeout = "http: {requestTimeout: 0s}"

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
		{"idleTimeout of HTTP", "idleTimeout: 300ms", w.closesIdle("client", url, cluster+"upstream_cx_idle_timeout")},
		{"idleTimeout of TCP", "idleTimeout: 300ms", func() error { return w.closedWhenIdle(w.address(3) + ":10003") }},
	} {
		w.apply(timeoutPolicy(c.conf))
		w.configured("client", shortened(c.field)) // before, an attempt would wait for a timeout that is not set
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

// shortened returns a pattern of Envoy's configuration where a field of a MeshTimeout is 300 ms.
func shortened(field string) string {
	return fmt.Sprintf(`"%s": "0\.300s"`, map[string]string{"requestTimeout": "timeout",
		"streamIdleTimeout": "idle_timeout", "maxStreamDuration": "max_stream_duration",
		"requestHeadersTimeout": "request_headers_timeout", "maxConnectionDuration": "max_connection_duration",
		"idleTimeout of HTTP": "idle_timeout", "idleTimeout of TCP": "idle_timeout"}[field])
}

// configured waits until the configuration of a proxy's Envoy matches a pattern.
func (w *world) configured(proxy, pattern string) {
	w.t.Helper()
	want := regexp.MustCompile(pattern)
	w.eventually(fmt.Sprintf("the Envoy of %s has %s", proxy, pattern), func() error {
		if !want.MatchString(w.page(proxy, "xds")) {
			return errors.New("it has not")
		}
		return nil
	})
}

// closesIdle returns a check that sends a request, and returns an error unless a proxy has counted a connection that it
// closed while no further request was sent.
func (w *world) closesIdle(proxy, url, statistic string) func() error {
	before := w.counter(proxy, statistic)
	return func() error {
		if err := get(url); err != nil {
			return err
		}
		testwait.Pass(time.Second, "the connection is idle for longer than its timeout of 300 ms")
		if now := w.counter(proxy, statistic); now <= before {
			return fmt.Errorf("%s is %d", statistic, now)
		}
		return nil
	}
}

// unfinished sends half of a request's headers, and requires the response 408. It is one attempt of many.
func (w *world) unfinished(address string) error {
	return w.converseOnce(address, func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web\r\n"); err != nil {
			return err
		}
		response := make([]byte, 64)
		n, err := conn.Read(response)
		if !strings.HasPrefix(string(response[:n]), "HTTP/1.1 408 ") {
			return fmt.Errorf("%q: %v", response[:n], err)
		}
		return nil
	})
}

// closedWhenIdle exchanges bytes on a connection, and requires that it is closed while it is idle. It is one attempt of
// many.
func (w *world) closedWhenIdle(address string) error {
	return w.converseOnce(address, func(conn net.Conn) error {
		if err := says(conn, "weft"); err != nil {
			return err
		}
		if n, err := conn.Read(make([]byte, 4)); !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %d bytes: %w", n, err)
		}
		return nil
	})
}

// converseOnce calls f with a new connection, in one attempt of many.
func (w *world) converseOnce(address string, f func(net.Conn) error) error {
	return attempt(w.t, func(ctx context.Context) error {
		return converse(ctx, (&net.Dialer{}).DialContext, address, f)
	})
}

// proxyPath returns the API path of a Dataplane of the mesh default by its name, and of another proxy by PLURAL/NAME.
func proxyPath(proxy string) string {
	if strings.Contains(proxy, "/") {
		return "/" + proxy
	}
	return "/meshes/default/dataplanes/" + proxy
}

// page returns a page of the administration interface of a proxy's Envoy. The control plane waits 10 s for the agent,
// which a busy machine may exceed.
func (w *world) page(proxy, name string) (body string) {
	w.t.Helper()
	w.eventually(proxy+" shows its page "+name, func() (err error) {
		body, err = w.api(proxyPath(proxy) + "/" + name)
		return err
	})
	return body
}

// counter returns the sum of the statistics of a proxy whose names match a pattern.
func (w *world) counter(proxy, name string) int {
	w.t.Helper()
	body := w.page(proxy, "stats")
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
