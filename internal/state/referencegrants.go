package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ReferenceGrantTables are the ReferenceGrants of all zones, including this one.
type ReferenceGrantTables struct {
	ReferenceGrants Rows[kind.ReferenceGrants]
	// ReferenceGrantsByMesh finds them by a [MeshKey].
	ReferenceGrantsByMesh table.Index[*resource.Object[kind.ReferenceGrants]]
}

func (t *Tables) addReferenceGrants() {
	t.ReferenceGrants = addRows(t, kind.ReferenceGrantsList)
	t.ReferenceGrantsByMesh = byMesh(t.ReferenceGrants)
}
