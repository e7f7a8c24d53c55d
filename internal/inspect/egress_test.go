package inspect_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph/graphtest"
	"weft/internal/inspect"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestEgressesOfExternalServices: what the status shows as healthy is what the condition Reachable
// counts and what the mesh's proxies dial. A ZoneEgress that cannot prove itself to a mesh is not healthy there.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func TestEgressesOfExternalServices(t *testing.T) {
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
	s := graphtest.ManyMeshes(t, rows...)
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
