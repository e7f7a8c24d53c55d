package rest

import (
	"context"
	"net/http"

	"weft/internal/admit"
	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

// check answers everything that is wrong with the running system. It costs one pass over the resources.
func (a *api) check(w http.ResponseWriter, r *http.Request) error {
	insights, err := a.allInsights(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.Check(insights))
}

// allInsights answers what is known of every proxy that has ever connected.
func (a *api) allInsights(ctx context.Context) (map[graph.ProxyKey]*kind.DataplaneInsight, error) {
	rows, _, err := a.Store.List(ctx, kind.DataplaneInsights.Name)
	if err != nil {
		return nil, err
	}
	insights := make(map[graph.ProxyKey]*kind.DataplaneInsight, len(rows))
	for _, row := range rows {
		o, err := admit.Decode(row)
		if err != nil {
			return nil, err
		}
		insight := resource.SpecOf(o).(*kind.DataplaneInsight)
		a.closeOlder(insight)
		insights[graph.ProxyKey{Mesh: row.Key.Mesh, Name: row.Key.Name}] = insight
	}
	return insights, nil
}
