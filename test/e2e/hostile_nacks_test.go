package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"weft/internal/traffic"
	"weft/internal/xds"
)

// nackAll opens a stream that rejects every response, and returns the number of responses once there is one.
func (h *thief) nackAll(mesh, name string) (*atomic.Int64, error) {
	stream, err := h.open(mesh, name, xds.Cluster, xds.Listener)
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	var rejected atomic.Int64
	go func() {
		for response := first; err == nil; response, err = stream.Recv() {
			rejected.Add(1)
			if stream.Reject(response, strings.Repeat("no ", 1000)) != nil {
				return
			}
		}
	}()
	return &rejected, nil
}

// countsUnder returns an error unless the requests of a client are counted under a name, which a MeshProxyPatch sets.
func (w *world) countsUnder(client, name string) error {
	if w.counter(client, `cluster\.`+name+`\.upstream_rq_total`) == 0 {
		return errors.New("no request of " + client + " is counted under " + name)
	}
	return nil
}

// A workload's token that rejects each of its resources takes no policy from another proxy, and fails no request.
func TestHostileATokenNACKsEverything(t *testing.T) {
	a := newAttack(t, "a workload's token rejects everything, and takes policies from other proxies")
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	d := w.drill("a client that rejects everything", traffic.Get(url))
	d.more(20)
	h := w.thief("evil-1", w.generate("--name", "evil-1", "--workload", "evil"))
	if err := h.register(memberOf("evil-1", "kuma.io/workload: evil", 4, inboundWith("NET.4", 4, ""))); err != nil {
		t.Fatal(err)
	}
	var rejected *atomic.Int64
	w.eventually("the attacker has a configuration", func() (err error) {
		rejected, err = h.nackAll("default", "evil-1")
		return err
	})
	for i := range forms(t, 2, 8) {
		before, name := rejected.Load(), fmt.Sprint("named_", i)
		w.apply(proxyPatch("kind: Mesh", `{cluster: {operation: Patch, value: "{altStatName: `+name+`}"}}`))
		w.eventually("the attacker rejects the patch", func() error {
			if rejected.Load() == before {
				return errors.New("it has no further response")
			}
			return nil
		})
		w.eventually("a bystander has the patch", func() error {
			d.more(5)
			return w.countsUnder("client", name)
		})
		d.more(20)
		if err := w.countsUnder("client", name); err != nil {
			a.fellTo("the patch is taken from a bystander: %v", err)
			continue
		}
		a.repelled()
	}
	a.costs(d.end())
	if out, _ := w.weft("check"); !strings.Contains(out, "Dataplane default/evil-1") {
		t.Errorf("weft check does not report the proxy: %s", out)
	}
}

// A policy with a value that Envoy rejects stops no proxy: running ones get later changes, and new ones are ready and
// serve. A regular expression that Envoy rejects is not stored.
func TestHostileABadValueStopsNoProxy(t *testing.T) {
	a := newAttack(t, "a user who may write policies stops proxies by a value that Envoy rejects")
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url, late := fmt.Sprintf("http://%s:10001/", w.address(3)), fmt.Sprintf("http://%s:10001/", w.address(5))
	w.eventually("a request passes", func() error { return get(url) })
	for _, expression := range []string{`\p{ASCII}`, `\p{LC}`, `\x{100}`} {
		text := "type: MeshHTTPRoute\nmesh: default\nname: bad\nspec: {to: [{targetRef: {kind: MeshService, " +
			"name: web}, rules: [{matches: [{path: {type: RegularExpression, value: '/" + expression + "'}}], " +
			"default: {filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302, hostname: x}}]}}]}]}\n"
		if out, err := w.weftWith(text, "apply", "-f", "-"); err == nil {
			a.fellTo("the expression %s is stored: %s", expression, out)
			continue
		} else if !strings.Contains(err.Error(), "matches[0].path.value") {
			t.Errorf("%s: the reason is %v", expression, err)
		}
		a.repelled()
	}

	d := w.drill("a policy that Envoy rejects", traffic.Get(url))
	d.more(20)
	w.apply(proxyPatch("kind: Mesh", `{virtualHost: {operation: Patch, match: {origin: outbound}, value: `+
		`"{requestHeadersToAdd: [{header: {key: a, value: '%NO_SUCH_OPERATOR%'}}]}"}}`))
	w.eventually("the policy says which proxies are without it", func() error {
		out, err := w.weft("get", "meshproxypatch", "p", "-o", "yaml")
		if err == nil && (!strings.Contains(out, "without the policy") || !strings.Contains(out, "client")) {
			err = errors.New(out)
		}
		return err
	})
	w.apply("type: MeshHTTPRoute\nmesh: default\nname: later\nspec: {to: [{targetRef: {kind: MeshService, " +
		"name: web}, rules: [{matches: [{path: {type: PathPrefix, value: /later}}], default: {filters: " +
		"[{type: RequestRedirect, requestRedirect: {statusCode: 302, hostname: x}}]}}]}]}\n")
	w.eventually("a running proxy gets a later change of its route", func() error {
		if err := get(url + "later"); err == nil || !strings.Contains(err.Error(), "x") {
			return fmt.Errorf("no redirect: %v", err)
		}
		return nil
	})
	a.repelled()
	w.proxy("default", "late", strings.ReplaceAll(caller("late", 5, "tags: {kuma.io/service: web}"),
		"kuma.io/workload: late", "kuma.io/workload: client"))
	if err := get(late); err != nil {
		a.fellTo("a proxy that starts is ready, and its requests fail: %v", err)
	} else {
		a.repelled()
	}
	d.more(20)
	a.costs(d.end())
}
