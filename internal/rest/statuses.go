package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// ZoneStatuses are the statuses of services, each as one zone computes it: on global those of every zone, in a zone its
// own. They are sorted by the name of the service and by zone.
type ZoneStatuses struct {
	Statuses []ZoneStatus `json:"statuses"`
	MissingZones
}

// MissingZones are the zones whose part of a response of global is missing.
type MissingZones struct {
	// UnknownZones are the zones that have not responded.
	UnknownZones []UnknownZone `json:"unknownZones,omitempty"`
	// DisabledZones are the zones that may not connect, so that they are not asked.
	DisabledZones []string `json:"disabledZones,omitempty"`
}

// ZoneStatus is the status of a service in a zone.
type ZoneStatus struct {
	Name   string          `json:"name"` // of the service, as it is called here
	KRI    string          `json:"kri"`
	Zone   string          `json:"zone"`
	Status json.RawMessage `json:"status"`
}

// servicesWithStatus are the kinds of services, whose status each zone computes for its own clients.
var servicesWithStatus = []resource.Descriptor{kind.MeshServices, kind.MeshMultiZoneServices, kind.MeshExternalServices}

// statusesPath returns the path of the statuses of all services of a kind.
func statusesPath(d resource.Descriptor) string {
	return "GET /meshes/{mesh}/" + d.Describe().Plural + "/_status"
}

// kriParameter selects the status of one service, in the request of global to a zone.
const kriParameter = "kri"

// statusRoutes returns the routes of the statuses of services. Those of all services of a kind are [api.zoneRoutes]
// too.
func (a *api) statusRoutes() []route {
	var routes []route
	for _, d := range servicesWithStatus {
		own := "GET /meshes/{mesh}/" + d.Describe().Plural + "/{name}/"
		routes = append(routes, route{statusesPath(d), access.Read, a.statuses(d)},
			route{own + "_status", access.Read, a.statusesOf(d)},
			route{own + "_hostnames", access.Read, a.hostnames(d)})
	}
	return routes
}

// statuses returns the statuses of all services of a mesh, or of the one with the KRI in the query.
func (a *api) statuses(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, err := a.read(r.Context(), append(readsOf(d), kind.Zones)...)
		if err == nil {
			err = m.needMesh(r)
		}
		if err != nil {
			return err
		}
		services := map[string]resource.Any{} // by KRI
		for o := range m.Resources(d.Describe().Name, r.PathValue("mesh")) {
			kri := kriMeta(o).KRI
			if of := r.URL.Query().Get(kriParameter); of == "" || of == kri {
				services[kri] = o
			}
		}
		response, err := a.statusesByZone(r, m, d, services, "")
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, response)
	}
}

// statusesOf returns the statuses of one service.
func (a *api) statusesOf(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, o, err := a.requestedService(r, d)
		if err != nil {
			return err
		}
		response, err := a.statusesByZone(r, m, d, map[string]resource.Any{kriMeta(o).KRI: o}, kriMeta(o).KRI)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, response)
	}
}

func (a *api) requestedService(r *http.Request, d resource.Descriptor) (*snapshot, resource.Any, error) {
	m, err := a.read(r.Context(), append(readsOf(d), kind.Zones)...)
	if err != nil {
		return nil, nil, err
	}
	o, err := m.requested(r, d)
	return m, o, err
}

// statusesByZone returns the statuses of services by their KRIs: in a zone its own, on global those of every zone. A
// KRI limits the request to zones to one service; "" does not.
func (a *api) statusesByZone(r *http.Request, m *snapshot, d resource.Descriptor, services map[string]resource.Any,
	kri string) (*ZoneStatuses, error) {
	all := &ZoneStatuses{Statuses: []ZoneStatus{}}
	var err error
	if a.Zone != "" {
		all.Statuses, err = m.ownStatuses(services)
	} else {
		all.MissingZones = a.readZones(r, m, statusesRead(r, d, kri),
			func(zone string, result *zonequery.Result) error { return all.addZone(d, zone, result, services) })
	}
	slices.SortFunc(all.Statuses, func(a, b ZoneStatus) int {
		return strings.Compare(a.Name+" "+a.Zone, b.Name+" "+b.Zone)
	})
	return all, err
}

// statusesRead returns the request for the statuses that a zone computes.
func statusesRead(r *http.Request, d resource.Descriptor, kri string) zonequery.Read {
	q := readOf(r, access.Read)
	of := route{pattern: statusesPath(d)}
	q.Path, q.Query = of.pathOf(r), ""
	if kri != "" {
		q.Query = kriParameter + "=" + kri
	}
	return q
}

// ownStatuses returns the statuses that this control plane has.
func (m *snapshot) ownStatuses(services map[string]resource.Any) ([]ZoneStatus, error) {
	statuses := []ZoneStatus{}
	for kri, o := range services {
		status := m.status(o)
		if status == nil {
			continue
		}
		document, err := json.Marshal(resource.SpecOf(status))
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, ZoneStatus{o.Envelope().Name, kri, m.State.Tables.Zone, document})
	}
	return statuses, nil
}

// addZone adds the statuses in the response of a zone, about services that exist and that the zone has. A zone without
// the mesh or the kind has none.
func (s *ZoneStatuses) addZone(d resource.Descriptor, zone string, result *zonequery.Result,
	services map[string]resource.Any) error {
	if result.Status == http.StatusNotFound {
		return nil
	}
	var of ZoneStatuses
	if err := decodeResult(zone, result, &of); err != nil {
		return err
	}
	added := map[string]bool{}
	for _, status := range of.Statuses {
		o, ok := services[status.KRI]
		if !ok || added[status.KRI] || !isInZone(d.Describe(), o.Envelope(), zone) {
			continue
		}
		added[status.KRI] = true
		status.Name, status.Zone = o.Envelope().Name, zone
		s.Statuses = append(s.Statuses, status)
	}
	return nil
}

// isInZone reports whether a zone has a resource of global: its own, one of global, or one that all zones get.
func isInZone(info *resource.Info, meta *resource.Meta, zone string) bool {
	owner := kind.OwnerOf(meta)
	return owner.Global() || owner.Zone == zone || info.Sync.Has(resource.ZoneToZones)
}

// hostnames lists the host names of a service, each with the zones in which it is one.
func (a *api) hostnames(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, o, err := a.requestedService(r, d)
		if err != nil {
			return err
		}
		kri := kriMeta(o).KRI
		statuses, err := a.statusesByZone(r, m, d, map[string]resource.Any{kri: o}, kri)
		if err != nil {
			return err
		}
		hostnames := statuses.hostnames()
		return a.writeValidated(w, r, hostnamesPage{listPage{Total: len(hostnames), Items: hostnames},
			statuses.MissingZones})
	}
}

type hostnamesPage struct {
	listPage
	MissingZones
}

type hostnameZone struct {
	Name string `json:"name"`
}

type hostname struct {
	Hostname string         `json:"hostname"`
	Zones    []hostnameZone `json:"zones"`
}

// hostnames returns the host names of the statuses of one service, in the order in which they come. A zone whose status
// cannot be read is unknown.
func (s *ZoneStatuses) hostnames() []any {
	items, by := []any{}, map[string]*hostname{}
	for _, of := range s.Statuses {
		var status struct {
			Addresses []kind.Address `json:"addresses"`
		}
		if err := json.Unmarshal(of.Status, &status); err != nil {
			s.UnknownZones = append(s.UnknownZones, UnknownZone{of.Zone, "its response: " + err.Error()})
			continue
		}
		for _, address := range status.Addresses {
			item := by[address.Hostname]
			if item == nil {
				item = &hostname{Hostname: address.Hostname}
				items, by[address.Hostname] = append(items, item), item
			}
			if at := (hostnameZone{of.Zone}); !slices.Contains(item.Zones, at) {
				item.Zones = append(item.Zones, at)
			}
		}
	}
	return items
}
