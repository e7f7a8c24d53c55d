package state_test

import (
	"testing"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// The counts are those of the resources after creations, replacements and deletions.
func TestResourcesAreCounted(t *testing.T) {
	tables := state.New("east")
	tables.DB.Commit(func(tx *table.Tx) {
		for _, mesh := range []string{"shop", "shop", "shop-2"} {
			tables.Put(tx, kind.Dataplanes.Make(mesh, "web-1", kind.Dataplane{})) // the second replaces the first
			tables.Put(tx, kind.Dataplanes.Make(mesh, "web-2", kind.Dataplane{}))
		}
		tables.Put(tx, kind.Meshes.Make("", "shop", kind.Mesh{}))
	})
	tables.DB.Commit(func(tx *table.Tx) { tables.Remove(tx, kind.Dataplanes.Key("shop", "web-2")) })
	for _, test := range []struct {
		kind, mesh string
		want       int
	}{
		{"Dataplane", "shop", 1}, {"Dataplane", "shop-2", 2}, {"Dataplane", "other", 0}, {"Dataplane", "", 3},
		{"Mesh", "", 1}, {"Zone", "", 0},
	} {
		if got := tables.Count(tables.DB.Snapshot(), test.kind, test.mesh); got != test.want {
			t.Errorf("%d of the kind %s in the mesh %q, want %d", got, test.kind, test.mesh, test.want)
		}
	}
}
