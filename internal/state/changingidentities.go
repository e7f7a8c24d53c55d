package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ChangingIdentitiesTables are the changing identities of all zones, including this one.
type ChangingIdentitiesTables struct {
	ChangingIdentities Rows[kind.ChangingIdentities]
	// ChangingIdentitiesByMesh finds them by a [MeshKey].
	ChangingIdentitiesByMesh table.Index[*resource.Object[kind.ChangingIdentities]]
}

func (t *Tables) addChangingIdentities() {
	t.ChangingIdentities = addRows(t, kind.ChangingIdentitiesList)
	t.ChangingIdentitiesByMesh = byMesh(t.ChangingIdentities)
}
