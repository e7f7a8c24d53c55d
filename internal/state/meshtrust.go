package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MeshTrustTables are the MeshTrusts and their statuses.
type MeshTrustTables struct {
	Trusts        Rows[kind.MeshTrust]
	TrustStatuses Rows[kind.MeshTrustStatus]
	// TrustsByMesh finds the MeshTrusts of a [MeshKey].
	TrustsByMesh table.Index[*resource.Object[kind.MeshTrust]]
}

func (t *Tables) addMeshTrust() {
	t.Trusts = addRows(t, kind.MeshTrusts)
	t.TrustStatuses = addRows(t, kind.MeshTrustStatuses)
	t.TrustsByMesh = byMesh(t.Trusts)
}
