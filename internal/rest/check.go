package rest

import (
	"encoding/json"
	"net/http"

	"weft/internal/access"
	"weft/internal/check"
	"weft/kind"
	"weft/resource"
)

const checkPath = "GET /_check"

// check returns the findings on the running system, or those on the mesh of the query. It costs one pass over the
// resources. On global it has those of every zone too.
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
	every := check.NewEveryZone(a.Check(mesh, known), len(m.enabledZones()))
	if a.queriesReplicas(r) {
		a.checkReplicas(r, every)
	}
	if a.Zone == "" && access.UserOf(r.Context()).Proof != access.ByReplica {
		a.checkZones(r, m, every)
	}
	return writeJSON(w, http.StatusOK, every.Report())
}

// checkReplicas adds what each other replica alone can find.
func (a *api) checkReplicas(r *http.Request, every *check.EveryZone) {
	unknown := readReplicas(a, r, access.Read, func(replica string, of *check.Report) {
		every.AddReplica(replica, of.Findings)
	})
	for _, replica := range unknown {
		every.UnknownReplica(replica.Instance, replica.Reason)
	}
}

// checkZones adds the findings of every zone, about the resources as they are called here.
func (a *api) checkZones(r *http.Request, m *snapshot, every *check.EveryZone) {
	unknown := a.readZones(r, m, access.Read, func(zone string, body []byte) error {
		var of check.Report
		if err := json.Unmarshal(body, &of); err != nil {
			return resource.Errorf(resource.Unavailable, "the response of the zone %s: %s", zone, err)
		}
		names := &namesIn{m, zone, map[collection]map[string]string{}}
		every.Add(zone, of.Findings, names.here)
		return nil
	})
	for _, zone := range unknown {
		every.Unknown(zone.Zone, zone.Reason)
	}
}

// namesIn are the names that a zone has for the resources of global.
type namesIn struct {
	*snapshot
	zone  string
	names map[collection]map[string]string // the name here by the name in the zone
}

type collection struct{ kind, mesh string }

// here returns the object of global that the zone names, with the name that it has here, or the zone's own and false.
func (n *namesIn) here(o check.Object) (check.Object, bool) {
	d := kind.ByName(o.Type)
	if d == nil || !kind.HasSyncedName(d.Describe()) {
		return o, true
	}
	of := collection{o.Type, o.Mesh}
	if n.names[of] == nil {
		n.names[of] = map[string]string{}
		for here := range n.State.Tables.ResourcesAfter(n.Snapshot, o.Type, o.Mesh, "") {
			meta := here.Envelope()
			owner, name := kind.OwnerOf(meta), kind.OwnerName(d.Describe(), meta)
			if owner.Zone != n.zone {
				name = kind.SyncedName(d.Describe(), meta.Mesh, name, owner)
			}
			n.names[of][name] = meta.Name
		}
	}
	name, ok := n.names[of][o.Name]
	if ok {
		o.Name = name
	}
	return o, ok
}
