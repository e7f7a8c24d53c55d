package join_test

import (
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/testwait"
	"weft/kind"
	"weft/kind/kindtest"
	"weft/resource"
)

// TestTwoItemsOfOneKey: two zones have services whose copies have one key. Global and every other zone have both, each
// control plane that of the first owner under its key. That stays through changes, restarts and deletions.
func TestTwoItemsOfOneKey(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west, north := newZone(t, "east").join(g), newZone(t, "west").join(g), newZone(t, "north").join(g)
	named := func(name string, port string) string {
		return strings.NewReplacer("name: web,", "name: "+name+",", "port: 80", "port: "+port).Replace(service)
	}
	key := keyOutsideOwner(kind.MeshServices, "m", kindtest.WestName, "west")
	longer := resource.Key{Kind: key.Kind, Mesh: "m",
		Name: kind.LongerSyncedName("m", kindtest.EastName, kind.Owner{Zone: "east"})}
	east.awaitRow(kind.Meshes.Key("", "m"))
	west.awaitRow(kind.Meshes.Key("", "m"))
	west.put(named(kindtest.WestName, "80"))
	north.awaitRow(key)
	east.put(named(kindtest.EastName, "80"))
	planes := map[string]*plane{"global": g.plane, "north": north.plane}
	for _, p := range planes {
		p.awaitRow(longer)
	}
	// An owner has its own service under its name, so there is no second one of the key.
	west.awaitRow(key)
	east.awaitRow(key)

	g.stop()
	north.stop()
	west.put(named(kindtest.WestName, "81"))
	east.put(named(kindtest.EastName, "82"))
	writes := make(chan resource.Key, 100)
	north.writer = admission.New(&countingStream{north.rows, writes}, admission.Options{Zone: "north", Joined: true})
	g.start()
	north.join(g)
	for name, p := range planes {
		testwait.UntilTrue(t, name+" has the changes of both", func() bool {
			return strings.Contains(p.body(key), `"port":81`) && strings.Contains(p.body(longer), `"port":82`)
		})
	}
	if n := len(writes); n != 2 {
		t.Errorf("%d rows were written, want the two that changed", n)
	}
	if rejected := append(g.insight("east").Rejected, g.insight("west").Rejected...); len(rejected) > 0 {
		t.Errorf("rejected are %v", rejected)
	}

	west.remove(kind.MeshServices.Key("m", kindtest.WestName))
	for _, p := range planes {
		p.awaitDeleted(key)
	}
	east.put(named(kindtest.EastName, "83"))
	for name, p := range planes {
		testwait.UntilTrue(t, name+" has the change of the second owner", func() bool {
			return strings.Contains(p.body(longer), `"port":83`) && !p.has(key)
		})
	}
	east.remove(kind.MeshServices.Key("m", kindtest.EastName))
	for _, p := range planes {
		p.awaitDeleted(longer)
	}
}
