package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"weft/internal/traffic"
)

// proxyPatch is a MeshProxyPatch of some proxies with modifications.
func proxyPatch(target, modifications string) string {
	return fmt.Sprintf("type: MeshProxyPatch\nmesh: default\nname: p\nspec: {targetRef: {%s}, default: "+
		"{appendModifications: [%s]}}\n", target, modifications)
}

const responseHeader = `{httpFilter: {operation: AddBefore, match: {name: envoy.filters.http.router, origin: %s}, ` +
	`value: "{name: added, typedConfig: {'@type': ` +
	`type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: ` +
	`{responseMutations: [{append: {header: {key: x-patched, value: %s}}}]}}}"}}`

// header returns a header of a response.
func header(url, name string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", response.StatusCode)
	}
	return response.Header.Get(name), nil
}

// TestPatchesHaveTheirEffect: modifications of a MeshProxyPatch reach the proxies that it targets and no others:
// filters of listeners, discovered filters, clusters, listeners and virtual hosts. One that Envoy rejects is taken
// back, and its policy says so.
func TestPatchesHaveTheirEffect(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	w.proxy("default", "other", caller("other", 4, "tags: {kuma.io/service: web}"))
	url, otherURL := fmt.Sprintf("http://%s:10001/", w.address(3)), fmt.Sprintf("http://%s:10001/", w.address(4))
	w.eventually("requests pass", func() error { return errors.Join(get(url), get(otherURL)) })

	gets := func(url, want string) func() error {
		return func() error {
			got, err := header(url, "x-patched")
			if err == nil && got != want {
				err = fmt.Errorf("x-patched is %q", got)
			}
			return err
		}
	}
	toClient, toServer := "kind: Dataplane, name: client", "kind: Dataplane, name: web-1"
	added := fmt.Sprintf("%s:10007", w.address(3))
	for _, c := range []struct {
		name, policy string
		holds        func() error
	}{
		{"an HTTP filter of an inbound", proxyPatch(toServer, fmt.Sprintf(responseHeader, "inbound", "in")),
			gets(url, "in")},
		{"an HTTP filter of an outbound", proxyPatch(toClient, fmt.Sprintf(responseHeader, "outbound", "out")),
			gets(url, "out")},
		{"a virtual host of a shared route", proxyPatch(toClient, `{virtualHost: {operation: Patch, match: {origin: `+
			`outbound}, value: "responseHeadersToAdd: [{header: {key: x-patched, value: host}}]"}}`), gets(url, "host")},
		{"a discovered filter", proxyPatch(toServer, `{httpFilter: {operation: Patch, match: {name: `+
			`envoy.filters.http.router}, value: "{typedConfig: {'@type': `+
			`type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, startChildSpan: true}}"}}`), func() error {
			text, err := w.api("/meshes/default/dataplanes/web-1/xds")
			if err == nil && !strings.Contains(text, "start_child_span") {
				err = errors.New("Envoy does not have it")
			}
			return err
		}},
		{"a cluster", proxyPatch(toClient, `{cluster: {operation: Patch, match: {origin: outbound}, jsonPatches: `+
			`[{op: add, path: /altStatName, value: patched}]}}`), func() error {
			if err := get(url); err != nil {
				return err
			}
			if n := w.counter("client", `cluster\.patched\.upstream_rq_total`); n == 0 {
				return errors.New("no request counts")
			}
			return nil
		}},
		{"an added listener and cluster", proxyPatch(toClient, `{cluster: {operation: Add, value: "{name: added, type: `+
			`STATIC, loadAssignment: {clusterName: added, endpoints: [{lbEndpoints: [{endpoint: {address: `+
			`{socketAddress: {address: `+w.address(2)+`, portValue: 18080}}}}]}]}}"}}, {listener: {operation: Add, value: `+
			`"{name: added, address: {socketAddress: {address: `+w.address(3)+`, portValue: 10007}}, filterChains: `+
			`[{filters: [{name: tcp, typedConfig: {'@type': type.googleapis.com/`+
			`envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: a, cluster: added}}]}]}"}}`),
			func() error { return get("http://" + added + "/") }},
	} {
		w.apply(c.policy)
		w.eventually(c.name, c.holds)
		if strings.Contains(c.policy, toServer) {
			continue // an open connection of the other client keeps the chain until it is drained
		}
		if err := gets(otherURL, "")(); err != nil {
			t.Errorf("%s: a proxy that the policy does not target: %v", c.name, err)
		}
	}

	// Envoy knows no filter of this type in an HTTP filter chain that its API accepts.
	w.apply(proxyPatch(toServer, fmt.Sprintf(responseHeader, "inbound", "in")+`, {listener: {operation: Patch, match: `+
		`{origin: inbound}, value: "{listenerFilters: [{name: x, typedConfig: {'@type': `+
		`type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}]}"}}`))
	w.eventually("the policy says that Envoy rejects it", func() error {
		out, err := w.weft("get", "meshproxypatch", "p", "-o", "yaml")
		if err == nil && (!strings.Contains(out, "RejectedByProxies") ||
			!strings.Contains(out, "runs without the policy")) {
			err = errors.New(out)
		}
		return err
	})
	w.eventually("the inbound serves without the modifications", gets(url, ""))
	w.apply(proxyPatch(toServer, fmt.Sprintf(responseHeader, "inbound", "again")))
	w.eventually("an edited policy has its effect", gets(url, "again"))
	w.eventually("its status is good again", func() error {
		out, err := w.weft("get", "meshproxypatch", "p", "-o", "yaml")
		if err == nil && strings.Contains(out, "RejectedByProxies") {
			err = errors.New(out)
		}
		return err
	})
	if _, err := w.weft("delete", "meshproxypatch", "p"); err != nil {
		t.Fatal(err)
	}
	w.eventually("nothing is modified", gets(url, ""))
}

// editPatch edits a MeshProxyPatch of clusters and routes.
func (w *world) editPatch(url string) {
	w.editUnder(traffic.Get(url), "client", "a MeshProxyPatch", clusterChanges, func(i int) string {
		return proxyPatch("kind: Dataplane, name: client", fmt.Sprintf(`{cluster: {operation: Patch, match: {origin: `+
			`outbound}, value: "connectTimeout: %ds"}}, {virtualHost: {operation: Patch, match: {origin: outbound}, value: `+
			`"responseHeadersToAdd: [{header: {key: x-patched, value: v%d}}]"}}`, 3+i, i))
	})
	w.eventually("the last edit of the virtual host has arrived", func() error {
		got, err := header(url, "x-patched")
		if err == nil && got != "v9" {
			err = fmt.Errorf("x-patched is %q", got)
		}
		return err
	})
}

// editListenerPatch edits filters that a MeshProxyPatch adds to chains. No request is lost while former chains drain.
func (w *world) editListenerPatch(url string) {
	d := w.drill("a MeshProxyPatch of listeners is edited, ten times", traffic.Get(url))
	d.more(50)
	for i := range 10 {
		value := fmt.Sprint("v", i)
		w.apply(proxyPatch("kind: Mesh", fmt.Sprintf(responseHeader, "inbound", value)))
		w.eventually("the edit has arrived at both servers", func() error {
			for range 20 {
				if got, err := header(url, "x-patched"); err != nil || got != value {
					return fmt.Errorf("x-patched is %q: %v", got, err)
				}
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
}

// zonePatch is a MeshProxyPatch of the clusters by which the targeted zone proxies forward.
func zonePatch(targetRef, origin string, i int) string {
	return proxyPatch(targetRef, fmt.Sprintf(`{cluster: {operation: Patch, match: {origin: `+
		`%s}, value: "{altStatName: patched_%d, connectTimeout: %ds}"}}`, origin, i, 3+i))
}

// drillZonePatch edits the modifications of a zone proxy under requests. Its Envoy shows each of them.
func (w *world) drillZonePatch(load traffic.Send, targetRef, zoneProxy, origin string) {
	w.t.Helper()
	form, _, legacy := strings.Cut(zoneProxy, "/")
	if !legacy {
		form = "Dataplanes"
	}
	w.editUnder(load, zoneProxy, "a MeshProxyPatch of "+form+", clusters of the origin "+origin,
		`cluster_manager\.cluster_modified`, func(i int) string { return zonePatch(targetRef, origin, i) })
	if shown := w.page(zoneProxy, "xds"); !strings.Contains(shown, "patched_9") {
		w.t.Errorf("the Envoy of %s does not have the last edit", zoneProxy)
	}
}

// TestDrillPatchesOfAZoneIngressAreEdited: modifications of the clusters by which a zone ingress forwards reach its
// Envoy, a Dataplane's and a ZoneIngress's. Edits fail no request and change no listener.
func TestDrillPatchesOfAZoneIngressAreEdited(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	url, newer := west.outbound(3, "http"), east.processOf("ingress-1")
	east.drillZonePatch(west.get(url), "kind: Dataplane, name: ingress-1", "ingress-1", "ingress")
	f.zoneIngress(east, "east", "older", 11)
	east.stops(newer)
	west.passes(url, "web-1")
	east.drillZonePatch(west.get(url), "kind: Mesh", "zoneingresses/older", "ingress")
}

// TestDrillPatchesOfAZoneEgressAreEdited is the same of a zone egress towards an external service.
func TestDrillPatchesOfAZoneEgressAreEdited(t *testing.T) {
	w := newWorld(t)
	w.service(50, 18090, "outside")
	w.apply(withIdentity + external("plain", "http", 80, "{address: NET.50, port: 18090}", "") + lettingAllOut)
	newer := w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", externalCaller("client", 8))
	url := w.out(8, 10001)
	w.eventually("a request passes", func() error { return get(url) })
	w.drillZonePatch(traffic.Get(url), "kind: Dataplane, name: egress-1", "egress-1", "egress")
	w.zoneEgress("older", 21)
	w.stops(newer)
	w.dialsEgress("plain", "NET.21")
	w.eventually("a request passes", func() error { return get(url) })
	w.drillZonePatch(traffic.Get(url), "kind: Mesh", "zoneegresses/older", "egress")
}

// lettingAllOut lets every identity of the mesh pass all egresses.
const lettingAllOut = `
---
type: MeshTrafficPermission
mesh: default
name: out
spec:
  rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/"}}]}}]
`

// TestARejectedPatchAfterARestart: a control plane that restarts does not send a modification again that Envoy has
// rejected. A running Envoy keeps its configuration without it, and loses no request. An Envoy that starts serves
// without it too.
func TestARejectedPatchAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	agent := w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	w.apply(proxyPatch("kind: Mesh", `{listener: {operation: Patch, match: {origin: inbound}, value: `+
		`"{listenerFilters: [{name: x, typedConfig: {'@type': `+
		`type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}]}"}}`))
	rejected := func() error {
		out, err := w.weft("get", "meshproxypatch", "p", "-o", "yaml")
		if err == nil && !strings.Contains(out, "RejectedByProxies") {
			err = errors.New(out)
		}
		return err
	}
	w.eventually("the policy says that Envoy rejects it", rejected)
	before := w.counter("web-1", `listener_manager\.lds\.update_rejected`)

	d := w.drill("the control plane restarts after a rejected modification", traffic.Get(url))
	d.more(50)
	w.plane.Kill()
	w.startPlane()
	w.eventually("the policy says so again", rejected)
	d.more(50)
	d.end()
	if now := w.counter("web-1", `listener_manager\.lds\.update_rejected`); now != before {
		t.Errorf("Envoy has rejected %d updates, and %d before", now, before)
	}

	w.plane.Kill()
	killed := w.envoyOf(agent)
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.startPlane()
	w.eventually("an Envoy without configuration serves without it", func() error {
		if now := w.envoyOf(agent); now == killed || now == 0 {
			return errors.New("no other Envoy runs yet")
		}
		return errors.Join(rejected(), get(url))
	})
}
