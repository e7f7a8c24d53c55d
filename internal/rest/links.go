package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/kind"
)

// linksPath is the path at which replicas read each other's links.
const linksPath = "GET /zones/_links"

// Links are the connections of one replica to other control planes.
type Links struct {
	// Zones are those of the zones that are connected to this replica of global, by zone and kind.
	Zones map[string]map[string]inspect.KindLink `json:"zones,omitempty"`
	// Global is the connection of a zone to global, which one replica of the zone has.
	Global *inspect.GlobalLink `json:"global,omitempty"`
}

// links returns the connections of this replica.
func (a *api) links(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), kind.Zones)
	if err != nil {
		return err
	}
	links := Links{Zones: map[string]map[string]inspect.KindLink{}}
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, kind.Zones.Name, "", "") {
		if of := a.linksOf(o.Envelope().Name); len(of) > 0 {
			links.Zones[o.Envelope().Name] = of
		}
	}
	if a.Global != nil {
		links.Global = a.Global()
	}
	return writeJSON(w, http.StatusOK, links)
}

// linksOf returns the connection of a zone to this replica by kind; none where it is not connected to it.
func (a *api) linksOf(zone string) map[string]inspect.KindLink {
	if a.Links == nil {
		return nil
	}
	return a.Links(zone)
}

// everyLink has the connections of all replicas.
type everyLink struct {
	*api
	others  Links
	unknown []UnknownReplica
}

// readLinks reads the connections of the other replicas.
func (a *api) readLinks(r *http.Request) *everyLink {
	every := &everyLink{api: a, others: Links{Zones: map[string]map[string]inspect.KindLink{}}}
	if !a.queriesReplicas(r) {
		return every
	}
	q := readOf(r, access.Read)
	of := route{pattern: linksPath}
	q.Path, q.Query = of.pathOf(r), ""
	every.unknown = readReplicas(a, r, q, func(_ string, of *Links) {
		for zone, links := range of.Zones {
			every.others.Zones[zone] = links
		}
		if of.Global != nil {
			every.others.Global = of.Global
		}
	})
	return every
}

// linksOfZone returns the connection of a zone by kind.
func (e *everyLink) linksOfZone(zone string) map[string]inspect.KindLink {
	if own := e.linksOf(zone); len(own) > 0 {
		return own
	}
	return e.others.Zones[zone]
}

// giveTo gives a snapshot the connections of all replicas.
func (e *everyLink) giveTo(m *snapshot) {
	if e.Links != nil {
		m.Links = e.linksOfZone
	}
}

// global returns the connection of a zone to global, or nil: there is none, or its replica has not responded.
func (e *everyLink) global() *inspect.GlobalLink {
	if e.Global == nil {
		return nil
	}
	if own := e.Global(); own != nil {
		return own
	}
	return e.others.Global
}

// unknownOf returns why the lag of a zone is unknown: the replica to which it is connected has not responded. It is ""
// where the lag is known.
func (e *everyLink) unknownOf(instance string) string {
	for _, replica := range e.unknown {
		if replica.Instance == instance {
			return replica.Reason
		}
	}
	return ""
}
