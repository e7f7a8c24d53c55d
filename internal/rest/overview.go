package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/insight"
	"weft/kind"
	"weft/resource"
)

// shownMeta is what every answer says of the resource that it is about.
type shownMeta struct {
	Type             string            `json:"type"`
	Mesh             string            `json:"mesh,omitempty"`
	Name             string            `json:"name"`
	Labels           map[string]string `json:"labels,omitempty"`
	CreationTime     kind.Time         `json:"creationTime"`
	ModificationTime kind.Time         `json:"modificationTime"`
}

func metaOf(shown string, o resource.Any) shownMeta {
	meta := o.Envelope()
	return shownMeta{shown, meta.Mesh, meta.Name, meta.Labels, kind.Time{Time: meta.Created}, kind.Time{Time: meta.Modified}}
}

// Overview is a Dataplane beside what the control plane knows of its proxy.
type Overview struct {
	shownMeta                               // of the type DataplaneOverview
	Status           insight.Status         `json:"status"`
	Dataplane        *kind.Dataplane        `json:"dataplane"`
	DataplaneInsight *kind.DataplaneInsight `json:"dataplaneInsight"`
}

// ZoneOverview is a Zone beside what is known of its control plane's connection.
type ZoneOverview struct {
	shownMeta                     // of the type ZoneOverview
	Zone        *kind.Zone        `json:"zone"`
	ZoneInsight *kind.ZoneInsight `json:"zoneInsight"`
}

// ZoneIngressOverview is a ZoneIngress beside what the control plane knows of its proxy.
type ZoneIngressOverview struct {
	shownMeta                                 // of the type ZoneIngressOverview
	ZoneIngress        *kind.ZoneIngress      `json:"zoneIngress"`
	ZoneIngressInsight *kind.DataplaneInsight `json:"zoneIngressInsight"`
}

// ZoneEgressOverview is a ZoneEgress beside what the control plane knows of its proxy.
type ZoneEgressOverview struct {
	shownMeta                                // of the type ZoneEgressOverview
	ZoneEgress        *kind.ZoneEgress       `json:"zoneEgress"`
	ZoneEgressInsight *kind.DataplaneInsight `json:"zoneEgressInsight"`
}

// overviewReads are the kinds that overviews and insights are made of.
var overviewReads = []resource.Descriptor{
	kind.Meshes, kind.Dataplanes, kind.DataplaneInsights, kind.DataplaneServings,
	kind.MeshServices, kind.MeshServiceStatuses, kind.Zones, kind.ZoneInsights,
	kind.ZoneIngresses, kind.ZoneIngressInsights, kind.ZoneIngressServings,
	kind.ZoneEgresses, kind.ZoneEgressInsights, kind.ZoneEgressServings,
}

// overviewRoutes has the older spelling of each path too.
func (a *api) overviewRoutes() []route {
	dataplanes, dataplane := a.joined(kind.Dataplanes, dataplaneOverview)
	zones, zone := a.joined(kind.Zones, zoneOverview)
	ingresses, ingress := a.joined(kind.ZoneIngresses, zoneIngressOverview)
	egresses, egress := a.joined(kind.ZoneEgresses, zoneEgressOverview)
	return []route{
		{"GET /dataplanes/_overview", access.Read, dataplanes},
		{"GET /dataplanes+insights", access.Read, dataplanes},
		{"GET /meshes/{mesh}/dataplanes/_overview", access.Read, dataplanes},
		{"GET /meshes/{mesh}/dataplanes+insights", access.Read, dataplanes},
		{"GET /meshes/{mesh}/dataplanes/{name}/_overview", access.Read, dataplane},
		{"GET /meshes/{mesh}/dataplanes+insights/{name}", access.Read, dataplane},
		{"GET /zones/_overview", access.Read, zones},
		{"GET /zones+insights", access.Read, zones},
		{"GET /zones/{name}/_overview", access.Read, zone},
		{"GET /zones+insights/{name}", access.Read, zone},
		{"GET /zone-ingresses/_overview", access.Read, ingresses},
		{"GET /zoneingresses/_overview", access.Read, ingresses},
		{"GET /zoneingresses+insights", access.Read, ingresses},
		{"GET /zone-ingresses/{name}/_overview", access.Read, ingress},
		{"GET /zoneingresses/{name}/_overview", access.Read, ingress},
		{"GET /zoneingresses+insights/{name}", access.Read, ingress},
		{"GET /zoneegresses/_overview", access.Read, egresses},
		{"GET /zone-egresses/_overview", access.Read, egresses},
		{"GET /zoneegresses+insights", access.Read, egresses},
		{"GET /zoneegresses/{name}/_overview", access.Read, egress},
		{"GET /zone-egresses/{name}/_overview", access.Read, egress},
		{"GET /zoneegresses+insights/{name}", access.Read, egress},
	}
}

// joined answers the list, and one, of what show makes of the resources of a kind.
func (a *api) joined(d resource.Descriptor, show func(*moment, resource.Any) (any, error)) (list, one func(http.ResponseWriter, *http.Request) error) {
	list = func(w http.ResponseWriter, r *http.Request) error {
		return a.page(w, r, d, overviewReads, show)
	}
	one = func(w http.ResponseWriter, r *http.Request) error {
		m, err := a.read(r.Context(), overviewReads...)
		if err != nil {
			return err
		}
		o, err := m.need(keyOf(d, r))
		if err != nil {
			return err
		}
		body, err := show(m, o)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, body)
	}
	return list, one
}

func dataplaneOverview(m *moment, o resource.Any) (any, error) {
	dp := dataplane(o)
	return Overview{metaOf("DataplaneOverview", o), m.Status(dp), &dp.Spec, m.Of(graph.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})}, nil
}

func zoneIngressOverview(m *moment, o resource.Any) (any, error) {
	key := graph.ZoneIngressProxy(o.Envelope().Name)
	return ZoneIngressOverview{metaOf("ZoneIngressOverview", o), resource.SpecOf(o).(*kind.ZoneIngress), m.Of(key)}, nil
}

func zoneEgressOverview(m *moment, o resource.Any) (any, error) {
	key := graph.ZoneEgressProxy(o.Envelope().Name)
	return ZoneEgressOverview{metaOf("ZoneEgressOverview", o), resource.SpecOf(o).(*kind.ZoneEgress), m.Of(key)}, nil
}

func zoneOverview(m *moment, o resource.Any) (any, error) {
	return ZoneOverview{metaOf("ZoneOverview", o), resource.SpecOf(o).(*kind.Zone), m.Zone(o.Envelope().Name)}, nil
}
