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

// doorGrace is how long a zone proxy counts as there whose stream is lost: a control plane that restarts, or a
// connection that breaks, says nothing about whether it takes connections.
const doorGrace = 15 * time.Second

// absences are the zone proxies whose stream is lost, and since when that has been known here. The times are
// of this run alone: where it begins, everybody has the grace anew.
type absences map[graph.ProxyKey]time.Time

// keep forgets those of a mesh that have no door any more.
func (a absences) keep(mesh string, doors []graph.ZoneProxy) {
	maps.DeleteFunc(a, func(key graph.ProxyKey, _ time.Time) bool {
		return key.Mesh == mesh && !slices.ContainsFunc(doors, func(d graph.ZoneProxy) bool { return d.Proxy == key })
	})
}

// gate is one of the two sorts of zone proxies: ingresses, by which other zones come in, and egresses, by which the
// proxies of this one go out. Of each sort one row for each mesh tells where they are dialled.
type gate struct {
	doors  *table.Derived[string, []graph.ZoneProxy]
	told   func(r *table.Reader, mesh string) (entries []kind.ZoneProxyAddress, row resource.Any)
	tell   func(mesh string, entries []kind.ZoneProxyAddress) resource.Any
	absent absences
}

// gates are the sorts of zone proxies, by the kind of their rows.
func gates(s *graph.State) map[string]*gate {
	return map[string]*gate{
		kind.MeshZoneAddresses.Name: newGate(s.Zone, kind.MeshZoneAddresses, s.ZoneAddresses, s.IngressProxies,
			func(row *kind.MeshZoneAddress) *[]kind.ZoneProxyAddress { return &row.Ingresses }),
		kind.MeshEgressAddresses.Name: newGate(s.Zone, kind.MeshEgressAddresses, s.EgressAddresses, s.EgressProxies,
			func(row *kind.MeshEgressAddress) *[]kind.ZoneProxyAddress { return &row.Egresses }),
	}
}

func newGate[S any](zone string, k *resource.Kind[S], rows graph.Rows[S], doors *table.Derived[string, []graph.ZoneProxy], entriesOf func(*S) *[]kind.ZoneProxyAddress) *gate {
	return &gate{
		doors: doors, absent: absences{},
		told: func(r *table.Reader, mesh string) ([]kind.ZoneProxyAddress, resource.Any) {
			row, ok := rows.Find(r, mesh, zone)
			if !ok {
				return nil, nil
			}
			return *entriesOf(&row.Spec), row
		},
		tell: func(mesh string, entries []kind.ZoneProxyAddress) resource.Any {
			var spec S
			*entriesOf(&spec) = entries
			return k.Make(mesh, zone, spec)
		},
	}
}

// address keeps the addresses at which the zone proxies of one sort are dialled for a mesh here: those of the mesh,
// and those that serve every mesh where none of the mesh's own can be dialled. One stays in the list for as long as
// it exists, whatever its health, so that a zone whose last ingress fails is still dialled.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func (p *Plan) address(r *table.Reader, g *gate, mesh string, now time.Time) (steps []Step, again time.Time) {
	before, stored := g.told(r, mesh)
	var own, legacy []kind.ZoneProxyAddress
	if _, ok := p.State.Meshes.Find(r, "", mesh); ok {
		var next time.Time
		own, again = p.entries(r, g, mesh, before, now)
		legacy, next = p.entries(r, g, "", before, now)
		again = earliest(again, next)
	}
	wanted := preferred(own, legacy)
	switch {
	case slices.Equal(wanted, before):
		return nil, again
	case len(wanted) == 0:
		gone := stored.Key()
		return []Step{{Delete: &gone}}, again
	}
	row := g.tell(mesh, wanted)
	row.Envelope().Labels = map[string]string{kind.ZoneLabel: p.State.Zone, kind.OriginLabel: kind.OriginZone}
	if stored != nil {
		row.Envelope().Version = stored.Envelope().Version
	}
	return []Step{{Put: row}}, again
}

// entries are the zone proxies of a mesh, or of all, that have ever served, and when their health changes by
// itself.
func (p *Plan) entries(r *table.Reader, g *gate, mesh string, before []kind.ZoneProxyAddress, now time.Time) (entries []kind.ZoneProxyAddress, again time.Time) {
	doors := g.doors.Get(r, mesh)
	g.absent.keep(mesh, doors)
	for i := range doors {
		d := &doors[i]
		present, next := p.present(g, d, now)
		again = earliest(again, next)
		entry, ok := entryOf(d, before)
		if ok {
			entry.Healthy = (d.Serves || d.ServesFormer) && !d.Draining && !d.Plaintext && present
			entries = append(entries, entry)
		}
	}
	return entries, again
}

// entryOf is where a zone proxy is dialled: where it listens now, or, until it does, where it has been dialled
// before; nowhere if it has never served.
func entryOf(d *graph.ZoneProxy, before []kind.ZoneProxyAddress) (kind.ZoneProxyAddress, bool) {
	legacy := d.Proxy.Mesh == ""
	if d.Serves {
		return kind.ZoneProxyAddress{Name: d.Proxy.Name, Address: d.Address, Port: d.Port, Legacy: legacy}, true
	}
	i := slices.IndexFunc(before, func(a kind.ZoneProxyAddress) bool { return a.Name == d.Proxy.Name && a.Legacy == legacy })
	if i < 0 {
		return kind.ZoneProxyAddress{}, false
	}
	return before[i], true
}

// present says whether the proxy of a door is there, and when its grace ends where its stream is lost.
func (p *Plan) present(g *gate, d *graph.ZoneProxy, now time.Time) (present bool, again time.Time) {
	if d.Instance != "" && p.Lives(d.Instance) {
		delete(g.absent, d.Proxy)
		return true, time.Time{}
	}
	if _, known := g.absent[d.Proxy]; !known {
		g.absent[d.Proxy] = now
	}
	end := g.absent[d.Proxy].Add(doorGrace)
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
