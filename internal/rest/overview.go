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
	// Unknown is why status and insight are those of an earlier time; absent: they are current.
	Unknown *inspect.Unknown `json:"unknown,omitempty"`
}

// ZoneOverview is a Zone with its ZoneInsight.
type ZoneOverview struct {
	shownMeta                     // of the type ZoneOverview
	Zone        *kind.Zone        `json:"zone"`
	ZoneInsight *kind.ZoneInsight `json:"zoneInsight"`
	// Unknown is why lag and lastItem are unknown: the replica to which the zone is connected has not responded.
	Unknown string `json:"unknown,omitempty"`
}

// ZoneIngressOverview is a ZoneIngress with its ZoneIngressInsight.
type ZoneIngressOverview struct {
	shownMeta                                 // of the type ZoneIngressOverview
	ZoneIngress        *kind.ZoneIngress      `json:"zoneIngress"`
	ZoneIngressInsight *kind.DataplaneInsight `json:"zoneIngressInsight"`
	// Unknown is why status and insight are those of an earlier time; absent: they are current.
	Unknown *inspect.Unknown `json:"unknown,omitempty"`
}

// ZoneEgressOverview is a ZoneEgress with its ZoneEgressInsight.
type ZoneEgressOverview struct {
	shownMeta                                // of the type ZoneEgressOverview
	ZoneEgress        *kind.ZoneEgress       `json:"zoneEgress"`
	ZoneEgressInsight *kind.DataplaneInsight `json:"zoneEgressInsight"`
	// Unknown is why status and insight are those of an earlier time; absent: they are current.
	Unknown *inspect.Unknown `json:"unknown,omitempty"`
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
	add := func(of resource.Descriptor, list, one func(http.ResponseWriter, *http.Request) error) {
		for _, segment := range of.Describe().Segments() {
			lists, own := collections(of.Describe(), segment)
			for _, path := range lists {
				routes = append(routes, route{"GET " + path + "/_overview", access.Read, list},
					route{"GET " + path + "+insights", access.Read, list})
			}
			routes = append(routes, route{"GET " + own + "/{name}/_overview", access.Read, one},
				route{"GET " + own + "+insights/{name}", access.Read, one})
		}
	}
	for of, show := range map[resource.Descriptor]func(*snapshot, resource.Any) (any, error){
		kind.Dataplanes: dataplaneOverview, kind.ZoneIngresses: zoneIngressOverview,
		kind.ZoneEgresses: zoneEgressOverview,
	} {
		list, one := a.joined(&listing{of: of, reads: overviewReads, show: show, status: a.statusOf(of)})
		add(of, list, one)
	}
	list, one := a.zoneOverviews()
	add(kind.Zones, list, one)
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
		m.insightOf(state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}), m.UnknownOf(&dp.Meta)}, nil
}

func zoneIngressOverview(m *snapshot, o resource.Any) (any, error) {
	key := state.ZoneIngressProxy(o.Envelope().Name)
	return ZoneIngressOverview{metaOf("ZoneIngressOverview", o), resource.SpecOf(o).(*kind.ZoneIngress),
		m.insightOf(key), m.UnknownOf(o.Envelope())}, nil
}

func zoneEgressOverview(m *snapshot, o resource.Any) (any, error) {
	key := state.ZoneEgressProxy(o.Envelope().Name)
	return ZoneEgressOverview{metaOf("ZoneEgressOverview", o), resource.SpecOf(o).(*kind.ZoneEgress), m.insightOf(key),
		m.UnknownOf(o.Envelope())}, nil
}

// overview returns a Zone with its insight, by the connections of all replicas.
func (e *everyLink) overview(m *snapshot, o resource.Any) (any, error) {
	e.giveTo(m)
	insight, unknown := m.Zone(o.Envelope().Name), ""
	if s := insight.Subscriptions; len(s) > 0 && s[len(s)-1].DisconnectTime == nil {
		unknown = e.unknownOf(s[len(s)-1].ControlPlaneInstanceID)
	}
	return ZoneOverview{metaOf("ZoneOverview", o), resource.SpecOf(o).(*kind.Zone), insight, unknown}, nil
}

// zoneOverviews returns the handlers of the overviews of all zones and of one.
func (a *api) zoneOverviews() (list, one func(http.ResponseWriter, *http.Request) error) {
	of := func(r *http.Request) *listing {
		return &listing{of: kind.Zones, reads: overviewReads, show: a.readLinks(r).overview,
			status: a.statusOf(kind.Zones)}
	}
	list = func(w http.ResponseWriter, r *http.Request) error {
		list, _ := a.joined(of(r))
		return list(w, r)
	}
	one = func(w http.ResponseWriter, r *http.Request) error {
		_, one := a.joined(of(r))
		return one(w, r)
	}
	return list, one
}
