package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/check"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

const checkPath = "GET /_check"

// check returns the findings on the running system, or those on the mesh of the query. On global it has those of every
// zone too.
func (a *api) check(w http.ResponseWriter, r *http.Request) error {
	if access.UserOf(r.Context()).Proof == access.ByReplica {
		return writeJSON(w, http.StatusOK, check.Report{Findings: a.Findings.OfReplica()})
	}
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	mesh := r.URL.Query().Get("mesh")
	if mesh != "" {
		if err := a.Guard.permit(r, access.Read, access.MeshScope(mesh)); err != nil {
			return err
		}
		if _, err := m.need(kind.Meshes.Key("", mesh)); err != nil {
			return err
		}
	}
	report, err := a.Findings.Report(r.Context())
	if err != nil {
		return err
	}
	zones, _ := m.zones()
	every := check.NewEveryZone(report.Part(mesh), len(zones))
	if a.queriesReplicas(r) {
		a.checkReplicas(r, every)
	}
	if a.Zone == "" {
		a.checkZones(r, m, every)
	}
	report = every.Report()
	report.Limit(m.Meshes)
	return writeJSON(w, http.StatusOK, report)
}

// checkReplicas adds what each other replica alone can find.
func (a *api) checkReplicas(r *http.Request, every *check.EveryZone) {
	unknown := readReplicas(a, r, readOf(r, access.Read), func(replica string, of *check.Report) {
		every.AddReplica(replica, of.Findings)
	})
	for _, replica := range unknown {
		every.UnknownReplica(replica.Instance, replica.Reason)
	}
}

// checkZones adds the findings of every zone, about the resources as they are called here.
func (a *api) checkZones(r *http.Request, m *snapshot, every *check.EveryZone) {
	names := namesInZones{m, map[collection]map[inZoneName]string{}}
	missing := a.readZones(r, m, readOf(r, access.Read), func(zone string, result *zonequery.Result) error {
		var of check.Report
		if err := decodeResult(zone, result, &of); err != nil {
			return err
		}
		of.Limit(m.Meshes) // what the caller may not read takes no place in the bounds of the report
		every.Add(zone, of.Findings, func(o check.Object) (check.Object, bool) { return names.object(zone, o) })
		return nil
	})
	for _, zone := range missing.UnknownZones {
		every.Unknown(zone.Zone, zone.Reason)
	}
}

// namesInZones are the names that zones have for the resources of global. A collection is read once for all zones.
type namesInZones struct {
	*snapshot
	read map[collection]map[inZoneName]string // the name here
}

type collection struct{ kind, mesh string }

// inZoneName is a name in the zone that owns the resource; the copies of the other control planes have no zone.
type inZoneName struct{ zone, name string }

// own returns the name here of a resource that a zone owns under a name.
func (n *namesInZones) own(zone string, key resource.Key) (name string, ok bool) {
	name, ok = n.collection(key)[inZoneName{zone, key.Name}]
	return name, ok
}

// here returns the name here of a resource that a zone has under a name, its own or a copy.
func (n *namesInZones) here(zone string, key resource.Key) (name string, ok bool) {
	if name, ok = n.own(zone, key); !ok {
		name, ok = n.own("", key)
	}
	return name, ok
}

func (n *namesInZones) collection(key resource.Key) map[inZoneName]string {
	of := collection{key.Kind, key.Mesh}
	if n.read[of] == nil {
		n.read[of] = map[inZoneName]string{}
		info := kind.ByName(key.Kind).Describe()
		for here := range n.State.Tables.ResourcesAfter(n.Snapshot, key.Kind, key.Mesh, "") {
			meta := here.Envelope()
			owner, name := kind.OwnerOf(meta), kind.OwnerName(info, meta)
			n.read[of][inZoneName{"", kind.SyncedName(info, meta.Mesh, name, owner)}] = meta.Name
			if !owner.Global() {
				n.read[of][inZoneName{owner.Zone, name}] = meta.Name
			}
		}
	}
	return n.read[of]
}

// object returns the object of global that a zone names, with the name that it has here, or the zone's own and false.
func (n *namesInZones) object(zone string, o check.Object) (check.Object, bool) {
	d := kind.ByName(o.Type)
	if d == nil || !kind.HasSyncedName(d.Describe()) {
		return o, true
	}
	name, ok := n.here(zone, resource.Key{Kind: o.Type, Mesh: o.Mesh, Name: o.Name})
	if ok {
		o.Name = name
	}
	return o, ok
}
