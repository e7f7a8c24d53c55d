package reconcile

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/kind"
	"weft/resource"
)

// streamGrace is how long a zone proxy without a stream counts as present. A restarted control plane or a broken
// connection is no evidence that the proxy has stopped accepting connections.
const streamGrace = 15 * time.Second

// absence is a zone proxy without a stream, with the time when this instance noticed. It is a local row of one run:
// after a restart a zone proxy has the whole grace again. The end of the grace is stored with its entry, which is
// neither healthy nor draining: such a proxy has no grace again, and is absent until its stream returns.
type absence struct {
	Request Request // the addresses that have the proxy as an entry
	Proxy   state.ProxyKey
	Since   time.Time // zero: the proxy is present or deleted
}

func (a absence) key() string { return a.Request.String() + " " + a.Proxy.String() }

// store returns a function that puts the absence into the table, or removes it where Since is zero.
func (a *absence) store(p *Plan) func(*table.Tx) {
	return func(tx *table.Tx) {
		if a.Since.IsZero() {
			p.absences.Delete(tx, a.key())
		} else {
			p.absences.Put(tx, *a)
		}
	}
}

// removeLocalRows removes the absences and failures of an earlier run of this instance.
func (p *Plan) removeLocalRows(tx *table.Tx) {
	for f := range p.failures.All(p.State.Tables.DB.Snapshot()) {
		p.failures.Delete(tx, f.Request.String())
	}
	for gone := range p.absences.All(p.State.Tables.DB.Snapshot()) {
		p.absences.Delete(tx, gone.key())
	}
}

// zoneProxyRole is ingress, through which other zones connect, or egress, through which the proxies of this zone
// connect to others. Each role has one row for each mesh, with the addresses of its zone proxies.
type zoneProxyRole struct {
	proxies table.Derived[string, []zoneproxy.Proxy]
	stored  func(r *table.Reader, mesh string) (entries []kind.ZoneProxyAddress, row resource.Any)
	newRow  func(mesh string, entries []kind.ZoneProxyAddress) resource.Any
	// keepRows makes the row of a mesh keep the value of its Request.
	keepRows func(*family)
}

// zoneProxyRoles returns the roles by the kind of their rows.
func zoneProxyRoles(s *graph.State) map[string]*zoneProxyRole {
	return map[string]*zoneProxyRole{
		kind.MeshZoneAddresses.Name: newZoneProxyRole(
			s.Tables.Zone,
			kind.MeshZoneAddresses,
			s.Tables.ZoneAddresses,
			s.ZoneProxies.IngressProxies,
			func(row *kind.MeshZoneAddress) *[]kind.ZoneProxyAddress { return &row.Ingresses },
		),
		kind.MeshEgressAddresses.Name: newZoneProxyRole(
			s.Tables.Zone,
			kind.MeshEgressAddresses,
			s.Tables.EgressAddresses,
			s.ZoneProxies.EgressProxies,
			func(row *kind.MeshEgressAddress) *[]kind.ZoneProxyAddress { return &row.Egresses },
		),
	}
}

func newZoneProxyRole[S any](zone string, k *resource.Kind[S], rows state.Rows[S],
	proxies table.Derived[string, []zoneproxy.Proxy], entriesOf func(*S) *[]kind.ZoneProxyAddress) *zoneProxyRole {
	return &zoneProxyRole{
		proxies: proxies,
		stored: func(r *table.Reader, mesh string) ([]kind.ZoneProxyAddress, resource.Any) {
			row, ok := rows.Find(r, mesh, zone)
			if !ok {
				return nil, nil
			}
			return *entriesOf(&row.Spec), row
		},
		newRow: func(mesh string, entries []kind.ZoneProxyAddress) resource.Any {
			var spec S
			*entriesOf(&spec) = entries
			return k.Make(mesh, zone, spec)
		},
		keepRows: func(f *family) {
			table.KeepFor(rows, f.Derived, func(o *resource.Object[S]) []Request {
				if o.Name != zone {
					return nil
				}
				return []Request{{k.Name, o.Mesh, ""}}
			})
		},
	}
}

// address writes the addresses of the zone proxies of one role for a mesh of this zone. These are the mesh's own zone
// proxies, and the legacy ones that serve every mesh where no own one is healthy. An entry stays for as long as its
// proxy exists, whatever its health: the last ingress of a zone is dialed although it fails. (Mesh Scoped Zone Ingress
// and Zone Egress.)
func (p *Plan) address(r *table.Reader, g *zoneProxyRole, u Request) (w Writes) {
	before, stored := g.stored(r, u.Mesh)
	here := presence{p: p, r: r, request: u, writes: &w}
	var own, legacy []kind.ZoneProxyAddress
	if _, ok := p.State.Tables.Meshes.Find(r, "", u.Mesh); ok {
		own = here.entries(g.proxies.Get(r, u.Mesh), before)
		legacy = here.entries(g.proxies.Get(r, ""), before)
	}
	here.endAbsences()
	wanted := preferred(own, legacy)
	switch {
	case slices.Equal(wanted, before):
		return w
	case len(wanted) == 0:
		w.addWrite(0, Write{Delete: stored})
		return w
	}
	row := g.newRow(u.Mesh, wanted)
	row.Envelope().Labels = map[string]string{kind.ZoneLabel: p.State.Tables.Zone, kind.OriginLabel: kind.OriginZone}
	if stored == nil {
		w.addWrite(0, Write{Create: row})
		return w
	}
	row.Envelope().Version = stored.Envelope().Version
	w.addWrite(0, Write{Put: row})
	return w
}

// presence decides which zone proxies are present, and adds writes for the absences that begin or end.
type presence struct {
	p       *Plan
	r       *table.Reader
	request Request
	writes  *Writes
	absent  []state.ProxyKey
}

// entries returns the addresses of the zone proxies that are or have been serving.
func (h *presence) entries(proxies []zoneproxy.Proxy,
	before []kind.ZoneProxyAddress) (entries []kind.ZoneProxyAddress) {
	for i := range proxies {
		d := &proxies[i]
		present := h.present(d, isKnownAbsent(d, before))
		if entry, ok := entryOf(d, before); ok {
			serves := (d.Serves || d.ServesFormer) && !d.Plaintext && present
			entry.Healthy, entry.Draining = serves && !d.Draining, serves && d.Draining
			entries = append(entries, entry)
		}
	}
	return entries
}

// present returns true while the proxy has a stream, and for streamGrace after its loss unless it is known as absent.
func (h *presence) present(d *zoneproxy.Proxy, knownAbsent bool) bool {
	if d.Instance != "" && h.p.lives(h.r, d.Instance) {
		return true
	}
	if knownAbsent {
		return false
	}
	h.absent = append(h.absent, d.Proxy)
	gone, known := h.p.absences.Get(h.r, absence{Request: h.request, Proxy: d.Proxy}.key())
	if !known {
		gone = absence{h.request, d.Proxy, h.r.Now()}
		h.writes.addWrite(0, Write{Local: &gone})
	}
	return !h.r.Past(gone.Since.Add(streamGrace))
}

// endAbsences removes the absences of proxies that are present again or deleted.
func (h *presence) endAbsences() {
	for _, gone := range h.p.absencesByRequest.List(h.r, h.request.String()) {
		if !slices.Contains(h.absent, gone.Proxy) {
			h.writes.addWrite(0, Write{Local: &absence{Request: gone.Request, Proxy: gone.Proxy}})
		}
	}
}

// entryOf returns the current address of a serving zone proxy, or its former entry until it serves; false where it has
// never served.
func entryOf(d *zoneproxy.Proxy, before []kind.ZoneProxyAddress) (kind.ZoneProxyAddress, bool) {
	if d.Serves {
		return kind.ZoneProxyAddress{Name: d.Proxy.Name, Address: d.Address, Port: d.Port, Legacy: isLegacy(d)}, true
	}
	if i := indexOf(d, before); i >= 0 {
		return before[i], true
	}
	return kind.ZoneProxyAddress{}, false
}

// isKnownAbsent reports whether a zone proxy without a stream is absent by its former entry.
func isKnownAbsent(d *zoneproxy.Proxy, before []kind.ZoneProxyAddress) bool {
	i := indexOf(d, before)
	return i >= 0 && !before[i].Healthy && !before[i].Draining
}

func indexOf(d *zoneproxy.Proxy, entries []kind.ZoneProxyAddress) int {
	return slices.IndexFunc(entries, func(a kind.ZoneProxyAddress) bool {
		return a.Name == d.Proxy.Name && a.Legacy == isLegacy(d)
	})
}

func isLegacy(d *zoneproxy.Proxy) bool { return d.Proxy.Mesh == "" }

// preferred returns the mesh's own entries where one of them is healthy, and otherwise the legacy entries as well.
func preferred(own, legacy []kind.ZoneProxyAddress) []kind.ZoneProxyAddress {
	if slices.ContainsFunc(own, func(a kind.ZoneProxyAddress) bool { return a.Healthy }) {
		return own
	}
	all := slices.Concat(own, legacy)
	slices.SortStableFunc(all, func(a, b kind.ZoneProxyAddress) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
