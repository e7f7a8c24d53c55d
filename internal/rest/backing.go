package rest

import (
	"net/http"

	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

// backing answers who is behind a service and who calls it.
func (a *api) backing(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.read(r.Context(), kind.Written()...); err != nil {
		return err
	}
	key := keyOf(kind.MeshServices, r)
	backing := a.Inspector.Backing(graph.ServiceKey{Mesh: key.Mesh, Name: key.Name})
	if backing == nil {
		return resource.Errorf(resource.NotFound, "%s does not exist, so that nobody is behind it", key)
	}
	return writeJSON(w, http.StatusOK, backing)
}
