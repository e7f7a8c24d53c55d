package reconcile

import (
	"cmp"
	"slices"

	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// evicted writes the instance SANs of this zone's evicted proxies, so that servers of every zone deny them. A proxy
// that never held a certificate needs no denial. (Mesh Membership.)
func (p *Plan) evicted(r *table.Reader, u Request) (w Writes) {
	stored, ok := p.State.Tables.EvictedProxies.Find(r, u.Mesh, p.State.Tables.Zone)
	var before []kind.EvictedProxy
	if ok {
		before = stored.Spec.Proxies
	}
	wanted := p.evictedProxies(r, u.Mesh, before)
	switch {
	case len(wanted) > 0:
		putIfDifferent(&w, 0, stored,
			kind.EvictedProxiesList.Make(u.Mesh, p.State.Tables.Zone, kind.EvictedProxies{Proxies: wanted}))
	case ok:
		w.addWrite(0, Write{Delete: stored})
	}
	return w
}

// evictedProxies returns the SANs to deny, sorted.
func (p *Plan) evictedProxies(r *table.Reader, mesh string, before []kind.EvictedProxy) (names []kind.EvictedProxy) {
	until := map[string]kind.Time{}
	for _, proxy := range before {
		if p.staysEvicted(r, mesh, proxy) {
			until[proxy.Name] = proxy.Until
		}
	}
	if p.State.Identity.Membership.Get(r, mesh) != nil {
		for n := range state.Shards {
			for _, proxy := range p.notAdmitted.Get(r, state.Shard{Mesh: mesh, Number: n}) {
				if proxy.Until.After(until[proxy.Name].Time) {
					until[proxy.Name] = proxy.Until
				}
			}
		}
	}
	for name, end := range until {
		names = append(names, kind.EvictedProxy{Name: name, Until: end})
	}
	slices.SortFunc(names, func(a, b kind.EvictedProxy) int { return cmp.Compare(a.Name, b.Name) })
	return names
}

// notAdmittedIn returns the proxies of a shard that have certificates and that the rules of their mesh do not admit.
func (p *Plan) notAdmittedIn(r *table.Reader, shard state.Shard) (evicted []kind.EvictedProxy) {
	for _, row := range p.State.Tables.CertificatesByShard.List(r, shard.String()) {
		if p.State.Identity.NotAdmittedReason(r, proxyOf(row)) == "" {
			continue
		}
		proxy := kind.EvictedProxy{Name: pki.InstanceDNSName(row.Mesh, p.State.Tables.Zone, row.Name)}
		for _, cert := range row.Spec.Certificates {
			if cert.Until.After(proxy.Until.Time) {
				proxy.Until = cert.Until
			}
		}
		if !proxy.Until.IsZero() {
			evicted = append(evicted, proxy)
		}
	}
	return evicted
}

// staysEvicted returns whether an evicted proxy stays denied. A proxy without a Dataplane can't be admitted again, so
// its denial lasts until its certificates and connections have ended.
func (p *Plan) staysEvicted(r *table.Reader, mesh string, proxy kind.EvictedProxy) bool {
	name, own := pki.InstanceOf(mesh, p.State.Tables.Zone, proxy.Name)
	if !own {
		return false // the SAN has a former name of this zone
	}
	if dp, ok := p.State.Tables.Dataplanes.Find(r, mesh, name); ok {
		return !p.State.Identity.Admits(r, dp)
	}
	return !r.Past(proxy.Until.Add(identity.ConnectionLife))
}

func proxyOf(row *resource.Object[kind.DataplaneCertificates]) state.ProxyKey {
	return state.ProxyKey{Mesh: row.Mesh, Name: row.Name}
}
