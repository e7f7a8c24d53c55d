package proxy_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// permission is a MeshTrafficPermission of the mesh m that allows one caller, with labels as NAME=VALUE.
func permission(name, caller string, target *kind.TargetRef, labels ...string) resource.Any {
	allow := []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: "spiffe://m/" + caller}}}
	o := kind.MeshTrafficPermissions.Make("m", name, kind.MeshTrafficPermission{
		TargetRef: target, Rules: []kind.PermissionRule{{Default: kind.PermissionDefault{Allow: allow}}},
	})
	o.Labels = map[string]string{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		o.Labels[key] = value
	}
	return o
}

func dataplanes(labels map[string]string, section string) *kind.TargetRef {
	return &kind.TargetRef{Kind: "Dataplane", Labels: labels, SectionName: section}
}

// ofApp is a Dataplane with the inbounds http and 9090 and the label app.
func ofApp(app string, labels map[string]string) resource.Any {
	o := kind.Dataplanes.Make("m", app+"-1", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.1",
		Inbound: []kind.Inbound{{Port: 80, Name: "http", Tags: map[string]string{
			kind.ServiceTag: app, "version": "v1"}}, {Port: 9090}, {Port: 7070, State: kind.Ignored}},
		ZoneEgress: &kind.ZoneEgressSection{Name: "ze", Address: "10.0.0.1", Port: 10002},
	}})
	o.Labels = map[string]string{"app": app}
	maps.Copy(o.Labels, labels)
	return o
}

func serves(name string, unhealthy bool) resource.Any {
	former := kind.ServedInbound{Inbound: kind.Inbound{Address: "10.0.0.1", Port: 6060, Name: "former"},
		Unhealthy: unhealthy}
	return kind.DataplaneListenerStatuses.Make("m", name, kind.DataplaneListenerStatus{
		Run: "1", Inbounds: []kind.ServedInbound{former},
	})
}

// policyWorld is a mesh of the proxies web-1 and api-1, both with an identity.
func policyWorld(rows ...resource.Any) *graph.State {
	s := graph.NewState("east")
	rows = append(rows, kind.Meshes.Make("", "m", kind.Mesh{}), ofApp("web", nil), ofApp("api", nil),
		serves("web-1", false), kind.MeshIdentities.Make("m", "all", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
	graphtest.Put(s, rows...)
	return s
}

func dataplaneKey(name string) state.ProxyKey { return state.ProxyKey{Mesh: "m", Name: name} }

// TestPermissionsOfASection: the permissions of a section of a proxy, in the order of their names.
func TestPermissionsOfASection(t *testing.T) {
	web := map[string]string{"app": "web"}
	s := policyWorld(
		permission("z-all", "a", nil),
		permission("web", "a", dataplanes(web, "")),
		permission("http", "a", dataplanes(web, "http")),
		permission("a-port", "a", dataplanes(web, "9090")),
		permission("former", "a", dataplanes(nil, "former")),
		permission("ignored", "a", dataplanes(nil, "7070")),
		permission("egress", "a", dataplanes(nil, "ze")),
		permission("shadow", "a", nil, "kuma.io/effect=shadow"),
		permission("of-west", "a", nil, "kuma.io/origin=zone", "kuma.io/zone=west"),
		permission("of-east", "a", nil, "kuma.io/origin=zone", "kuma.io/zone=east"),
	)
	r := table.Eval(s.Tables.DB.Snapshot())
	for _, c := range []struct {
		proxy         state.ProxyKey
		section, want string
	}{
		{dataplaneKey("web-1"), "http", "http of-east web z-all"},
		{dataplaneKey("web-1"), "9090", "a-port of-east web z-all"},
		{dataplaneKey("web-1"), "9090+http", "a-port http of-east web z-all"},
		{dataplaneKey("web-1"), "former", "former of-east web z-all"},
		{dataplaneKey("web-1"), "7070", "of-east web z-all"},
		{dataplaneKey("web-1"), "ze", "egress of-east web z-all"},
		{dataplaneKey("api-1"), "http", "of-east z-all"},
		{dataplaneKey("api-1"), "former", "of-east z-all"},
		{dataplaneKey("gone"), "http", ""},
		{state.ZoneEgressProxy("egress"), "", "of-east z-all"},
	} {
		var names []string
		for _, o := range s.Proxies.PermissionsOf(r, "m", c.proxy, c.section) {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("the permissions of %v at %q are %q, want %q", c.proxy, c.section, got, c.want)
		}
	}
}

// TestChangesOfPolicies says for each change how many values of the stages it computes, and how many of them differ:
// the list of the mesh, the selections of the two proxies, and the proxies.
func TestChangesOfPolicies(t *testing.T) {
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"the conf of one proxy's policy", permission("web", "b", dataplanes(web, "http")), "1/0 0/0 1/1"},
		{"the conf of the mesh's policy", permission("all", "b", nil), "1/0 0/0 2/2"},
		{"the target of a policy, to another proxy", permission("web", "a", dataplanes(api, "http")), "1/1 2/2 2/2"},
		{"the section of a policy", permission("web", "a", dataplanes(web, "9090")), "1/1 2/1 1/1"},
		{"a policy of no proxy", permission("new", "a", dataplanes(map[string]string{"app": "new"}, "")),
			"1/1 2/0 0/0"},
		{"the status of an endpoint", serves("web-1", true), "0/0 0/0 1/0"},
		{"a label that no policy has", ofApp("web", map[string]string{"team": "shop"}), "0/0 1/0 1/0"},
		{"a label that a policy has", ofApp("web", api), "0/0 1/1 1/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := policyWorld(permission("all", "a", nil), permission("web", "a", dataplanes(web, "http")))
			s.Proxies.Proxy.Pin(dataplaneKey("web-1"))
			s.Proxies.Proxy.Pin(dataplaneKey("api-1"))
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			var got []string
			p := s.Proxies
			for _, name := range []string{p.Policies.String(), p.Selections.String(), p.Proxy.String()} {
				got = append(got, fmt.Sprintf("%d/%d", stages[name].Recomputed, stages[name].Changed))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the stages computed and changed %s, want %s", got, c.want)
			}
		})
	}
}
