package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PermissionTables are the MeshTrafficPermissions and their statuses.
type PermissionTables struct {
	Permissions        Rows[kind.MeshTrafficPermission]
	PermissionStatuses Rows[kind.MeshTrafficPermissionStatus]
	// PermissionByMesh finds the MeshTrafficPermissions of a [MeshKey].
	PermissionByMesh *table.Index[*resource.Object[kind.MeshTrafficPermission]]
}

func (t *Tables) addPermission() {
	t.Permissions, t.PermissionByMesh = AddPolicies(t, kind.MeshTrafficPermissions)
	t.PermissionStatuses = addRows(t, kind.MeshTrafficPermissionStatuses)
}
