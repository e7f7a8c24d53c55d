package identity_test

import (
	"slices"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// TestSocketOfSPIREPerZone: where a MeshIdentity states no socket, the proxies of each zone have that of their
// zone. A stated one counts in every zone.
func TestSocketOfSPIREPerZone(t *testing.T) {
	const mounted = "/run/spire/sockets/socket" // on Kubernetes
	for _, c := range []struct{ stated, zone, want string }{
		{"", "", kind.SpireSocket}, {"", mounted, mounted},
		{"/spire.sock", "", "/spire.sock"}, {"/spire.sock", mounted, "/spire.sock"},
	} {
		s := graph.NewState("east")
		s.Tables.SpireSocket = c.zone
		s.Tables.DB.Commit(func(tx *table.Tx) {
			s.Tables.Put(tx, kind.Meshes.Make("", "m", kind.Mesh{}))
			s.Tables.Put(tx, kind.MeshIdentities.Make("m", "spire", kind.MeshIdentity{
				Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
				Provider: kind.IdentityProvider{Type: kind.Spire, Spire: &kind.SpireProvider{
					Agent: &kind.SpireAgent{SocketPath: c.stated}}},
			}))
			s.Tables.Put(tx, graphtest.OfEast(kind.Dataplanes.Make("m", "web", kind.Dataplane{
				Networking: kind.Networking{Address: "10.0.0.1"}})))
		})
		id := s.Identity.Identity.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "m", Name: "web"})
		if id == nil || id.Source.Socket != c.want {
			t.Errorf("%+v: the identity is %+v", c, id)
		}
	}
}

// An agent gives its Dataplane the workload of another one. The claim has no voucher, so neither clients nor rules
// accept it by the other's SPIFFE ID.
func TestSPIFFEIDsHaveVouchers(t *testing.T) {
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
