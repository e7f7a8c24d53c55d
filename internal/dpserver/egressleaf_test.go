package dpserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"weft/internal/admit"
	"weft/internal/graph"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// egressHub knows what a ZoneEgress may present, and whether every client has heard of what is next.
type egressHub struct {
	Hub
	rows  []*resource.Object[kind.DataplaneLeaves]
	heard bool
}

func (h *egressHub) EgressLeaves(string) []*resource.Object[kind.DataplaneLeaves] { return h.rows }

func (h *egressHub) Everywhere(context.Context, ...resource.Key) error {
	if h.heard {
		return nil
	}
	return errors.New("some have not")
}

// A ZoneEgress that presents a certificate gets one of other names, or under another root, once every client takes it
// by that; who never answers can't keep it from having any.
func TestTheNextCertificateOfAZoneEgressWaitsForItsClients(t *testing.T) {
	held := func(mesh, id, root string, life time.Duration) *resource.Object[kind.DataplaneLeaves] {
		return kind.ZoneEgressLeavesList.Make(mesh, "ze", kind.DataplaneLeaves{Leaves: []kind.HeldLeaf{
			{LeafNames: kind.NamesOf(id), Root: root, Until: kind.Time{Time: time.Now().Add(life)}},
		}})
	}
	const id = "spiffe://shop/zone-egress"
	for name, c := range map[string]struct {
		rows  []*resource.Object[kind.DataplaneLeaves]
		heard bool
		given bool
	}{
		"its first one":                       {nil, false, true},
		"the same again":                      {[]*resource.Object[kind.DataplaneLeaves]{held("shop", id, "root", time.Hour)}, false, true},
		"another root":                        {[]*resource.Object[kind.DataplaneLeaves]{held("shop", id, "former", time.Hour)}, false, false},
		"another root that all believe":       {[]*resource.Object[kind.DataplaneLeaves]{held("shop", id, "former", time.Hour)}, true, true},
		"another name":                        {[]*resource.Object[kind.DataplaneLeaves]{held("shop", "spiffe://shop/former", "root", time.Hour)}, false, false},
		"another mesh's":                      {[]*resource.Object[kind.DataplaneLeaves]{held("apple", id, "root", time.Hour)}, false, false},
		"another, and its own ends meanwhile": {[]*resource.Object[kind.DataplaneLeaves]{held("apple", id, "root", time.Second)}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			rows := memory.New(memory.Options{})
			defer rows.Close()
			writer := admit.New(rows, admit.Options{Zone: "east"})
			for _, o := range []resource.Any{kind.Meshes.Make("", "shop", kind.Mesh{})} {
				if _, err := writer.Put(t.Context(), o, admit.Change{ControlPlane: true}); err != nil {
					t.Fatal(err)
				}
			}
			s := &Server{Config: Config{Hub: &egressHub{rows: c.rows, heard: c.heard}, Writer: writer}}
			leaf := &graph.Leaf{Mesh: "shop", MeshIdentity: kind.MTLSIdentity, LeafNames: kind.NamesOf(id)}
			next := held("shop", id, "root", time.Hour).Spec.Leaves[0]
			err := s.holdEgress(t.Context(), graph.ZoneEgressProxy("ze"), leaf, next)
			_, stored := rows.Get(t.Context(), kind.ZoneEgressLeavesList.Key("shop", "ze"))
			switch {
			case c.given && (err != nil || stored != nil):
				t.Errorf("it is not given: %v, %v", err, stored)
			case !c.given && (resource.CodeOf(err) != resource.Unavailable || stored == nil):
				t.Errorf("it is given, or refused as %v", err)
			}
		})
	}
}
