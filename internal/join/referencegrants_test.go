package join_test

import (
	"testing"

	"weft/internal/admission"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// TestReferenceGrantsReachOtherZones: the routes of producers apply in all zones, which get the grants of each zone,
// their changes and their end. Another zone can't state grants of this one.
func TestReferenceGrantsReachOtherZones(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	west.awaitRow(kind.Meshes.Key("", "m"))
	grant := kind.ReferenceGrant{FromKind: "MeshHTTPRoute", FromNamespace: "shop", Namespace: "pay",
		ToKind: "MeshService", ToName: "api"}
	write := func(z *zone, grants ...kind.ReferenceGrant) {
		t.Helper()
		row := kind.ReferenceGrantsList.Make("m", z.name, kind.ReferenceGrants{Grants: grants})
		if _, err := z.writer.Put(t.Context(), row, admission.Change{ControlPlane: true}); err != nil {
			t.Fatal(err)
		}
	}
	received := func(p *plane, zone string) []kind.ReferenceGrant {
		row, err := p.rows.Get(t.Context(), keyOutsideOwner(kind.ReferenceGrantsList, "m", zone, zone))
		if err != nil {
			return nil
		}
		o, err := admission.Decode(row)
		if err != nil {
			t.Fatal(err)
		}
		return o.(*resource.Object[kind.ReferenceGrants]).Spec.Grants
	}
	write(east, grant)
	write(west)
	for _, p := range []*plane{g.plane, west.plane} {
		testwait.UntilTrue(t, "the grant of east is in "+p.name, func() bool {
			got := received(p, "east")
			return len(got) == 1 && got[0] == grant
		})
	}
	second := grant
	second.FromNamespace = "web"
	write(east, grant, second)
	testwait.UntilTrue(t, "west has both grants", func() bool { return len(received(west.plane, "east")) == 2 })
	if err := east.writer.Delete(t.Context(), kind.ReferenceGrantsList.Key("m", "east"),
		admission.Change{ControlPlane: true}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*plane{g.plane, west.plane} {
		p.awaitDeleted(keyOutsideOwner(kind.ReferenceGrantsList, "m", "east", "east"))
	}
	if got := received(g.plane, "west"); len(got) != 0 || !g.has(keyOutsideOwner(kind.ReferenceGrantsList, "m", "west",
		"west")) {
		t.Errorf("global has the grants %v of west, want its row without any", got)
	}
}
