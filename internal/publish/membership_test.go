package publish

import (
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// blocking is the mesh with a rule against one value of a tag; none where it is empty.
func blocking(tag, value string) resource.Any {
	spec := kind.Mesh{}
	if tag != "" {
		spec.DataplaneProxyMembership = &kind.Membership{Blocked: []kind.MembershipRule{{Tags: map[string]string{tag: value}}}}
	}
	return kind.Meshes.Make("", mesh, spec)
}

// TestWhomTheMeshPutsOutLeavesAtOnce: one commit takes it out of every list, the last of a service too, out of
// what is held, and out of the zone's doors; another brings it back.
func TestWhomTheMeshPutsOutLeavesAtOnce(t *testing.T) {
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
		server("more", "10.0.0.2", "blue", 8080), serving("more", "10.0.0.2", 8080), door("door", "10.0.0.7"))
	lists("in a mesh without rules", "10.0.0.1 10.0.0.2")
	var told *graph.Proxy
	t.Cleanup(hub.Watch(graph.ProxyKey{Mesh: mesh, Name: "blue"}, func(p *graph.Proxy) { told = p }))

	put(hub, blocking(kind.ServiceTag, "blue"))
	lists("put out", "")
	if told == nil || !strings.Contains(told.NotAdmitted, "mesh default does not admit Dataplane blue: ") {
		t.Errorf("whoever follows it is told %+v", told)
	}
	put(hub, blocking(kind.ZoneLabel, "default"))
	if doors := hub.state.IngressProxies.Get(hub.reader(), mesh); len(doors) > 0 {
		t.Errorf("the zone's doors are %v, and the mesh does not admit them", doors)
	}
	put(hub, blocking("", ""))
	lists("admitted again", "10.0.0.1 10.0.0.2")
	if told.NotAdmitted != "" || len(hub.state.IngressProxies.Get(hub.reader(), mesh)) != 1 {
		t.Errorf("admitted again: %+v, with doors %v", told, hub.state.IngressProxies.Get(hub.reader(), mesh))
	}

	put(hub, web("green")) // what was there is held
	lists("held", "10.0.0.1 10.0.0.2")
	put(hub, blocking(kind.ServiceTag, "blue"))
	lists("held, and put out", "")
}

// TestOtherFieldsOfAMeshWakeNobody: what a Mesh says of something else costs its Dataplanes nothing.
func TestOtherFieldsOfAMeshWakeNobody(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, blocking("team", "x"), web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080))
	var woken []string
	hub.state.DB.Observe(func(s table.Stage) {
		if s.Table != "membership" && s.Table != "mtls of a mesh" { // one value each
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
