package graph_test

import (
	"slices"
	"testing"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// oneDataplane returns a state of the zone east with one Dataplane, under a MeshIdentity that selects all.
func oneDataplane(dp *resource.Object[kind.Dataplane]) (*graph.State, *table.Reader) {
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		s.Tables.Put(tx, dp)
		s.Tables.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
	})
	return s, table.Eval(s.Tables.DB.Snapshot())
}

var egressSection = &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}

// A zone proxy section without a voucher takes a token that claims the section.
func TestAnUnvouchedSectionTakesATokenThatClaimsIt(t *testing.T) {
	dp := kind.Dataplanes.Make("default", "web-1",
		kind.Dataplane{Networking: kind.Networking{ZoneEgress: egressSection}})
	s, r := oneDataplane(dp)
	sections := s.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: "default", Name: "web-1"}).Required
	if want := kind.SectionFacts(&dp.Spec.Networking); len(sections.Operator) > 0 ||
		!slices.Equal(sections.Token, want) {
		t.Errorf("the sections are %+v, want %q of the token", sections, want)
	}
}
