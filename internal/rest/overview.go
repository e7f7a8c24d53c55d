package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// shownMeta has the fields of a resource that every response about it contains.
type shownMeta struct {
	Type             string            `json:"type"`
	Mesh             string            `json:"mesh,omitempty"`
	Name             string            `json:"name"`
	Labels           map[string]string `json:"labels,omitempty"`
	CreationTime     kind.Time         `json:"creationTime"`
	ModificationTime kind.Time         `json:"modificationTime"`
	KRI              string            `json:"kri,omitempty"`
}

// metaOf returns the metadata of a resource under the type of the response.
func metaOf(shown string, o resource.Any) shownMeta {
	meta := o.Envelope()
	m := insightMeta(shown, o)
	if kri, ok := resource.KRIOf(meta, kind.ByName(o.Key().Kind).Describe()); ok {
		m.KRI = kri.String()
	}
	return m
}

// insightMeta is metaOf for a type that is not a resource and has no identifier.
func insightMeta(shown string, o resource.Any) shownMeta {
	meta := o.Envelope()
	return shownMeta{
		Type: shown, Mesh: meta.Mesh, Name: meta.Name, Labels: resource.ShownLabels(meta),
		CreationTime: kind.Time{Time: meta.Created}, ModificationTime: kind.Time{Time: meta.Modified},
	}
}

// Overview is a Dataplane with its DataplaneInsight.
type Overview struct {
	shownMeta                               // of the type DataplaneOverview
	Status           inspect.Status         `json:"status"`
	Dataplane        *kind.Dataplane        `json:"dataplane"`
	DataplaneInsight *kind.DataplaneInsight `json:"dataplaneInsight"`
}

// ZoneOverview is a Zone with its ZoneInsight.
type ZoneOverview struct {
	shownMeta                     // of the type ZoneOverview
	Zone        *kind.Zone        `json:"zone"`
	ZoneInsight *kind.ZoneInsight `json:"zoneInsight"`
}

// ZoneIngressOverview is a ZoneIngress with its ZoneIngressInsight.
type ZoneIngressOverview struct {
	shownMeta                                 // of the type ZoneIngressOverview
	ZoneIngress        *kind.ZoneIngress      `json:"zoneIngress"`
	ZoneIngressInsight *kind.DataplaneInsight `json:"zoneIngressInsight"`
}

// ZoneEgressOverview is a ZoneEgress with its ZoneEgressInsight.
type ZoneEgressOverview struct {
	shownMeta                                // of the type ZoneEgressOverview
	ZoneEgress        *kind.ZoneEgress       `json:"zoneEgress"`
	ZoneEgressInsight *kind.DataplaneInsight `json:"zoneEgressInsight"`
}

// overviewReads are the kinds that overviews and insights are computed from.
var overviewReads = append([]resource.Descriptor{
	kind.Meshes, kind.Dataplanes, kind.DataplaneInsights, kind.DataplaneListenerStatuses,
	kind.MeshServices, kind.MeshServiceStatuses, kind.Zones, kind.ZoneInsights,
	kind.ZoneIngresses, kind.ZoneIngressInsights, kind.ZoneIngressListenerStatuses,
	kind.ZoneEgresses, kind.ZoneEgressInsights, kind.ZoneEgressListenerStatuses,
}, inspect.CountedKinds()...)

// overviewRoutes returns the routes of the kinds that are shown with their insights. Each path has its older spelling
// too.
func (a *api) overviewRoutes() []route {
	var routes []route
	for _, shown := range []struct {
		of   resource.Descriptor
		show func(*snapshot, resource.Any) (any, error)
	}{
		{kind.Dataplanes, dataplaneOverview},
		{kind.Zones, zoneOverview},
		{kind.ZoneIngresses, zoneIngressOverview},
		{kind.ZoneEgresses, zoneEgressOverview},
	} {
		list, one := a.joined(&listing{of: shown.of, reads: overviewReads, show: shown.show,
			status: a.statusOf(shown.of)})
		for _, segment := range shown.of.Describe().Segments() {
			lists, own := collections(shown.of.Describe(), segment)
			for _, path := range lists {
				routes = append(routes, route{"GET " + path + "/_overview", access.Read, list},
					route{"GET " + path + "+insights", access.Read, list})
			}
			routes = append(routes, route{"GET " + own + "/{name}/_overview", access.Read, one},
				route{"GET " + own + "+insights/{name}", access.Read, one})
		}
	}
	return routes
}

// joined returns the handlers of a list and of one of its resources, in the form of the list.
func (a *api) joined(c *listing) (list, one func(http.ResponseWriter, *http.Request) error) {
	list = func(w http.ResponseWriter, r *http.Request) error { return a.page(w, r, c) }
	one = func(w http.ResponseWriter, r *http.Request) error {
		m, err := a.read(r.Context(), c.reads...)
		if err != nil {
			return err
		}
		o, err := m.requested(r, c.of)
		if err != nil {
			return err
		}
		body, err := c.show(m, o)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, body)
	}
	return list, one
}

func dataplaneOverview(m *snapshot, o resource.Any) (any, error) {
	dp := dataplane(o)
	return Overview{metaOf("DataplaneOverview", o), m.Status(dp), &dp.Spec,
		m.insightOf(state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})}, nil
}

func zoneIngressOverview(m *snapshot, o resource.Any) (any, error) {
	key := state.ZoneIngressProxy(o.Envelope().Name)
	return ZoneIngressOverview{metaOf("ZoneIngressOverview", o), resource.SpecOf(o).(*kind.ZoneIngress),
		m.insightOf(key)}, nil
}

func zoneEgressOverview(m *snapshot, o resource.Any) (any, error) {
	key := state.ZoneEgressProxy(o.Envelope().Name)
	return ZoneEgressOverview{metaOf("ZoneEgressOverview", o), resource.SpecOf(o).(*kind.ZoneEgress), m.insightOf(key)},
		nil
}

func zoneOverview(m *snapshot, o resource.Any) (any, error) {
	return ZoneOverview{metaOf("ZoneOverview", o), resource.SpecOf(o).(*kind.Zone), m.Zone(o.Envelope().Name)}, nil
}
