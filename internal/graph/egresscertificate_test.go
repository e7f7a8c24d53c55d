package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// manyMeshes is a zone with a ZoneEgress and an external service in each of four meshes: default has a MeshIdentity,
// pear and shop have mtls, and plain has nothing.
func manyMeshes(t *testing.T, further ...resource.Any) *graph.State {
	t.Helper()
	s := graph.NewState("east")
	mtls := &kind.MeshMTLS{EnabledBackend: "ca-1", Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}}
	rows := []resource.Any{
		ofEast(kind.ZoneEgresses.Make("", "ze",
			kind.ZoneEgress{Zone: "east", Networking: kind.ZoneEgressNetworking{Address: "10.0.0.9", Port: 10002}})),
		kind.Meshes.Make("", "plain", kind.Mesh{}), kind.Meshes.Make("", "default", kind.Mesh{}),
		kind.Meshes.Make("", "pear", kind.Mesh{MTLS: mtls}), kind.Meshes.Make("", "shop", kind.Mesh{MTLS: mtls}),
		kind.MeshIdentities.Make("default", "all", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}),
	}
	for mesh, trust := range map[string]string{"default": "default.east.mesh.local", "pear": "pear", "shop": "shop"} {
		bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: "the roots of " + mesh}}
		rows = append(rows,
			kind.MeshTrusts.Make(mesh, "roots", kind.MeshTrust{TrustDomain: trust, CABundles: []kind.CABundle{bundle}}))
	}
	for _, mesh := range []string{"default", "pear", "plain", "shop"} {
		rows = append(rows, ofEast(kind.MeshExternalServices.Make(mesh, "api", kind.MeshExternalService{
			Match:     kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP},
			Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}},
		})))
	}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range append(rows, further...) {
			s.Tables.Put(tx, o)
		}
	})
	return s
}

// ofEast makes a resource one of the zone east.
func ofEast(o resource.Any) resource.Any {
	o.Envelope().Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	return o
}

// holding returns a row of certificates that the ZoneEgress may present.
func holding(mesh string, ids ...string) resource.Any {
	spec := kind.DataplaneCertificates{}
	for _, id := range ids {
		spec.Certificates = append(spec.Certificates, kind.WorkloadCertificate{SpiffeIDs: kind.SpiffeIDsOf(id),
			MeshIdentity: kind.MTLSIdentity, Root: id})
	}
	return kind.ZoneEgressCertificatesList.Make(mesh, "ze", spec)
}

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

// egressesAcceptedBy returns the SPIFFE IDs and the roots by which the proxies of a mesh accept the ZoneEgress.
func egressesAcceptedBy(s *graph.State, mesh string) string {
	r := table.Eval(s.Tables.DB.Snapshot())
	var roots []string
	for _, domain := range s.Identity.EgressTrust.Get(r, mesh).Domains {
		roots = append(roots, domain.Name)
	}
	return strings.Join(s.Routes.EgressRoute.Get(r, mesh).Identities, " ") + " by " + strings.Join(roots, " ")
}

// Each chain presents what its mesh's proxies take, once there is a certificate of it. A mesh without identities is
// not served, and holds up no other. (Zone Egress Identity.)
func TestWhatTheChainsOfAZoneEgressPresent(t *testing.T) {
	const byPear, byShop = `%s presents "", trusts the roots of %s`,
		`shop presents "identity_shop", trusts the roots of shop`
	s := manyMeshes(t)
	want := []string{fmt.Sprintf(byPear, "default", "default"), fmt.Sprintf(byPear, "pear", "pear")}
	if diff := cmp.Diff(want, chainsOf(s)); diff != "" {
		t.Errorf("before it has a certificate of shop's (-want +got):\n%s", diff)
	}
	s = manyMeshes(t, holding("shop", "spiffe://shop/zone-egress"))
	if diff := cmp.Diff(append(want, byShop), chainsOf(s)); diff != "" {
		t.Errorf("with a certificate of each (-want +got):\n%s", diff)
	}
	for mesh, want := range map[string]string{
		"default": "spiffe://pear/zone-egress by pear",
		"pear":    "spiffe://pear/zone-egress by pear",
		"shop":    "spiffe://shop/zone-egress by shop",
	} {
		if got := egressesAcceptedBy(s, mesh); got != want {
			t.Errorf("the proxies of %s take it as %s, want %s", mesh, got, want)
		}
	}
}

// After another identity is chosen, the former one is accepted while a certificate with it exists.
func TestTheFormerIdentityOfAZoneEgressIsAcceptedMeanwhile(t *testing.T) {
	former := "spiffe://default.east.mesh.local/workload/zone-egress"
	s := manyMeshes(t, holding("default", former))
	want := former + " spiffe://pear/zone-egress by default.east.mesh.local pear"
	if got := egressesAcceptedBy(s, "default"); got != want {
		t.Errorf("the proxies of default take it as %s, want %s", got, want)
	}
}

// A ZoneEgress is not a Dataplane, so only permissions that target the whole mesh apply.
func TestWhichPermissionsReachAZoneEgress(t *testing.T) {
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
			s := manyMeshes(t,
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

// TestAnExternalServiceShowsTheEgressesOfItsMesh: what the status shows as healthy is what the condition Reachable
// counts and what the mesh's proxies dial. A ZoneEgress that cannot prove itself to a mesh is not healthy there.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func TestAnExternalServiceShowsTheEgressesOfItsMesh(t *testing.T) {
	var rows []resource.Any
	for _, mesh := range []string{"default", "pear", "plain", "shop", "spired"} {
		rows = append(rows, kind.MeshEgressAddresses.Make(mesh, "east", kind.MeshEgressAddress{
			Egresses: []kind.ZoneProxyAddress{{Name: "ze", Address: "10.0.0.9", Port: 10002, Healthy: true,
				Legacy: true}},
		}))
	}
	api := kind.MeshExternalServices.Make("spired", "api", kind.MeshExternalService{
		Match:     kind.ExternalMatch{Port: 443, Protocol: kind.TCP},
		Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}},
	})
	api.Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	rows = append(rows, api, kind.Meshes.Make("", "spired", kind.Mesh{}),
		kind.MeshIdentities.Make("spired", "spire",
			kind.MeshIdentity{Provider: kind.IdentityProvider{Type: kind.Spire}}))
	s := manyMeshes(t, rows...)
	r, reports := table.Eval(s.Tables.DB.Snapshot()), inspect.NewReports(s, s.Tables.DB.Snapshot())
	for mesh, serves := range map[string]bool{"default": true, "pear": true, "plain": false, "shop": false,
		"spired": false} {
		service, ok := s.Tables.ExternalServices.Find(r, mesh, "api")
		if !ok {
			t.Fatalf("%s has no external service", mesh)
		}
		shown := reports.ServiceEgress(service)
		if (shown != nil) != serves {
			t.Errorf("%s: status.zoneEgress is %+v, and the egress serves the mesh: %v", mesh, shown, serves)
		}
		if shown != nil && (shown.Address != "10.0.0.9" || len(shown.Endpoints) != 1 || !shown.Endpoints[0].Healthy) {
			t.Errorf("%s: status.zoneEgress is %+v", mesh, shown)
		}
		for _, c := range reports.ExternalConditions(service) {
			if c.Type == "Reachable" && (c.Status == "True") != serves {
				t.Errorf("%s: the condition is %+v, and the egress serves the mesh: %v", mesh, c, serves)
			}
		}
		if isDialed := len(s.Routes.EgressRoute.Get(r, mesh).Egresses) > 0; isDialed != serves {
			t.Errorf("%s: its proxies dial the egress: %v, want %v", mesh, isDialed, serves)
		}
		for _, report := range reports.Services(inspect.ServiceQuery{Mesh: mesh, Name: "api"}) {
			for _, e := range report.Egresses {
				if e.Healthy != serves {
					t.Errorf("%s: inspect shows the egress %+v, and it serves the mesh: %v", mesh, e, serves)
				}
			}
		}
	}

	// Beside an egress of the mesh's own that is healthy, an egress that does not serve the mesh is shown as it is: a
	// ZoneEgress that cannot prove itself to the mesh, and an egress that the mesh has evicted.
	evicted := kind.Dataplanes.Make("plain", "evicted", kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.7", Port: 10001},
	}})
	evicted.Labels = map[string]string{"team": "former"}
	plain := kind.Meshes.Make("", "plain", kind.Mesh{DataplaneProxyMembership: &kind.Membership{
		Blocked: []kind.MembershipRule{{Tags: evicted.Labels}},
	}})
	both := kind.MeshEgressAddresses.Make("plain", "east", kind.MeshEgressAddress{Egresses: []kind.ZoneProxyAddress{
		{Name: "evicted", Address: "10.0.0.7", Port: 10001, Healthy: true},
		{Name: "own", Address: "10.0.0.8", Port: 10001, Healthy: true},
		{Name: "ze", Address: "10.0.0.9", Port: 10002, Healthy: true, Legacy: true},
	}})
	s.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range []resource.Any{plain, evicted, both} {
			s.Tables.Put(tx, o)
		}
	})
	r = table.Eval(s.Tables.DB.Snapshot())
	service, _ := s.Tables.ExternalServices.Find(r, "plain", "api")
	want := []kind.EgressEndpoint{{Address: "10.0.0.7", Port: 10001}, {Address: "10.0.0.8", Port: 10001, Healthy: true},
		{Address: "10.0.0.9", Port: 10002}}
	if diff := cmp.Diff(want,
		inspect.NewReports(s, s.Tables.DB.Snapshot()).ServiceEgress(service).Endpoints); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}
