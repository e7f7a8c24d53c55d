package reconcile

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// evicted writes the instance SANs of this zone's evicted proxies, so that servers of every zone deny them. (Mesh
// Membership.)
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

// notAdmittedIn returns the proxies of a shard that may have certificates and that their mesh does not admit.
func (p *Plan) notAdmittedIn(r *table.Reader, shard state.Shard) (evicted []kind.EvictedProxy) {
	if shard.Number < state.MeshParts {
		evicted = p.withoutRecord(r, shard.Mesh, uint32(shard.Number))
	}
	for _, row := range p.State.Tables.CertificatesByShard.List(r, shard.String()) {
		if p.State.Identity.NotAdmittedReason(r, proxyOf(row)) == "" {
			continue
		}
		proxy := kind.EvictedProxy{Name: pki.InstanceDNSName(row.Mesh, p.State.Tables.Zone, row.Name)}
		for _, cert := range row.Spec.Certificates {
			if until := p.State.Tables.ValidUntil(r, cert.Until); until.After(proxy.Until.Time) {
				proxy.Until = until
			}
		}
		if !proxy.Until.IsZero() {
			evicted = append(evicted, proxy)
		}
	}
	return evicted
}

// withoutRecord returns the proxies in a part of a mesh that its rules do not admit and of whose certificates there is
// no record. The record of a Dataplane ends with it, so one that was written again may have those of the former one,
// which end at the latest when the longest life in the mesh has passed since it was written.
func (p *Plan) withoutRecord(r *table.Reader, mesh string, part uint32) (evicted []kind.EvictedProxy) {
	zone, life := p.State.Tables.Zone, p.longestLife(r, mesh)
	if zone == "" || life == 0 {
		return nil
	}
	for _, dp := range p.State.Tables.DataplanesBySelector.List(r, state.PartKey(mesh, part)) {
		row, recorded := p.State.Tables.Certificates.Find(r, dp.Mesh, dp.Name)
		if recorded && len(row.Spec.Certificates) > 0 || p.State.Tables.ZoneOf(&dp.Meta) != zone ||
			p.State.Identity.Admits(r, dp) {
			continue
		}
		evicted = append(evicted, kind.EvictedProxy{Name: pki.InstanceDNSName(mesh, zone, dp.Name),
			Until: kind.Time{Time: dp.Created.Add(life)}})
	}
	return evicted
}

// longestLife returns the longest validity of the certificates of a mesh; 0: it has none.
func (p *Plan) longestLife(r *table.Reader, mesh string) (life time.Duration) {
	for _, identity := range p.State.Tables.IdentitiesByMesh.List(r, state.MeshKey(mesh)) {
		life = max(life, time.Duration(identity.Spec.CertificateLife()))
	}
	if o, ok := p.State.Tables.Meshes.Find(r, "", mesh); ok && o.Spec.MTLS != nil {
		for i := range o.Spec.MTLS.Backends {
			life = max(life, o.Spec.MTLS.Backends[i].CertificateLife())
		}
	}
	return life
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
	return !r.Past(p.State.Tables.ValidUntil(r, proxy.Until).Add(kind.ConnectionLife))
}

func proxyOf(row *resource.Object[kind.DataplaneCertificates]) state.ProxyKey {
	return state.ProxyKey{Mesh: row.Mesh, Name: row.Name}
}
