package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ingressGrace is how long a zone ingress counts as there whose stream is lost: a control plane that restarts,
// or a connection that breaks, says nothing about whether it passes connections on.
const ingressGrace = 15 * time.Second

// absences are the zone ingresses whose stream is lost, and since when that has been known here. The times are
// of this run alone: where it begins, everybody has the grace anew.
type absences map[graph.ProxyKey]time.Time

// keep forgets those of a mesh that are no ingresses any more.
func (a absences) keep(mesh string, doors []graph.Door) {
	maps.DeleteFunc(a, func(key graph.ProxyKey, _ time.Time) bool {
		return key.Mesh == mesh && !slices.ContainsFunc(doors, func(d graph.Door) bool { return d.Proxy == key })
	})
}

// address keeps the addresses at which other zones reach a mesh here: those of the zone ingresses of the mesh,
// and those that serve every mesh where none of the mesh's own can be dialled. An ingress stays in the list for
// as long as it exists, whatever its health, so that a zone whose last one fails is still dialled.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func (p *Plan) address(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	stored, there := p.State.ZoneAddresses.Find(r, mesh, p.State.Zone)
	var before kind.MeshZoneAddress
	if there {
		before = stored.Spec
	}
	var own, legacy []kind.ZoneProxyAddress
	if _, ok := p.State.Meshes.Find(r, "", mesh); ok {
		var next time.Time
		own, again = p.entries(r, mesh, &before, now)
		legacy, next = p.entries(r, "", &before, now)
		again = earliest(again, next)
	}
	wanted := preferred(own, legacy)
	switch {
	case slices.Equal(wanted, before.Ingresses):
		return nil, again
	case len(wanted) == 0:
		gone := stored.Key()
		return []Step{{Delete: &gone}}, again
	}
	return []Step{{Put: p.zoneAddress(mesh, wanted, stored)}}, again
}

func (p *Plan) zoneAddress(mesh string, ingresses []kind.ZoneProxyAddress, stored *resource.Object[kind.MeshZoneAddress]) *resource.Object[kind.MeshZoneAddress] {
	row := kind.MeshZoneAddresses.Make(mesh, p.State.Zone, kind.MeshZoneAddress{Ingresses: ingresses})
	row.Labels = map[string]string{kind.ZoneLabel: p.State.Zone, kind.OriginLabel: kind.OriginZone}
	if stored != nil {
		row.Version = stored.Version
	}
	return row
}

// entries are the zone ingresses of a mesh, or of all, that have ever served, and when their health changes by
// itself.
func (p *Plan) entries(r *table.Reader, mesh string, before *kind.MeshZoneAddress, now time.Time) (entries []kind.ZoneProxyAddress, again time.Time) {
	doors := p.State.Doors.Get(r, mesh)
	p.absent.keep(mesh, doors)
	for i := range doors {
		d := &doors[i]
		present, next := p.present(d, now)
		again = earliest(again, next)
		entry, ok := entryOf(d, before)
		if ok {
			entry.Healthy = (d.Serves || d.ServesFormer) && !d.Draining && present
			entries = append(entries, entry)
		}
	}
	return entries, again
}

// entryOf is where an ingress is dialled: where it listens now, or, until it does, where it has been dialled
// before; nowhere if it has never served.
func entryOf(d *graph.Door, before *kind.MeshZoneAddress) (kind.ZoneProxyAddress, bool) {
	legacy := d.Proxy.Type == kind.IngressProxy
	if d.Serves {
		return kind.ZoneProxyAddress{Name: d.Proxy.Name, Address: d.Address, Port: d.Port, Legacy: legacy}, true
	}
	i := slices.IndexFunc(before.Ingresses, func(a kind.ZoneProxyAddress) bool { return a.Name == d.Proxy.Name && a.Legacy == legacy })
	if i < 0 {
		return kind.ZoneProxyAddress{}, false
	}
	return before.Ingresses[i], true
}

// present says whether the proxy of an ingress is there, and when its grace ends where its stream is lost.
func (p *Plan) present(d *graph.Door, now time.Time) (present bool, again time.Time) {
	if d.Instance != "" && p.Lives(d.Instance) {
		delete(p.absent, d.Proxy)
		return true, time.Time{}
	}
	if _, known := p.absent[d.Proxy]; !known {
		p.absent[d.Proxy] = now
	}
	end := p.absent[d.Proxy].Add(ingressGrace)
	if now.Before(end) {
		return true, end
	}
	return false, time.Time{}
}

// preferred are the entries of a mesh: the mesh's own, and the others only while none of these is healthy.
func preferred(own, legacy []kind.ZoneProxyAddress) []kind.ZoneProxyAddress {
	if slices.ContainsFunc(own, func(a kind.ZoneProxyAddress) bool { return a.Healthy }) {
		return own
	}
	all := slices.Concat(own, legacy)
	slices.SortStableFunc(all, func(a, b kind.ZoneProxyAddress) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
