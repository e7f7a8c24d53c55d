package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"weft/internal/envoy/envoytest"
)

// eitherTLS responds to each four bytes with a text, with TLS of its own and without.
func (w *world) eitherTLS(host, port int, text string) {
	go envoytest.ServeEitherTLS(w.listen(host, port), anyCertificate(w.t), 4, text)
}

// dialSNI opens a connection to the client's port of "tcp" with TLS of the application and an SNI; with "plain" without
// TLS.
func (w *world) dialSNI(sni string) (net.Conn, error) {
	conn, err := net.Dial("tcp", w.address(3)+":10003")
	if err != nil || sni == "plain" {
		return conn, err
	}
	return tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true}), nil // by any certificate
}

// servedBySNI requires which application each SNI leads to, and "" for those whose connections are closed.
func (w *world) servedBySNI(want map[string]string) func() error {
	return func() error {
		for sni, text := range want {
			conn, err := w.dialSNI(sni)
			if err != nil {
				return err
			}
			got := ""
			err = attempt(w.t, func(ctx context.Context) error {
				return callWithin(ctx, conn, func() (err error) {
					got, err = exchange(conn, "weft")
					return err
				})
			})
			conn.Close()
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%s: %w", sni, err)
			}
			if err != nil {
				got = ""
			}
			if got != text {
				return fmt.Errorf("a connection with %s is served by %q, want %q: %v", sni, got, text, err)
			}
		}
		return nil
	}
}

// TestConnectionsAreRoutedBySNI: connections of TLS between two applications, which pass two proxies with mutual TLS,
// follow the SNI of their handshake. Edits of the rule of one SNI close no connection of another.
func TestConnectionsAreRoutedBySNI(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web")
	w.eitherTLS(2, 18081, "weft")
	w.eitherTLS(4, 18081, "next")
	w.proxies("default", threeProtocols("web-1", "NET.2"), nextServer, everyCaller)
	w.eventually("a connection passes", func() error { _, err := w.said(); return err })
	rule := func(snis, backend string) string {
		return "{matches: [" + snis + "], default: {backendRefs: [{kind: MeshService, name: " + backend +
			", port: 20082}]}}"
	}
	route := func(rules ...string) {
		w.apply("type: MeshTCPRoute\nmesh: default\nname: c\nspec: {targetRef: {kind: Dataplane, labels: " +
			"{kuma.io/workload: client}}, to: [{targetRef: {kind: MeshService, name: tcp}, rules: [" +
			strings.Join(rules, ", ") + "]}]}\n")
	}
	const below, one, other = `{sni: {type: Wildcard, value: "*.example.com"}}`,
		`{sni: {type: Exact, value: one.example.com}}`, `{sni: {type: Exact, value: other.example.com}}`
	route(rule(below, "next-tcp"), rule(one, "gone"))
	w.eventually("the SNI of a connection decides", w.servedBySNI(map[string]string{"a.example.com": "next",
		"a.b.example.com": "next", "one.example.com": "", "example.com": "weft", "example.org": "weft",
		"plain": "weft"}))

	open := map[string]net.Conn{}
	for sni, text := range map[string]string{"a.example.com": "next", "example.org": "weft", "plain": "weft"} {
		conn, err := w.dialSNI(sni)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, err := exchange(conn, "weft"); err != nil || got != text {
			t.Fatalf("a connection with %s is served by %q, want %s: %v", sni, got, text, err)
		}
		open[text+" "+sni] = conn
	}
	stay := func(when string) {
		t.Helper()
		for name, conn := range open {
			text, sni, _ := strings.Cut(name, " ")
			if got, err := exchange(conn, "weft"); err != nil || got != text {
				t.Errorf("%s, the open connection with %s got %q: %v", when, sni, got, err)
			}
		}
		if n := w.counter("client", `listener_manager\.total_filter_chains_draining`); n != 0 {
			t.Errorf("%s, %d filter chains drain", when, n)
		}
	}
	route(rule(below, "next-tcp"), rule(one, "next-tcp"))
	w.eventually("the edited rule counts", w.servedBySNI(map[string]string{"one.example.com": "next"}))
	stay("after the edit of another rule")
	route(rule(below, "next-tcp"), rule(one, "next-tcp"), rule(other, "tcp"))
	w.eventually("the new rule counts", w.servedBySNI(map[string]string{"other.example.com": "weft"}))
	stay("after a new rule")
	route(rule(below, "next-tcp"), rule(one, "next-tcp"), rule(other, "tcp"), rule("", "gone"))
	w.eventually("others are closed", w.servedBySNI(map[string]string{"example.org": "", "plain": "",
		"a.example.com": "next"}))
	stay("after others are closed")
}
