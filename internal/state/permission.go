package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PermissionTables are the MeshTrafficPermissions.
type PermissionTables struct {
	Permissions Rows[kind.MeshTrafficPermission]
	// PermissionByMesh finds the MeshTrafficPermissions of a [MeshKey].
	PermissionByMesh table.Index[*resource.Object[kind.MeshTrafficPermission]]
}

func (t *Tables) addPermission() {
	t.Permissions, t.PermissionByMesh = AddPolicies(t, kind.MeshTrafficPermissions)
}
