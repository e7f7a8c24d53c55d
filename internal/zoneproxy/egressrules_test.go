package zoneproxy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func TestWorlds(t *testing.T) { graphtest.RunWorlds(t) }

// chainsOf returns the certificate that the filter chains of each mesh present, and the mesh whose roots validate their
// callers.
func chainsOf(s *graph.State) []string {
	p := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ZoneEgressProxy("ze"))
	var all []string
	for _, c := range p.Chains {
		all = append(all, fmt.Sprintf("%s presents %q, trusts the roots of %s", c.Key.Mesh, c.Source.Certificate,
			c.Source.RootsOf))
	}
	return all
}

// Each chain presents what its mesh's proxies take, once there is a certificate of it. A mesh without identities is
// not served, and holds up no other. (Zone Egress Identity.)
func TestCertificatesOfEgressChains(t *testing.T) {
	const byPear, byShop = `%s presents "", trusts the roots of %s`,
		`shop presents "identity_shop", trusts the roots of shop`
	s := graphtest.ManyMeshes(t)
	want := []string{fmt.Sprintf(byPear, "default", "default"), fmt.Sprintf(byPear, "pear", "pear")}
	if diff := cmp.Diff(want, chainsOf(s)); diff != "" {
		t.Errorf("before it has a certificate of shop's (-want +got):\n%s", diff)
	}
	s = graphtest.ManyMeshes(t, graphtest.EgressCertificates("shop", "spiffe://shop/zone-egress"))
	if diff := cmp.Diff(append(want, byShop), chainsOf(s)); diff != "" {
		t.Errorf("with a certificate of each (-want +got):\n%s", diff)
	}
}

// A ZoneEgress is not a Dataplane, so only permissions that target the whole mesh apply.
func TestPermissionsOfZoneEgresses(t *testing.T) {
	for name, c := range map[string]struct {
		target *kind.TargetRef
		counts bool
	}{
		"no target":       {nil, true},
		"the mesh":        {&kind.TargetRef{Kind: "Mesh"}, true},
		"all Dataplanes":  {&kind.TargetRef{Kind: "Dataplane"}, true},
		"one by its name": {&kind.TargetRef{Kind: "Dataplane", Name: "ze"}, false},
		"some by labels": {&kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{kind.ZoneLabel: "east"}},
			false},
		"one section alone": {&kind.TargetRef{Kind: "Dataplane", SectionName: "10002"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := graphtest.ManyMeshes(t,
				kind.MeshTrafficPermissions.Make("pear", "p",
					kind.MeshTrafficPermission{TargetRef: c.target, Rules: []kind.PermissionRule{{
						Default: kind.PermissionDefault{
							Deny: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Prefix", Value: "spiffe://"}}}},
					}}}))
			p := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ZoneEgressProxy("ze"))
			var denying []string
			for _, chain := range p.Chains {
				if len(chain.Permissions.Deny) > 0 {
					denying = append(denying, chain.Key.Mesh)
				}
			}
			if want := []string{"pear"}; c.counts && !slices.Equal(denying, want) || !c.counts && len(denying) > 0 {
				t.Errorf("the rule counts on the chains of %v", denying)
			}
		})
	}
}

// A filter chain that no rule selects allows every caller that its egress trusts, unless the mesh forbids that. A rule
// that selects the chain decides alone. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestChainsThatNoRuleSelects(t *testing.T) {
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
			s := graphtest.ManyMeshes(t, append(c.further, kind.Meshes.Make("", "pear", kind.Mesh{
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

// A ZoneEgress that has an identity of SPIRE presents it to the proxies of every mesh that has identities of the same
// trust domain, and asks SPIRE for the roots. It serves no other mesh. (Zone Egress Identity.)
func TestMeshesShareSPIREEgress(t *testing.T) {
	spire := func(mesh, domain string) resource.Any {
		return kind.MeshIdentities.Make(mesh, "spire", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: domain},
			Provider: kind.IdentityProvider{Type: "Spire",
				Spire: &kind.SpireProvider{Agent: &kind.SpireAgent{SocketPath: "/run/spire/agent.sock"}}},
		})
	}
	s := graph.NewState("east")
	rows := []resource.Any{graphtest.OfEast(kind.ZoneEgresses.Make("", "ze", kind.ZoneEgress{
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
			graphtest.OfEast(kind.MeshExternalServices.Make(mesh, "api", kind.MeshExternalService{
				Match:     kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP},
				Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}},
			})))
	}
	graphtest.Put(s, rows...)
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
func TestZoneProxyOfOneMesh(t *testing.T) {
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
