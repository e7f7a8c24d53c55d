package rest

import (
	"net/http"

	"weft/internal/check"
	"weft/kind"
)

// check returns all findings on the running system. It costs one pass over the resources.
func (a *api) check(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	known := check.Known{Insight: m.Insight, ZoneInsights: map[string]*kind.ZoneInsight{}}
	for o := range m.State.Tables.From(m.Snapshot, kind.Zones.Name, "", "") {
		known.ZoneInsights[o.Envelope().Name] = m.Zone(o.Envelope().Name)
	}
	return writeJSON(w, http.StatusOK, a.Check(known))
}
