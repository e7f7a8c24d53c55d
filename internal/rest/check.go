package rest

import (
	"net/http"

	"weft/internal/check"
	"weft/kind"
)

// check returns the findings on the running system, or those on the mesh of the query. It costs one pass over the
// resources.
func (a *api) check(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	mesh := r.URL.Query().Get("mesh")
	if mesh != "" {
		if _, err := m.need(kind.Meshes.Key("", mesh)); err != nil {
			return err
		}
	}
	known := check.Known{Insight: m.Insight, ZoneInsights: map[string]*kind.ZoneInsight{}}
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, kind.Zones.Name, "", "") {
		known.ZoneInsights[o.Envelope().Name] = m.Zone(o.Envelope().Name)
	}
	return writeJSON(w, http.StatusOK, a.Check(mesh, known))
}
