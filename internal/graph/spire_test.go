package graph_test

import (
	"testing"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// TestEachZoneHasItsSocketOfSPIRE: where a MeshIdentity states no socket, the proxies of each zone have that of their
// zone. A stated one counts in every zone.
func TestEachZoneHasItsSocketOfSPIRE(t *testing.T) {
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
			s.Tables.Put(tx, ofEast(kind.Dataplanes.Make("m", "web", kind.Dataplane{
				Networking: kind.Networking{Address: "10.0.0.1"}})))
		})
		id := s.Identity.Identity.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "m", Name: "web"})
		if id == nil || id.Source.Socket != c.want {
			t.Errorf("%+v: the identity is %+v", c, id)
		}
	}
}
