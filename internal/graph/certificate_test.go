package graph_test

import (
	"slices"
	"testing"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// A rule matches a caller of a remote zone that changes its SPIFFE ID there. This zone has no Dataplane of the caller.
func TestARuleMatchesTheOtherSPIFFEIDOfACallerInAnotherZone(t *testing.T) {
	const old, next = "spiffe://default.west.mesh.local/old/client", "spiffe://default.west.mesh.local/new/client"
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		s.Tables.Put(tx,
			kind.Dataplanes.Make("default", "web-1",
				kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
					Inbound: []kind.Inbound{{Port: 80, ServicePort: 8080}}}}))
		s.Tables.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
		s.Tables.Put(tx, kind.MeshTrafficPermissions.Make("default", "clients",
			kind.MeshTrafficPermission{Rules: []kind.PermissionRule{{
				Default: kind.PermissionDefault{
					Allow: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: old}}}},
			}}}))
		s.Tables.Put(tx, kind.ChangingIdentitiesList.Make("default", "west",
			kind.ChangingIdentities{Workloads: [][]string{{next, old}}}))
	})
	proxy := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "default", Name: "web-1"})
	if also := proxy.Listeners[0].Permissions.Allow[0].OtherIDs; !slices.Equal(also, []string{next}) {
		t.Errorf("the rule holds for %v too, want %s", also, next)
	}
}

// An agent gives its Dataplane the workload of another one. The claim has no voucher, so neither clients nor rules
// accept it by the other's SPIFFE ID.
func TestNoRuleMatchesASPIFFEIDWithoutAVoucher(t *testing.T) {
	const own, theirs = "spiffe://default.east.mesh.local/workload/thief",
		"spiffe://default.east.mesh.local/workload/web"
	thief := kind.Dataplanes.Make("default", "thief",
		kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80}}}})
	thief.Labels = map[string]string{kind.WorkloadLabel: "web"}
	key := state.ProxyKey{Mesh: "default", Name: "thief"}
	for _, vouched := range []bool{false, true} {
		kind.VouchToken(nil, thief, []string{kind.NameFact("thief")})
		if vouched {
			kind.VouchOperator(nil, thief)
		}
		s := graph.NewState("east")
		s.Tables.DB.Commit(func(tx *table.Tx) {
			s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			s.Tables.Put(tx, thief)
			s.Tables.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
				Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
				Provider: kind.IdentityProvider{Type: "Bundled"},
			}))
			s.Tables.Put(tx, kind.DataplaneCertificatesList.Make("default", "thief",
				kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{SpiffeIDs: kind.SpiffeIDsOf(own),
					MeshIdentity: "id"}}}))
		})
		r := table.Eval(s.Tables.DB.Snapshot())
		if moves := s.Identity.NextIDs.Get(r, key).Has(theirs); moves != vouched {
			t.Errorf("it is to get the SPIFFE ID of another: %v, want %v", moves, vouched)
		}
		if names := s.Identity.Presented.Get(r, key); !slices.Equal(names, []string{own}) {
			t.Errorf("clients take it under %v, want %s alone", names, own)
		}
		if id := s.Identity.Identity.Get(r, key); (id.Problem == "") != vouched {
			t.Errorf("its identity has the problem %q", id.Problem)
		}
	}
}
