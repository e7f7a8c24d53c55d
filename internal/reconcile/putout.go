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

// putOut keeps the certificate names of the proxies of this zone that a mesh admits no more, so that servers of
// every zone refuse them. One that never held a certificate is known to nobody and needs no denial.
// (Mesh Membership.)
func (p *Plan) putOut(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	stored, there := p.State.EvictedProxies.Find(r, mesh, p.State.Zone)
	var before []kind.EvictedProxy
	if there {
		before = stored.Spec.Proxies
	}
	wanted, again := p.denied(r, mesh, before, now)
	switch {
	case slices.Equal(wanted, before):
		return nil, again
	case len(wanted) == 0:
		gone := stored.Key()
		return []Step{{Delete: &gone}}, again
	}
	row := kind.EvictedProxiesList.Make(mesh, p.State.Zone, kind.EvictedProxies{Proxies: wanted})
	if there {
		row.Version = stored.Version
	}
	return []Step{{Put: row}}, again
}

// denied are the names that are to be refused, sorted, and when the next one ends by itself.
func (p *Plan) denied(r *table.Reader, mesh string, before []kind.EvictedProxy, now time.Time) (names []kind.EvictedProxy, again time.Time) {
	until := map[string]kind.Time{}
	for _, proxy := range before {
		stays, end := p.staysOut(r, mesh, proxy, now)
		if stays {
			until[proxy.Name] = proxy.Until
		}
		again = earliest(again, end)
	}
	if p.State.Membership.Get(r, mesh) != nil {
		for _, row := range p.State.CertificatesByRoot.List(r, graph.MeshKey(mesh)) {
			if p.State.NotAdmittedReason(r, proxyOf(row)) == "" {
				continue
			}
			name := pki.InstanceDNSName(mesh, p.State.Zone, row.Name)
			for _, leaf := range row.Spec.Certificates {
				if last := until[name]; leaf.Until.After(last.Time) {
					until[name] = leaf.Until
				}
			}
		}
	}
	for name, end := range until {
		names = append(names, kind.EvictedProxy{Name: name, Until: end})
	}
	slices.SortFunc(names, func(a, b kind.EvictedProxy) int { return cmp.Compare(a.Name, b.Name) })
	return names, again
}

// staysOut says whether a proxy that was put out is to be refused still, and when that ends by itself: of one
// whose Dataplane has gone, nobody will say any more that it is admitted.
func (p *Plan) staysOut(r *table.Reader, mesh string, proxy kind.EvictedProxy, now time.Time) (stays bool, end time.Time) {
	name, own := pki.InstanceOf(mesh, p.State.Zone, proxy.Name)
	if !own {
		return false, time.Time{} // of a name that this zone had
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

// followMembership follows who may be in a mesh and, while there are rules, whether they admit each proxy that
// holds a certificate.
func (rc *Reconciler) followMembership(mesh string, now time.Time) {
	if _, followed := rc.pinnedRefusals[mesh]; !followed {
		rc.pinnedRefusals[mesh] = map[graph.ProxyKey]bool{}
		rc.judge(mesh, rc.plan.State.Membership.Pin(mesh), now)
	}
}

func (rc *Reconciler) forgetMembership(mesh string) {
	if pinned, followed := rc.pinnedRefusals[mesh]; followed {
		rc.unjudge(pinned)
		delete(rc.pinnedRefusals, mesh)
		rc.plan.State.Membership.Unpin(mesh)
	}
}

// judge follows the holders of certificates under the rules of a mesh, or none where it has no rules any more.
func (rc *Reconciler) judge(mesh string, rules *kind.Membership, now time.Time) {
	rc.askPutOut(mesh, now)
	if rules == nil {
		rc.unjudge(rc.pinnedRefusals[mesh])
		return
	}
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, row := range rc.plan.State.CertificatesByRoot.List(r, graph.MeshKey(mesh)) {
		rc.followRefusal(proxyOf(row))
	}
}

func (rc *Reconciler) unjudge(pinned map[graph.ProxyKey]bool) {
	for key := range pinned {
		rc.plan.State.NotAdmitted.Unpin(key)
	}
	clear(pinned)
}

// followRefusal follows whether a proxy is admitted, and answers why not, if so.
func (rc *Reconciler) followRefusal(key graph.ProxyKey) string {
	if pinned := rc.pinnedRefusals[key.Mesh]; !pinned[key] {
		pinned[key] = true
		return rc.plan.State.NotAdmitted.Pin(key)
	}
	refusal, _ := rc.plan.State.NotAdmitted.Value(key)
	return refusal
}

// observeHolder looks at a proxy that was given a certificate.
func (rc *Reconciler) observeHolder(key graph.ProxyKey, now time.Time) {
	if _, followed := rc.pinnedRefusals[key.Mesh]; !followed {
		return
	}
	rules, _ := rc.plan.State.Membership.Value(key.Mesh)
	if rules != nil && rc.followRefusal(key) != "" {
		rc.askPutOut(key.Mesh, now)
	}
}

func (rc *Reconciler) forgetHolder(key graph.ProxyKey, now time.Time) {
	if pinned := rc.pinnedRefusals[key.Mesh]; pinned[key] {
		delete(pinned, key)
		rc.plan.State.NotAdmitted.Unpin(key)
		rc.askPutOut(key.Mesh, now)
	}
}

func (rc *Reconciler) observeMembership(changes *table.Changes, now time.Time) {
	for mesh, rules := range rc.plan.State.Membership.Changed(changes) {
		rc.judge(mesh, rules, now)
	}
	for key := range rc.plan.State.NotAdmitted.Changed(changes) {
		rc.askPutOut(key.Mesh, now)
	}
}

func (rc *Reconciler) askPutOut(mesh string, at time.Time) {
	rc.ask(Unit{kind.EvictedProxiesList.Name, mesh, ""}, at)
}
