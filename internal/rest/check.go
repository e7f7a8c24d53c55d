package rest

import (
	"net/http"

	"weft/internal/graph"
	"weft/kind"
)

// check answers everything that is wrong with the running system. It costs one pass over the resources.
func (a *api) check(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	insights := map[graph.ProxyKey]*kind.DataplaneInsight{}
	for o := range m.State.Insights.All(m.Snapshot) {
		insights[graph.ProxyKey{Mesh: o.Mesh, Name: o.Name}] = m.Of(o.Mesh, o.Name)
	}
	return writeJSON(w, http.StatusOK, a.Check(insights))
}
