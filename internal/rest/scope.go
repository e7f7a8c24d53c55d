package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/kind"
	"weft/resource"
)

// overMeshes are the routes about objects of several meshes, beside the lists of kinds. Their handlers show and change
// what is of the caller's meshes alone, by the meshes of the snapshot or by a check of each object. A path that has no
// mesh and is not listed here is for callers whose permission is not limited to meshes.
var overMeshes = []string{checkPath, searchPath, "POST /_diff", "POST /_dry-run", "POST /tokens/dataplane",
	"GET /_kri/{kri}",
	"GET /mesh-insights", "GET /service-insights", "GET /global-insight"}

// scope returns what a request of the route concerns.
func (row *route) scope(r *http.Request) access.Scope {
	method, path, _ := strings.Cut(row.pattern, " ")
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	first, _, _ = strings.Cut(first, "+") // an older spelling: dataplanes+insights
	isRead := method == http.MethodGet
	switch d := kind.BySegment(first); {
	case r.PathValue("mesh") != "":
		return access.MeshScope(r.PathValue("mesh"))
	case strings.HasPrefix(rest, "{name}") && (first == "mesh-insights" || d == resource.Descriptor(kind.Meshes)):
		return access.MeshScope(r.PathValue("name"))
	case slices.Contains(overMeshes, row.pattern), isRead && d != nil && isOfMeshes(d.Describe()),
		isRead && slices.Contains(kind.LackingLists(), first):
		return access.AnyMesh
	}
	return access.GlobalScope
}

// isOfMeshes reports whether the resources of a kind are for the readers of some meshes.
func isOfMeshes(info *resource.Info) bool {
	return info.Scope == resource.Mesh || info.ForEveryMesh || info.Name == kind.Meshes.Name
}

type meshesKey struct{}

// withMeshes returns a request with the meshes in which its caller is permitted its action.
func (g *Guard) withMeshes(r *http.Request, action access.Action) *http.Request {
	meshes := g.Rules.Meshes(access.UserOf(r.Context()), action)
	return r.WithContext(context.WithValue(r.Context(), meshesKey{}, meshes))
}

// meshesOf returns the meshes of a request; none where it has not been permitted an action.
func meshesOf(ctx context.Context) access.MeshSet {
	meshes, _ := ctx.Value(meshesKey{}).(access.MeshSet)
	return meshes
}
