package reconcile

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// reconcileEvicted writes the instance SANs of this zone's evicted proxies, so that servers of every zone deny them. A
// proxy that never held a certificate needs no denial. (Mesh Membership.)
func (p *Plan) reconcileEvicted(r *table.Reader, mesh string, now time.Time) (steps []Step, requeue time.Time) {
	stored, there := p.State.EvictedProxies.Find(r, mesh, p.State.Zone)
	var before []kind.EvictedProxy
	if there {
		before = stored.Spec.Proxies
	}
	wanted, requeue := p.evictedProxies(r, mesh, before, now)
	switch {
	case slices.Equal(wanted, before):
		return nil, requeue
	case len(wanted) == 0:
		gone := stored.Key()
		return []Step{{Delete: &gone}}, requeue
	}
	row := kind.EvictedProxiesList.Make(mesh, p.State.Zone, kind.EvictedProxies{Proxies: wanted})
	if there {
		row.Version = stored.Version
	}
	return []Step{{Put: row}}, requeue
}

// evictedProxies returns the SANs to deny, sorted, and the time when the next one expires.
func (p *Plan) evictedProxies(r *table.Reader, mesh string, before []kind.EvictedProxy,
	now time.Time) (names []kind.EvictedProxy, requeue time.Time) {
	until := map[string]kind.Time{}
	for _, proxy := range before {
		stays, end := p.staysEvicted(r, mesh, proxy, now)
		if stays {
			until[proxy.Name] = proxy.Until
		}
		requeue = earliest(requeue, end)
	}
	if p.State.Membership.Get(r, mesh) != nil {
		for _, row := range p.State.CertificatesByRoot.List(r, graph.MeshKey(mesh)) {
			if p.State.NotAdmittedReason(r, proxyOf(row)) == "" {
				continue
			}
			name := pki.InstanceDNSName(mesh, p.State.Zone, row.Name)
			for _, cert := range row.Spec.Certificates {
				if last := until[name]; cert.Until.After(last.Time) {
					until[name] = cert.Until
				}
			}
		}
	}
	for name, end := range until {
		names = append(names, kind.EvictedProxy{Name: name, Until: end})
	}
	slices.SortFunc(names, func(a, b kind.EvictedProxy) int { return cmp.Compare(a.Name, b.Name) })
	return names, requeue
}

// staysEvicted returns whether an evicted proxy stays denied, and when the denial expires. A proxy without a Dataplane
// can't be admitted again, so its denial lasts until its certificates and connections have ended.
func (p *Plan) staysEvicted(r *table.Reader, mesh string, proxy kind.EvictedProxy, now time.Time) (stays bool,
	end time.Time) {
	name, own := pki.InstanceOf(mesh, p.State.Zone, proxy.Name)
	if !own {
		return false, time.Time{} // the SAN has a former name of this zone
	}
	if dp, ok := p.State.Dataplanes.Find(r, mesh, name); ok {
		return !p.State.Admits(r, dp), time.Time{}
	}
	end = proxy.Until.Add(graph.ConnectionLife)
	if !now.Before(end) {
		return false, time.Time{}
	}
	return true, end
}

func proxyOf(row *resource.Object[kind.DataplaneCertificates]) graph.ProxyKey {
	return graph.ProxyKey{Mesh: row.Mesh, Name: row.Name}
}

// pinMembership pins the membership rules of a mesh and, while the mesh has rules, the admission of each proxy that
// holds a certificate.
func (rc *Reconciler) pinMembership(mesh string, now time.Time) {
	if _, followed := rc.pinnedHolders[mesh]; !followed {
		rc.pinnedHolders[mesh] = map[graph.ProxyKey]bool{}
		rc.observeRules(mesh, rc.plan.State.Membership.Pin(mesh), now)
	}
}

func (rc *Reconciler) unpinMembership(mesh string) {
	if pinned, followed := rc.pinnedHolders[mesh]; followed {
		rc.unpinHolders(pinned)
		delete(rc.pinnedHolders, mesh)
		rc.plan.State.Membership.Unpin(mesh)
	}
}

// observeRules pins the holders of certificates of a mesh that has rules, and unpins them for a mesh without rules.
func (rc *Reconciler) observeRules(mesh string, rules *kind.Membership, now time.Time) {
	rc.enqueueEvicted(mesh, now)
	if rules == nil {
		rc.unpinHolders(rc.pinnedHolders[mesh])
		return
	}
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, row := range rc.plan.State.CertificatesByRoot.List(r, graph.MeshKey(mesh)) {
		rc.pinNotAdmitted(proxyOf(row))
	}
}

func (rc *Reconciler) unpinHolders(pinned map[graph.ProxyKey]bool) {
	for key := range pinned {
		rc.plan.State.NotAdmitted.Unpin(key)
	}
	clear(pinned)
}

// pinNotAdmitted pins the admission of a proxy. It returns the reason for which the proxy is not admitted, empty where
// it is.
func (rc *Reconciler) pinNotAdmitted(key graph.ProxyKey) string {
	if pinned := rc.pinnedHolders[key.Mesh]; !pinned[key] {
		pinned[key] = true
		return rc.plan.State.NotAdmitted.Pin(key)
	}
	reason, _ := rc.plan.State.NotAdmitted.Value(key)
	return reason
}

// observeHolder enqueues the evicted proxies of a mesh when a proxy that is not admitted has received a certificate.
func (rc *Reconciler) observeHolder(key graph.ProxyKey, now time.Time) {
	if _, followed := rc.pinnedHolders[key.Mesh]; !followed {
		return
	}
	rules, _ := rc.plan.State.Membership.Value(key.Mesh)
	if rules != nil && rc.pinNotAdmitted(key) != "" {
		rc.enqueueEvicted(key.Mesh, now)
	}
}

func (rc *Reconciler) unpinHolder(key graph.ProxyKey, now time.Time) {
	if pinned := rc.pinnedHolders[key.Mesh]; pinned[key] {
		delete(pinned, key)
		rc.plan.State.NotAdmitted.Unpin(key)
		rc.enqueueEvicted(key.Mesh, now)
	}
}

func (rc *Reconciler) observeMembership(changes *table.Changes, now time.Time) {
	for mesh, rules := range rc.plan.State.Membership.Changed(changes) {
		rc.observeRules(mesh, rules, now)
	}
	for key := range rc.plan.State.NotAdmitted.Changed(changes) {
		rc.enqueueEvicted(key.Mesh, now)
	}
}

func (rc *Reconciler) enqueueEvicted(mesh string, at time.Time) {
	rc.enqueue(Request{kind.EvictedProxiesList.Name, mesh, ""}, at)
}
