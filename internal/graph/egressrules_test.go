package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// A filter chain that no rule selects allows every caller that its egress trusts, unless the mesh forbids that. A rule
// that selects the chain decides alone. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestWhatNoRuleSelectsFollowsTheMesh(t *testing.T) {
	caller := []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: "spiffe://pear/web"}}}
	selecting := kind.MeshTrafficPermissions.Make("pear", "p",
		kind.MeshTrafficPermission{Rules: []kind.PermissionRule{{Default: kind.PermissionDefault{Allow: caller}}}})
	for name, c := range map[string]struct {
		forbids bool
		further []resource.Any
		want    []string // the allowed SPIFFE IDs
	}{
		"no rule":                {false, nil, []string{"spiffe://"}},
		"no rule, and forbidden": {true, nil, nil},
		"a rule":                 {false, []resource.Any{selecting}, []string{"spiffe://pear/web"}},
		"a rule, and forbidden":  {true, []resource.Any{selecting}, []string{"spiffe://pear/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := manyMeshes(t, append(c.further, kind.Meshes.Make("", "pear", kind.Mesh{
				MTLS: &kind.MeshMTLS{EnabledBackend: "ca-1",
					Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}},
				Routing: &kind.MeshRouting{DefaultForbidMeshExternalServiceAccess: c.forbids},
			}))...)
			chains := zoneEgressOf(s).Chains
			i := slices.IndexFunc(chains, func(chain proxy.EgressChain) bool { return chain.Key.Mesh == "pear" })
			var allowed []string
			for _, rule := range chains[i].Permissions.Allow {
				allowed = append(allowed, rule.Exact+rule.Prefix)
			}
			if diff := cmp.Diff(c.want, allowed); diff != "" {
				t.Errorf("the chain of pear allows (-want +got):\n%s", diff)
			}
		})
	}
}

func zoneEgressOf(s *graph.State) *proxy.Proxy {
	return s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ZoneEgressProxy("ze"))
}

// The mesh that KUMA_DEFAULTS_MESH names gives the identity of the zone's ZoneEgresses, in the state of the mesh as in
// the rules. (Zone Egress Identity.)
func TestTheNamedMeshGivesTheIdentity(t *testing.T) {
	for named, want := range map[string]state.IdentityKey{
		"": mtlsOf("pear"), "shop": mtlsOf("shop"), "default": {Mesh: "default", Name: "all"}, "plain": {},
		"nowhere": {},
	} {
		t.Run("named "+named, func(t *testing.T) {
			s := manyMeshes(t)
			s.Tables.DefaultMesh = named
			choice := s.Identity.EgressChoice.Get(table.Eval(s.Tables.DB.Snapshot()), "east")
			if choice.Chosen != want {
				t.Errorf("the identity is %v, want %v", choice.Chosen, want)
			}
			if p := zoneEgressOf(s); (len(p.Chains) > 0) != (want != state.IdentityKey{}) {
				t.Errorf("it has %d filter chains with the identity %v", len(p.Chains), want)
			}
		})
	}
}

// A ZoneEgress that has an identity of SPIRE presents it to the proxies of every mesh that has identities of the same
// trust domain, and asks SPIRE for the roots. It serves no other mesh. (Zone Egress Identity.)
func TestAZoneEgressOfSPIREIsSharedByMeshes(t *testing.T) {
	spire := func(mesh, domain string) resource.Any {
		return kind.MeshIdentities.Make(mesh, "spire", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: domain},
			Provider: kind.IdentityProvider{Type: "Spire",
				Spire: &kind.SpireProvider{Agent: &kind.SpireAgent{SocketPath: "/run/spire/agent.sock"}}},
		})
	}
	s := graph.NewState("east")
	rows := []resource.Any{ofEast(kind.ZoneEgresses.Make("", "ze", kind.ZoneEgress{
		Zone: "east", Networking: kind.ZoneEgressNetworking{Address: "10.0.0.9", Port: 10002},
	}))}
	for mesh, identity := range map[string]resource.Any{
		"default": spire("default", "corp.example"), "shop": spire("shop", "corp.example"),
		"other": spire("other", "other.example"),
		"bundled": kind.MeshIdentities.Make("bundled", "all", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}),
	} {
		rows = append(rows, kind.Meshes.Make("", mesh, kind.Mesh{}), identity,
			ofEast(kind.MeshExternalServices.Make(mesh, "api", kind.MeshExternalService{
				Match:     kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP},
				Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}},
			})))
	}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range rows {
			s.Tables.Put(tx, o)
		}
	})
	var chains []string
	for _, c := range zoneEgressOf(s).Chains {
		chains = append(chains, fmt.Sprintf("%s: SPIRE at %s for %s, trusts %v", c.Key.Mesh, c.Source.Socket,
			c.Source.TrustDomain, c.TrustDomains))
	}
	const from = "%s: SPIRE at /run/spire/agent.sock for corp.example, trusts [corp.example]"
	if diff := cmp.Diff([]string{fmt.Sprintf(from, "default"), fmt.Sprintf(from, "shop")}, chains); diff != "" {
		t.Errorf("its filter chains (-want +got):\n%s", diff)
	}
	for _, mesh := range []string{"default", "shop"} {
		want := []string{"spiffe://corp.example/workload/zone-egress"}
		route := s.Routes.EgressRoute.Get(table.Eval(s.Tables.DB.Snapshot()), mesh)
		if diff := cmp.Diff(want, route.Identities); diff != "" {
			t.Errorf("the SPIFFE IDs that the proxies of %s accept (-want +got):\n%s", mesh, diff)
		}
	}
}

// A zone proxy is a Dataplane of one mesh: it has the identity that a MeshIdentity of the mesh gives it, and serves
// that mesh alone. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestAZoneProxyIsOfItsMesh(t *testing.T) {
	s := graph.NewState("east")
	dataplane := func(name string, n kind.Networking) *resource.Object[kind.Dataplane] {
		dp := kind.Dataplanes.Make("shop", name, kind.Dataplane{Networking: n})
		kind.VouchOperator(nil, dp)
		return dp
	}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range []resource.Any{
			kind.Meshes.Make("", "shop", kind.Mesh{}), kind.Meshes.Make("", "other", kind.Mesh{}),
			kind.MeshIdentities.Make("shop", "all", kind.MeshIdentity{
				Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
				Provider: kind.IdentityProvider{Type: "Bundled"},
			}),
			dataplane("ingress",
				kind.Networking{ZoneIngress: &kind.ZoneIngressSection{Address: "10.0.0.1", Port: 10001,
					AdvertisedAddress: "192.168.1.1", AdvertisedPort: 10001}}),
			dataplane("egress", kind.Networking{ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.2", Port: 10002}}),
		} {
			s.Tables.Put(tx, o)
		}
	})
	for name, serves := range map[string]func(*proxy.Proxy) []string{
		"ingress": func(p *proxy.Proxy) []string { return []string{p.Passes[0].String()} },
		"egress":  func(p *proxy.Proxy) []string { return []string{p.EgressGroups[0].String()} },
	} {
		p := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "shop", Name: name})
		if p.Identity == nil ||
			!slices.Equal(p.Identity.List(), []string{"spiffe://shop.east.mesh.local/workload/" + name}) {
			t.Errorf("the identity of the %s is %+v", name, p.Identity)
		}
		if got := serves(p); !slices.Equal(got, []string{"shop"}) {
			t.Errorf("the %s serves the meshes %v, want shop", name, got)
		}
	}
}
