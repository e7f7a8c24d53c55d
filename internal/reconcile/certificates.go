package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Kinds of requests about the workload certificates of a mesh: CertificatesKind covers all certificates, which expire
// now and then; NextIdentitiesKind covers the few proxies whose SPIFFE IDs change.
const (
	CertificatesKind   = "certificates"
	NextIdentitiesKind = "next identities"
)

// reconcileCertificates moves the proxies of a mesh to their next SPIFFE IDs and removes expired certificates. A next
// SPIFFE ID is announced first, and clients and permissions accept it. It may be signed once all of them have acked.
// The former SPIFFE ID goes with its last certificate and the connections made with that.
func (p *Plan) reconcileCertificates(r *table.Reader, mesh string, rows []*resource.Object[kind.DataplaneCertificates],
	now time.Time) (steps []Step, requeue time.Time) {
	var announced []*resource.Object[kind.DataplaneCertificates]
	bound := p.identityTimeout(r, mesh)
	for _, row := range rows {
		updated, next := p.nextCertificates(r, row, now)
		if updated != nil {
			steps = append(steps, Step{Put: updated})
		}
		if waits := row.Spec.Next; updated == nil && waits != nil && !waits.Accepted {
			if end := waits.Since.Add(bound); now.Before(end) {
				announced, next = append(announced, row), earliest(next, end)
			} else {
				steps = append(steps, Step{Put: withNextAccepted(row)})
			}
		}
		requeue = earliest(requeue, next)
	}
	if told := p.changingIdentitiesStep(r, mesh); told != nil {
		return append(steps, *told), requeue
	}
	switch {
	case len(announced) == 0:
	case p.servicesHaveIdentities(r, mesh):
		steps = append(steps, Step{AckWait: p.identityAckWait(r, mesh, announced)})
	default:
		requeue = earliest(requeue, now.Add(statusDelay))
	}
	return steps, requeue
}

// changingIdentitiesStep writes the SPIFFE IDs of this zone's workloads that belong to one proxy; nil where they are
// stored already.
func (p *Plan) changingIdentitiesStep(r *table.Reader, mesh string) *Step {
	var workloads [][]string
	for _, row := range p.State.CertificatesChanging.List(r, graph.MeshKey(mesh)) {
		workloads = append(workloads, row.Spec.Aliases()...)
	}
	slices.SortFunc(workloads, slices.Compare)
	workloads = slices.CompactFunc(workloads, slices.Equal)
	row := kind.ChangingIdentitiesList.Make(mesh, p.State.Zone, kind.ChangingIdentities{Workloads: workloads})
	stored, ok := p.State.ChangingIdentities.Find(r, mesh, p.State.Zone)
	switch {
	case ok && len(workloads) == 0:
		gone := stored.Key()
		return &Step{Delete: &gone}
	case len(workloads) == 0 || ok && slices.EqualFunc(stored.Spec.Workloads, workloads, slices.Equal):
		return nil
	}
	return &Step{Put: row}
}

// servicesHaveIdentities returns true where the services of this zone list every SPIFFE ID of their servers.
func (p *Plan) servicesHaveIdentities(r *table.Reader, mesh string) bool {
	return !slices.ContainsFunc(p.zoneServices(r, mesh), func(service *resource.Object[kind.MeshService]) bool {
		_, differs := withIdentities(service, p.facts.Get(r, graph.ServiceKey{Mesh: mesh, Name: service.Name}))
		return differs
	})
}

// zoneServices returns the MeshServices of this zone.
func (p *Plan) zoneServices(r *table.Reader, mesh string) []*resource.Object[kind.MeshService] {
	return slices.DeleteFunc(p.State.ServicesByMesh.List(r, graph.MeshKey(mesh)),
		func(service *resource.Object[kind.MeshService]) bool {
			return p.State.ZoneOf(&service.Meta) != p.State.Zone
		})
}

// nextCertificates returns the wanted row, nil where it equals the stored one, and the time of the next change.
func (p *Plan) nextCertificates(r *table.Reader, row *resource.Object[kind.DataplaneCertificates],
	now time.Time) (updated *resource.Object[kind.DataplaneCertificates], requeue time.Time) {
	kept := unexpired(r, row.Spec.Certificates)
	requeue = r.Deadline()
	next := row.Spec.Next
	if announced := p.State.Announce(r, graph.ProxyKey{Mesh: row.Mesh, Name: row.Name}, now); announced != nil {
		next = announced.Spec.Next
	}
	if len(kept) == 0 {
		next = nil
	}
	if len(kept) == len(row.Spec.Certificates) && next == row.Spec.Next {
		return nil, requeue
	}
	changed := *row
	changed.Spec = kind.DataplaneCertificates{Certificates: kept, Next: next}
	return &changed, requeue
}

// unexpired returns the certificates that a peer may still see: the valid ones, and those of connections that may be
// open.
func unexpired(r *table.Reader, certs []kind.WorkloadCertificate) (kept []kind.WorkloadCertificate) {
	for _, cert := range certs {
		if !r.Past(cert.Until.Add(graph.ConnectionLife)) {
			kept = append(kept, cert)
		}
	}
	return kept
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// identityTimeout returns how long a change of SPIFFE IDs waits for acks: the longest certificate lifetime of the mesh.
func (p *Plan) identityTimeout(r *table.Reader, mesh string) time.Duration {
	var longest kind.Duration
	for _, ca := range p.State.SigningCAsByMesh.List(r, graph.MeshKey(mesh)) {
		longest = max(longest, ca.Spec.Life)
	}
	return timeoutFor(longest)
}

// withNextAccepted returns a copy of the row whose next SPIFFE ID may be signed.
func withNextAccepted(row *resource.Object[kind.DataplaneCertificates]) *resource.Object[kind.DataplaneCertificates] {
	changed := *row
	next := *row.Spec.Next
	next.Accepted = true
	changed.Spec.Next = &next
	return &changed
}

func identityWaitName(mesh string) string { return "the SPIFFE IDs of proxies of the mesh " + mesh }

// maxAwaitedRows is the number of newest rows that a wait checks. A proxy that has acked the newest rows has acked all
// earlier ones.
const maxAwaitedRows = 32

func newestRows[S any](rows []*resource.Object[S]) []resource.Key {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *resource.Object[S]) int {
		return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name))
	})
	var keys []resource.Key
	for _, row := range rows[:min(len(rows), maxAwaitedRows)] {
		keys = append(keys, row.Key())
	}
	return keys
}

// identityAckWait returns a wait until every proxy accepts the announced SPIFFE IDs: the clients of their services and,
// for permissions that match one of them, the proxies of other zones.
func (p *Plan) identityAckWait(r *table.Reader, mesh string,
	announced []*resource.Object[kind.DataplaneCertificates]) *AckWait {
	s := &AckWait{Name: identityWaitName(mesh), Mesh: mesh, AllZones: true, Rows: slices.Concat(
		newestRows(announced), newestRows(p.zoneServices(r, mesh)),
		[]resource.Key{kind.ChangingIdentitiesList.Key(mesh, p.State.Zone)})}
	for _, row := range announced {
		s.Then = append(s.Then, withNextAccepted(row))
	}
	s.Renew = p.acceptedIfStillNext
	return s
}

// acceptedIfStillNext returns the proxy's current row with its next identity accepted, nil where that identity is no
// longer the next one. A renewed certificate changes the row and nothing about the acks of clients. Without this, a
// wait that takes longer than the renewal interval would never succeed.
func (p *Plan) acceptedIfStillNext(r *table.Reader, write resource.Any) resource.Any {
	acked := write.(*resource.Object[kind.DataplaneCertificates])
	row, ok := p.State.Certificates.Find(r, acked.Mesh, acked.Name)
	if !ok || row.Spec.Next == nil || row.Spec.Next.Accepted {
		return nil
	}
	now, then := row.Spec.Next, acked.Spec.Next
	if !now.Same(then.SpiffeIDs) || now.MeshIdentity != then.MeshIdentity || !now.Since.Equal(then.Since.Time) {
		return nil
	}
	return withNextAccepted(row)
}

// identityConverged returns the condition of a MeshIdentity whose next SPIFFE IDs are not accepted everywhere; none
// where all are.
func (p *Plan) identityConverged(r *table.Reader, mesh, meshIdentity string) []kind.Condition {
	waiting, bound := 0, time.Time{}
	for _, row := range p.State.CertificatesChanging.List(r, graph.MeshKey(mesh)) {
		if next := row.Spec.Next; next != nil && !next.Accepted && next.MeshIdentity == meshIdentity {
			waiting++
			bound = earliest(bound, next.Since.Time)
		}
	}
	if waiting == 0 {
		return nil
	}
	return []kind.Condition{{Type: "IdentityConverged", Status: "False", Reason: "IdentityPropagating",
		Message: fmt.Sprintf(
			"%d Dataplanes get certificates of their new SPIFFE IDs once every proxy accepts these, from %s "+
				"at the latest%s",
			waiting, formatTime(bound.Add(p.identityTimeout(r, mesh))), p.pendingText(identityWaitName(mesh)))}}
}
