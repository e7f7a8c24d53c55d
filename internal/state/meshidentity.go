package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MeshIdentityTables are the MeshIdentities and the CAs that sign for them.
type MeshIdentityTables struct {
	Identities Rows[kind.MeshIdentity]
	SigningCAs Rows[kind.SigningCA]
	// IdentitiesByMesh and SigningCAsByMesh find them by a [MeshKey].
	IdentitiesByMesh table.Index[*resource.Object[kind.MeshIdentity]]
	SigningCAsByMesh table.Index[*resource.Object[kind.SigningCA]]
}

func (t *Tables) addMeshIdentity() {
	t.Identities = addRows(t, kind.MeshIdentities)
	t.SigningCAs = addRows(t, kind.SigningCAs)
	t.IdentitiesByMesh = byMesh(t.Identities)
	t.SigningCAsByMesh = byMesh(t.SigningCAs)
	addRows(t, kind.MeshIdentityStatuses) // only the API reads these
}
