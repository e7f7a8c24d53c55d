package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/internal/barrier"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

func identityWaitName(mesh string) string { return "the SPIFFE IDs of proxies of the mesh " + mesh }

// certificates moves a proxy to its next SPIFFE ID and removes expired certificates. A next SPIFFE ID is announced
// first, and clients and permissions accept it. It may be signed once all of them have acked, and where some have not,
// once the certificates that they had have expired. The former SPIFFE ID goes with its last certificate and the
// connections made with that.
func (p *Plan) certificates(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.Certificates.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	kept := p.unexpired(r, row.Spec.Certificates)
	next := row.Spec.Next
	if announced := p.State.Identity.WithNextIDs(r, proxyOf(row), r.Now()); announced != nil {
		next = announced.Spec.Next
	}
	switch {
	case len(kept) == 0:
		next = nil
	case next == nil || next != row.Spec.Next || next.Accepted:
	case r.Past(p.formerExpired(r, next.Since.Add(p.identityTimeout(r, u.Mesh)))),
		p.Acks.IsAcked(r, identityWaitName(u.Mesh), nextState(row)):
		accepted := *next
		accepted.Accepted = true
		next = &accepted
	}
	if len(kept) == len(row.Spec.Certificates) && next == row.Spec.Next {
		return w
	}
	changed := *row
	changed.Spec = kind.DataplaneCertificates{Certificates: kept, Next: next}
	w.addWrite(servingDelay, Write{Put: &changed})
	return w
}

// nextState returns the state of a proxy's next SPIFFE ID. A renewed certificate changes the row and nothing about the
// acks of clients, so the state does not contain the row's version: a wait that takes longer than the renewal interval
// would never succeed.
func nextState(row *resource.Object[kind.DataplaneCertificates]) string {
	next := row.Spec.Next
	return strings.Join(append([]string{row.Name, next.MeshIdentity, strconv.FormatInt(next.Since.UnixNano(), 10)},
		next.List()...), " ")
}

// announced are the proxies of a shard whose next SPIFFE IDs are announced and not accepted yet.
type announced struct {
	rows   []*resource.Object[kind.DataplaneCertificates]
	states []string // of the rows
}

func (a announced) equal(b announced) bool { return slices.Equal(a.rows, b.rows) }

func (p *Plan) announcedIn(r *table.Reader, shard state.Shard) (a announced) {
	for _, row := range p.State.Tables.CertificatesChanging.List(r, shard.String()) {
		if row.Spec.Next != nil && !row.Spec.Next.Accepted {
			a.rows, a.states = append(a.rows, row), append(a.states, nextState(row))
		}
	}
	return a
}

// announcedOf returns the announced proxies of a mesh. A changed certificate computes the states of one shard.
func (p *Plan) announcedOf(r *table.Reader, mesh string) (all announced) {
	if !p.State.Identity.Changing.Get(r, mesh) {
		return all
	}
	for n := range state.Shards {
		a := p.announced.Get(r, state.Shard{Mesh: mesh, Number: n})
		all.rows, all.states = append(all.rows, a.rows...), append(all.states, a.states...)
	}
	return all
}

// changingIdentities writes the SPIFFE IDs of this zone's workloads that belong to one proxy. Once they and the
// identities of services are stored, it states that every proxy must accept the announced SPIFFE IDs: the clients of
// their services and, for permissions that match one of them, the proxies of other zones.
func (p *Plan) changingIdentities(r *table.Reader, u Request) (w Writes) {
	workloads := p.State.Identity.Aliases.Get(r, u.Mesh)
	stored, ok := p.State.Tables.ChangingIdentities.Find(r, u.Mesh, p.State.Tables.Zone)
	switch {
	case len(workloads) == 0 && ok:
		w.addWrite(servingDelay, Write{Delete: stored})
	case len(workloads) > 0 && (!ok || !slices.EqualFunc(stored.Spec.Workloads, workloads, slices.Equal)):
		putIfDifferent(&w, servingDelay, stored, kind.ChangingIdentitiesList.Make(u.Mesh, p.State.Tables.Zone,
			kind.ChangingIdentities{Workloads: workloads}))
	}
	if announced := p.announcedOf(r, u.Mesh); len(announced.rows) > 0 {
		w.Wait = p.identityWait(r, u.Mesh, announced)
		w.Wait.Incomplete = len(w.Do) > 0 || !p.servicesHaveIdentities(r, u.Mesh)
	}
	return w
}

func (p *Plan) identityWait(r *table.Reader, mesh string, announced announced) *barrier.Condition {
	c := &barrier.Condition{Name: identityWaitName(mesh), Mesh: mesh, States: announced.states,
		Rows: slices.Concat(newestRows(announced.rows), newestRows(p.zoneServices(r, mesh)),
			[]resource.Key{kind.ChangingIdentitiesList.Key(mesh, p.State.Tables.Zone)})}
	c.ZoneRows = p.syncedRows(c.Rows)
	return c
}

// servicesHaveIdentities returns true where the services of this zone list every SPIFFE ID of their servers.
func (p *Plan) servicesHaveIdentities(r *table.Reader, mesh string) bool {
	return !slices.ContainsFunc(p.zoneServices(r, mesh), func(service *resource.Object[kind.MeshService]) bool {
		_, differs := withIdentities(service, p.facts.Get(r, state.ServiceKey{Mesh: mesh, Name: service.Name}))
		return differs
	})
}

// zoneServices returns the MeshServices of this zone.
func (p *Plan) zoneServices(r *table.Reader, mesh string) []*resource.Object[kind.MeshService] {
	return slices.DeleteFunc(p.State.Tables.ServicesByMesh.List(r, state.MeshKey(mesh)),
		func(service *resource.Object[kind.MeshService]) bool {
			return p.State.Tables.ZoneOf(&service.Meta) != p.State.Tables.Zone
		})
}

// unexpired returns the certificates that a peer may still see: the valid ones, and those of connections that may be
// open.
func (p *Plan) unexpired(r *table.Reader, certs []kind.WorkloadCertificate) (kept []kind.WorkloadCertificate) {
	for _, cert := range certs {
		if !r.Past(p.State.Tables.ValidUntil(r, cert.Until).Add(kind.ConnectionLife)) {
			kept = append(kept, cert)
		}
	}
	return kept
}

// formerExpired returns when a step goes on although proxies have not acked the one before, from the time at which the
// certificates that are recorded have expired.
func (p *Plan) formerExpired(r *table.Reader, recorded time.Time) time.Time {
	return p.State.Tables.ValidUntil(r, kind.Time{Time: recorded}).Time
}

// identityTimeout returns how long a change of SPIFFE IDs waits for acks: the longest certificate lifetime of the mesh.
func (p *Plan) identityTimeout(r *table.Reader, mesh string) time.Duration {
	var longest kind.Duration
	for _, ca := range p.State.Tables.SigningCAsByMesh.List(r, state.MeshKey(mesh)) {
		longest = max(longest, ca.Spec.Life)
	}
	return timeoutFor(longest)
}

// identityConverged returns the condition of a MeshIdentity whose next SPIFFE IDs are not accepted everywhere; none
// where all are.
func (p *Plan) identityConverged(r *table.Reader, mesh, meshIdentity string) []kind.Condition {
	waiting, bound := 0, time.Time{}
	for _, row := range p.announcedOf(r, mesh).rows {
		if next := row.Spec.Next; next.MeshIdentity == meshIdentity {
			waiting++
			bound = wait.Earliest(bound, next.Since.Time)
		}
	}
	if waiting == 0 {
		return nil
	}
	return []kind.Condition{{Type: "IdentityConverged", Status: "False", Reason: "IdentityPropagating",
		Message: fmt.Sprintf(
			"%d Dataplanes get certificates of their new SPIFFE IDs once every proxy accepts these, from %s "+
				"at the latest%s",
			waiting, formatTime(p.formerExpired(r, bound.Add(p.identityTimeout(r, mesh)))),
			p.pendingText(r, identityWaitName(mesh)))}}
}
