package state

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MeshTables are the rows of meshes.
type MeshTables struct {
	Meshes       Rows[kind.Mesh]
	MeshStatuses Rows[kind.MeshStatus]
	// MeshesByScope finds all meshes under the [MeshKey] of no mesh.
	MeshesByScope table.Index[*resource.Object[kind.Mesh]]
}

func (t *Tables) addMesh() {
	t.Meshes = addRows(t, kind.Meshes)
	t.MeshStatuses = addRows(t, kind.MeshStatuses)
	t.MeshesByScope = byMesh(t.Meshes)
}

// MeshNames returns all meshes, sorted.
func (t *Tables) MeshNames(r *table.Reader) []string { return t.MeshesOf(r, ProxyKey{}) }

// MeshesOf returns the meshes that a zone proxy serves: its own, or all meshes for a proxy without one.
func (t *Tables) MeshesOf(r *table.Reader, key ProxyKey) []string {
	if key.Mesh != "" {
		return []string{key.Mesh}
	}
	var meshes []string
	for _, mesh := range t.MeshesByScope.List(r, MeshKey("")) {
		meshes = append(meshes, mesh.Name)
	}
	slices.Sort(meshes)
	return meshes
}
