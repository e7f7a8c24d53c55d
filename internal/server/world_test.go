package server

import (
	"testing"

	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

// TestOwnWorldHasEveryMesh: what the control plane reads itself, as for the findings, has the resources of every mesh
// and those of none.
func TestOwnWorldHasEveryMesh(t *testing.T) {
	s := &Server{state: graph.NewState("")}
	world := s.wholeWorld(s.state.Tables.DB.Snapshot())
	for _, key := range []resource.Key{kind.MeshTimeouts.Key("shop", "a"), kind.GlobalSecrets.Key("", "a")} {
		if !world.Meshes.HasResource(key) {
			t.Errorf("%s is left out", key)
		}
	}
}
