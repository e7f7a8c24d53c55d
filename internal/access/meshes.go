package access

import (
	"maps"
	"slices"

	"weft/kind"
	"weft/resource"
)

// MeshRule permits an action in some meshes, and nothing that concerns others or all of them.
type MeshRule struct {
	Meshes, Users, Groups []string
	// Setting is the path of the rule in the settings: "access.static.meshes[0]".
	Setting string
}

// Scope is what a request concerns: one mesh, all meshes, or any of them. The zero value is [GlobalScope], the most
// demanding one.
type Scope struct {
	mesh string
	any  bool
}

// GlobalScope is the scope of objects that belong to no mesh and of requests about all meshes. A rule that is limited
// to meshes permits none.
var GlobalScope = Scope{}

// AnyMesh is the scope of requests about the objects of several meshes, and of the objects that a reader of any mesh
// reads. A user that is permitted the action in one mesh passes. The handler limits the response to [Rules.Meshes].
var AnyMesh = Scope{any: true}

// MeshScope is the scope of the objects of a mesh, and of the mesh itself. Without a name it is [GlobalScope].
func MeshScope(mesh string) Scope { return Scope{mesh: mesh} }

// WriteScope returns the scope of a write of a resource.
func WriteScope(key resource.Key) Scope {
	if key.Kind == kind.Meshes.Name {
		return MeshScope(key.Name)
	}
	return MeshScope(key.Mesh)
}

// ReadScope returns the scope of a read of a resource.
func ReadScope(key resource.Key) Scope {
	if d := kind.ByName(key.Kind); d != nil && d.Describe().ForEveryMesh {
		return AnyMesh
	}
	return WriteScope(key)
}

// MeshSet has the meshes in which a user is permitted an action. The zero value has none.
type MeshSet struct {
	all   bool
	names map[string]bool
}

// setOf returns the set of some meshes.
func setOf(names []string) MeshSet {
	set := MeshSet{names: map[string]bool{}}
	for _, name := range names {
		set.names[name] = true
	}
	return set
}

// AllMeshes is the set of every mesh. It permits [GlobalScope] too.
func AllMeshes() MeshSet { return MeshSet{all: true} }

// IsAll reports whether the set has every mesh, those included that do not exist yet.
func (s MeshSet) IsAll() bool { return s.all }

// Has reports whether the set has a mesh. Only [AllMeshes] has the empty name, which objects of no mesh have.
func (s MeshSet) Has(mesh string) bool { return s.all || s.names[mesh] }

// Permits reports whether a request of a scope is permitted.
func (s MeshSet) Permits(scope Scope) bool { return s.Has(scope.mesh) || scope.any && len(s.names) > 0 }

// HasResource reports whether a response for the meshes of the set may have a resource. It is the filter of every list
// over several meshes.
func (s MeshSet) HasResource(key resource.Key) bool { return s.Permits(ReadScope(key)) }

// Names returns the meshes, sorted; nil for every mesh.
func (s MeshSet) Names() []string { return slices.Sorted(maps.Keys(s.names)) }

// Intersect returns the meshes of both sets.
func (s MeshSet) Intersect(other MeshSet) MeshSet {
	switch {
	case s.all:
		return other
	case other.all:
		return s
	}
	both := setOf(nil)
	for mesh := range s.names {
		if other.names[mesh] {
			both.names[mesh] = true
		}
	}
	return both
}

// meshes returns the meshes in which a rule permits a user the action.
func (r Rule) meshes(u User) MeshSet {
	if allows(r.Users, r.Groups, u) {
		return AllMeshes()
	}
	set := setOf(nil)
	for _, limited := range r.Limited {
		if allows(limited.Users, limited.Groups, u) {
			maps.Copy(set.names, setOf(limited.Meshes).names)
		}
	}
	return set
}

// Meshes returns the meshes in which a user is permitted an action. A preview shows what exists, so its meshes are
// those in which the user may read too.
func (r Rules) Meshes(u User, action Action) MeshSet {
	switch {
	case u.isForwarded() && action == u.permitted:
		return AllMeshes() // the other control plane limits what its user sees
	case u.isForwarded():
		return MeshSet{}
	case action == Open, action == Known && u.Known():
		return AllMeshes()
	case action == Preview:
		return r[Preview].meshes(u).Intersect(r[Read].meshes(u))
	}
	return r[action].meshes(u)
}
