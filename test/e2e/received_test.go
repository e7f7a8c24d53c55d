package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/internal/traffic"
)

// clientID is the SPIFFE ID of the Dataplane client.
const clientID = "spiffe://default.default.mesh.local/workload/client"

// received is a policy of a kind about the callers of the servers, with its rules.
func received(of, rules string) string {
	return fmt.Sprintf("type: %s\nmesh: default\nname: t\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: web}}, rules: [%s]}\n", of, rules)
}

// everyCallerGets is a rule without matches.
func everyCallerGets(conf string) string { return fmt.Sprintf("{default: {%s}}", conf) }

// clientGets is a rule about the client.
func clientGets(conf string) string {
	return fmt.Sprintf("{matches: [{spiffeID: {type: Exact, value: %q}}], default: {%s}}", clientID, conf)
}

// stalling makes an application stall requests of the path /stall until the test ends.
func stalling(t *testing.T, app *http.Server) {
	stall := make(chan struct{})
	t.Cleanup(func() { close(stall) })
	handler := app.Handler
	app.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			select {
			case <-stall:
			case <-r.Context().Done():
			}
		}
		handler.ServeHTTP(rw, r)
	})
}

// gets requires a status and a text in the body of a response.
func gets(url string, status int, body string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if response.StatusCode != status || !strings.Contains(string(got), body) {
		return fmt.Errorf("%s: %s (%v), want %d and %q", response.Status, got, err, status, body)
	}
	return nil
}

// TestReceivedTimeoutsHaveTheirEffect: each field of a rule of a MeshTimeout does to received traffic what it says,
// first on plaintext inbounds, then by caller.
func TestReceivedTimeoutsHaveTheirEffect(t *testing.T) {
	w := newWorld(t)
	stalling(t, w.service(2, 18080, "web-1"))
	w.echo(2, 18081)
	w.proxy("default", "web-1", threeProtocols("web-1", "NET.2"))
	direct := w.address(2) + ":20080"
	w.eventually("a request passes", func() error { return get("http://" + direct + "/") })
	const cluster = `cluster\.self_inbound_.*_20080\.`
	for _, c := range []struct {
		field, conf string
		effect      func() error
	}{
		{"requestTimeout", "http: {requestTimeout: 300ms}", func() error {
			return gets("http://"+direct+"/stall", 504, "upstream request timeout")
		}},
		{"streamIdleTimeout", "http: {streamIdleTimeout: 300ms}", func() error {
			return gets("http://"+direct+"/stall", 504, "stream timeout")
		}},
		{"maxStreamDuration", "http: {maxStreamDuration: 300ms}", func() error {
			return gets("http://"+direct+"/stall", 504, "upstream max stream duration reached")
		}},
		{"requestHeadersTimeout", "http: {requestHeadersTimeout: 300ms}", func() error { return w.unfinished(direct) }},
		{"maxConnectionDuration", "http: {maxConnectionDuration: 300ms}", func() error {
			before := w.counter("web-1", cluster+"upstream_cx_max_duration_reached")
			if err := get("http://" + direct + "/"); err != nil {
				return err
			}
			if now := w.counter("web-1", cluster+"upstream_cx_max_duration_reached"); now <= before {
				return fmt.Errorf("%d connections are too old", now)
			}
			return nil
		}},
		{"idleTimeout of HTTP", "idleTimeout: 300ms", w.closesIdle("web-1", "http://"+direct+"/",
			`http\.self_inbound_.*_20080\.downstream_cx_idle_timeout`)},
		{"idleTimeout of TCP", "idleTimeout: 300ms", func() error {
			return w.closedWhenIdle(w.address(2) + ":20082")
		}},
	} {
		w.apply(received("MeshTimeout", everyCallerGets(c.conf)))
		w.configured("web-1", shortened(c.field))
		w.eventually("the effect of "+c.field, c.effect)
	}

	w.apply(secured)
	w.proxy("default", "client", everyCaller)
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes with mutual TLS", func() error { return get(url) })
	for _, c := range []struct{ name, rules string }{
		{"exact", clientGets("http: {requestTimeout: 1s}")},
		{"prefix", strings.NewReplacer("Exact", "Prefix", "/client", "").
			Replace(clientGets("http: {requestTimeout: 1s}"))},
	} {
		w.apply(received("MeshTimeout", everyCallerGets("http: {requestTimeout: 100ms}")))
		w.configured("web-1", `"timeout": "0\.100s"`)
		w.eventually("the timeout of every caller", func() error { return gets(url+"stall", 504, "request timeout") })
		w.apply(received("MeshTimeout", everyCallerGets("http: {requestTimeout: 100ms}")+", "+c.rules))
		w.eventually("the timeout of the client, "+c.name, func() error {
			begun := time.Now()
			if err := gets(url+"stall", 504, "request timeout"); err != nil {
				return err
			}
			if took := time.Since(begun); took < time.Second {
				return fmt.Errorf("the request took %s, and its caller has 1s", took)
			}
			return nil
		})
	}
	if out, err := w.weft("inspect", "policies", "--for", "web-1"); err != nil || !regexp.MustCompile(
		`workload\(/\*\) +MeshTimeout +http.requestTimeout +1s +MeshTimeout default/t rules\[1\]`).MatchString(out) {
		t.Errorf("the effective value is not shown: %v\n%s", err, out)
	}
}

// editReceivedTimeout edits the timeouts of an HTTP inbound, also by caller, which change its cluster and its route.
func (w *world) editReceivedTimeout(url string) {
	w.editUnder(traffic.Get(url), "web-1", "a MeshTimeout of the server", clusterChanges, func(i int) string {
		all := fmt.Sprintf("connectionTimeout: %ds, http: {requestTimeout: %ds, maxStreamDuration: %dm, "+
			"maxConnectionDuration: %dm}", 3+i, 20+i, 3+i, 3+i)
		ofClient := fmt.Sprintf("http: {requestTimeout: %ds, streamIdleTimeout: %dm}", 30+i, 3+i)
		return received("MeshTimeout", everyCallerGets(all)+", "+clientGets(ofClient))
	})
}
