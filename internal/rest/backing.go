package rest

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// backing returns the backends of a service and its clients: all, or the page of the query.
func (a *api) backing(w http.ResponseWriter, r *http.Request) error {
	page, err := callersPage(r.URL.Query())
	if err != nil {
		return err
	}
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return err
	}
	key := keyOf(kind.MeshServices, r)
	backing := a.Inspector.BackingOf(state.ServiceKey{Mesh: key.Mesh, Name: key.Name}, page)
	if backing == nil {
		return m.missing(key, ", so it has no backends")
	}
	return writeJSON(w, http.StatusOK, backing)
}

// callersPage reads `size`, and `offset`, the name of the last client of the page before.
func callersPage(values url.Values) (inspect.CallersPage, error) {
	page := inspect.CallersPage{After: values.Get("offset")}
	size := values.Get("size")
	if size == "" && page.After == "" {
		return page, nil
	}
	var problems resource.Problems
	page.Size = readNumber(&problems, "size", size, 1, largestPage)
	if len(problems) > 0 {
		return page, invalidQuery(problems...)
	}
	return page, nil
}

// services returns the services of a name: those of every zone, and those of several zones.
func (a *api) services(w http.ResponseWriter, r *http.Request) error {
	query := inspect.ServiceQuery{
		Mesh: r.PathValue("mesh"), Name: r.PathValue("name"),
		Type: r.URL.Query().Get("type"), Zone: r.URL.Query().Get("zone"),
	}
	switch query.Type {
	case "", kind.MeshServices.Name, kind.MeshMultiZoneServices.Name, kind.MeshExternalServices.Name:
	default:
		return invalidQuery(resource.Problem{Field: "type",
			Reason: strconv.Quote(query.Type) + " is none of MeshService, MeshMultiZoneService, MeshExternalService"})
	}
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	if err := m.needMesh(r); err != nil {
		return err
	}
	reports := m.Reports().Services(query)
	if a.Zone == "" {
		if err := m.needZone(query.Zone); err != nil {
			return err
		}
	}
	if len(reports) == 0 {
		return resource.Errorf(resource.NotFound, "no %s of the mesh %s is called %s%s",
			cmp.Or(query.Type, "service"), query.Mesh, query.Name, inZone(query.Zone))
	}
	for i := range reports {
		a.queryBackends(r.Context(), &reports[i])
	}
	return writeJSON(w, http.StatusOK, Services{reports})
}

// queryBackends queries the zone of a service for its backends, where this control plane does not know them.
func (a *api) queryBackends(ctx context.Context, report *inspect.ServiceReport) {
	if report.Backends != nil || report.Type != kind.MeshServices.Name {
		return
	}
	backends, err := a.RemoteZones.Backends(ctx, report.Zone,
		state.ServiceKey{Mesh: report.Mesh, Name: report.DisplayName})
	if err != nil {
		report.NotQueried = err.Error()
	}
	report.Backends = backends
}

// Services are the services of one name.
type Services struct {
	Services []inspect.ServiceReport `json:"services"`
}

func inZone(zone string) string {
	if zone == "" {
		return ""
	}
	return " in the zone " + zone
}
