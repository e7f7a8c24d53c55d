package access

import "slices"

// Permission is what one setting permits a user.
type Permission struct {
	Action Action `json:"action"`
	// Setting is the path of the setting: "access.static.read.groups".
	Setting string `json:"setting"`
	// Meshes are the meshes to which the action is limited; absent: every mesh, and objects of global scope.
	Meshes []string `json:"meshes,omitempty"`
}

// Permissions returns what a user may do, each action with every setting that permits it, in the order of [Actions].
func (r Rules) Permissions(u User) []Permission {
	permissions := []Permission{}
	for _, d := range Actions {
		within := r.Meshes(u, d.Action)
		for _, p := range r[d.Action].permissions(u, d.Action) {
			p.set = p.set.Intersect(within) // a preview is limited to what the user reads
			if p.set.Permits(AnyMesh) {
				permissions = append(permissions, Permission{d.Action, p.setting, p.set.Names()})
			}
		}
	}
	return permissions
}

// permission is the meshes that one setting permits.
type permission struct {
	setting string
	set     MeshSet
}

func (r Rule) permissions(u User, action Action) (permitted []permission) {
	if slices.Contains(r.Users, u.Name) {
		permitted = append(permitted, permission{action.SettingPath("users"), AllMeshes()})
	}
	if allows(nil, r.Groups, u) {
		permitted = append(permitted, permission{action.SettingPath("groups"), AllMeshes()})
	}
	for _, limited := range r.Limited {
		if allows(limited.Users, limited.Groups, u) {
			permitted = append(permitted, permission{limited.Setting, setOf(limited.Meshes)})
		}
	}
	return permitted
}
