package reconcile

import (
	"cmp"
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

// absence is a zone proxy whose stream is lost, and since when that has been known here. It is a row of this run alone:
// where it begins, everybody has the grace anew.
type absence struct {
	Unit  Unit // of which it is an entry
	Proxy graph.ProxyKey
	Since time.Time // zero: it is back, or has gone
}

func (a absence) key() string { return a.Unit.String() + " " + a.Proxy.String() }

// store puts the absence into the table, or ends it.
func (a *absence) store(p *Plan) func(*table.Tx) {
	return func(tx *table.Tx) {
		if a.Since.IsZero() {
			p.absences.Delete(tx, a.key())
		} else {
			p.absences.Put(tx, *a)
		}
	}
}

// forgetLocal removes the rows of an earlier run of this instance.
func (p *Plan) forgetLocal(tx *table.Tx) {
	for gone := range p.absences.All(p.State.DB.Snapshot()) {
		p.absences.Delete(tx, gone.key())
	}
}

// gate is one of the two sorts of zone proxies: ingresses, by which other zones come in, and egresses, by which the
// proxies of this one go out. Of each sort one row for each mesh tells where they are dialled.
type gate struct {
	doors *table.Derived[string, []graph.ZoneProxy]
	told  func(r *table.Reader, mesh string) (entries []kind.ZoneProxyAddress, row resource.Any)
	tell  func(mesh string, entries []kind.ZoneProxyAddress) resource.Any
	// keep has the row of a mesh keep its Unit.
	keep func(*family)
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
		doors: doors,
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
		keep: func(f *family) {
			table.KeepFor(rows.Input, f.Derived, func(o *resource.Object[S]) []Unit {
				if o.Name != zone {
					return nil
				}
				return []Unit{{k.Name, o.Mesh, ""}}
			})
		},
	}
}

// address keeps the addresses at which the zone proxies of one sort are dialled for a mesh here: those of the mesh,
// and those that serve every mesh where none of the mesh's own can be dialled. One stays in the list for as long as
// it exists, whatever its health, so that a zone whose last ingress fails is still dialled.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func (p *Plan) address(r *table.Reader, g *gate, u Unit) (w Writes) {
	before, stored := g.told(r, u.Mesh)
	here := presence{p: p, r: r, unit: u, writes: &w}
	var own, legacy []kind.ZoneProxyAddress
	if _, ok := p.State.Meshes.Find(r, "", u.Mesh); ok {
		own = here.entries(g.doors.Get(r, u.Mesh), before)
		legacy = here.entries(g.doors.Get(r, ""), before)
	}
	here.forget()
	wanted := preferred(own, legacy)
	switch {
	case slices.Equal(wanted, before):
		return w
	case len(wanted) == 0:
		w.add(0, Write{Delete: stored})
		return w
	}
	row := g.tell(u.Mesh, wanted)
	row.Envelope().Labels = map[string]string{kind.ZoneLabel: p.State.Zone, kind.OriginLabel: kind.OriginZone}
	if stored == nil {
		w.add(0, Write{Create: row})
		return w
	}
	row.Envelope().Version = stored.Envelope().Version
	w.add(0, Write{Put: row})
	return w
}

// presence says which zone proxies are there, and has their absences noted.
type presence struct {
	p      *Plan
	r      *table.Reader
	unit   Unit
	writes *Writes
	away   []graph.ProxyKey
}

// entries are the zone proxies of a mesh, or of all, that have ever served.
func (h *presence) entries(doors []graph.ZoneProxy, before []kind.ZoneProxyAddress) (entries []kind.ZoneProxyAddress) {
	for i := range doors {
		d := &doors[i]
		present := h.present(d)
		if entry, ok := entryOf(d, before); ok {
			entry.Healthy = (d.Serves || d.ServesFormer) && !d.Draining && !d.Plaintext && present
			entries = append(entries, entry)
		}
	}
	return entries
}

// present says whether the proxy of a door is there, or its stream is lost for less than the grace.
func (h *presence) present(d *graph.ZoneProxy) bool {
	if d.Instance != "" && h.p.lives(h.r, d.Instance) {
		return true
	}
	h.away = append(h.away, d.Proxy)
	gone, known := h.p.absences.Get(h.r, absence{Unit: h.unit, Proxy: d.Proxy}.key())
	if !known {
		gone = absence{h.unit, d.Proxy, h.r.Now()}
		h.writes.add(0, Write{Local: &gone})
	}
	return !h.r.Past(gone.Since.Add(doorGrace))
}

// forget ends the absences of those that are back, or have no door any more.
func (h *presence) forget() {
	for _, gone := range h.p.absent.List(h.r, h.unit.String()) {
		if !slices.Contains(h.away, gone.Proxy) {
			h.writes.add(0, Write{Local: &absence{Unit: gone.Unit, Proxy: gone.Proxy}})
		}
	}
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

// preferred are the entries of a mesh: the mesh's own, and the others only while none of these is healthy.
func preferred(own, legacy []kind.ZoneProxyAddress) []kind.ZoneProxyAddress {
	if slices.ContainsFunc(own, func(a kind.ZoneProxyAddress) bool { return a.Healthy }) {
		return own
	}
	all := slices.Concat(own, legacy)
	slices.SortStableFunc(all, func(a, b kind.ZoneProxyAddress) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
