package push

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// blocking returns the mesh with a rule against one value of a tag; without a rule where the value is empty.
func blocking(tag, value string) resource.Any {
	spec := kind.Mesh{}
	if tag != "" {
		spec.DataplaneProxyMembership =
			&kind.Membership{Blocked: []kind.MembershipRule{{Tags: map[string]string{tag: value}}}}
	}
	return kind.Meshes.Make("", mesh, spec)
}

// TestAnEvictedProxyIsRemovedAtOnce: one commit removes the proxy from every list, also as the last endpoint of a
// service, from retained endpoints, and from the zone's ingresses. Another commit brings it back.
func TestAnEvictedProxyIsRemovedAtOnce(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	lists := func(when, want string) {
		t.Helper()
		var have []string
		for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
			if strings.Contains(endpoints(t, hub), address) {
				have = append(have, address)
			}
		}
		if got := strings.Join(have, " "); got != want {
			t.Errorf("%s: clients are sent to %q, want %q", when, got, want)
		}
	}
	put(hub, blocking("", ""), web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
		server("more", "10.0.0.2", "blue", 8080), serving("more", "10.0.0.2", 8080),
		zoneIngressOf("ingress", "10.0.0.7"))
	lists("in a mesh without rules", "10.0.0.1 10.0.0.2")
	var told *proxy.Proxy
	t.Cleanup(hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: "blue"}, func(p *proxy.Proxy) { told = p }))

	put(hub, blocking(kind.ServiceTag, "blue"))
	lists("evicted", "")
	if told == nil || !strings.Contains(told.NotAdmitted, "mesh default does not admit Dataplane blue: ") {
		t.Errorf("a watcher receives %+v", told)
	}
	put(hub, blocking(kind.ZoneLabel, "default"))
	if ingresses := hub.state.ZoneProxies.IngressProxies.Get(hub.reader(), mesh); len(ingresses) > 0 {
		t.Errorf("the ingresses of the zone are %v, and the mesh does not admit them", ingresses)
	}
	put(hub, blocking("", ""))
	lists("admitted again", "10.0.0.1 10.0.0.2")
	if told.NotAdmitted != "" || len(hub.state.ZoneProxies.IngressProxies.Get(hub.reader(), mesh)) != 1 {
		t.Errorf(
			"admitted again: %+v, with ingresses %v",
			told,
			hub.state.ZoneProxies.IngressProxies.Get(hub.reader(), mesh),
		)
	}

	put(hub, web("green")) // the former endpoint is retained
	lists("retained", "10.0.0.1 10.0.0.2")
	put(hub, blocking(kind.ServiceTag, "blue"))
	lists("retained, and evicted", "")
}

// TestOtherFieldsOfAMeshWakeNoProxy: a change of other fields of a Mesh costs its Dataplanes nothing.
func TestOtherFieldsOfAMeshWakeNoProxy(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, blocking("team", "x"), web("blue"), server("blue", "10.0.0.1", "blue", 8080),
		serving("blue", "10.0.0.1", 8080))
	var woken []string
	perMesh := []string{"membership", "mtls of a mesh", "exemption of a mesh"} // one value each
	hub.state.Tables.DB.Observe(func(s table.Stage) {
		if !slices.Contains(perMesh, s.Table) {
			woken = append(woken, s.Table)
		}
	})
	changed := blocking("team", "x").(*resource.Object[kind.Mesh])
	changed.Spec.SkipCreatingInitialPolicies = []string{"*"}
	put(hub, changed)
	if len(woken) > 0 {
		t.Errorf("a Mesh with the same rules woke %v", woken)
	}
}
