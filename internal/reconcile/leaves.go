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

// Kinds of units that stand for leaves of a mesh: all of them, of which some expire now and then, and those of
// proxies that change their names, which are few and change at once.
const (
	LeavesUnit = "leaves"
	NamesUnit  = "names"
)

// leaves brings proxies of a mesh to their names, and forgets the leaves that nobody can be shown any
// more. A new name is announced, upon which clients and permissions take it; it may be signed once all of
// them do; the former one goes with its last leaf and the connections that were made with it.
func (p *Plan) leaves(r *table.Reader, mesh string, rows []*resource.Object[kind.DataplaneCertificates], now time.Time) (steps []Step, again time.Time) {
	var announced []*resource.Object[kind.DataplaneCertificates]
	bound := p.patience(r, mesh)
	for _, row := range rows {
		updated, next := p.nextLeaves(r, row, now)
		if updated != nil {
			steps = append(steps, Step{Put: updated})
		}
		if waits := row.Spec.Next; updated == nil && waits != nil && !waits.Accepted {
			if end := waits.Since.Add(bound); now.Before(end) {
				announced, next = append(announced, row), earliest(next, end)
			} else {
				steps = append(steps, Step{Put: signable(row)})
			}
		}
		again = earliest(again, next)
	}
	if told := p.tellNames(r, mesh); told != nil {
		return append(steps, *told), again
	}
	switch {
	case len(announced) == 0:
	case p.servicesTell(r, mesh):
		steps = append(steps, Step{Settle: p.settleNames(r, mesh, announced)})
	default:
		again = earliest(again, now.Add(calmly))
	}
	return steps, again
}

// tellNames writes which names of this zone's workloads stand for each other; nil where that stands there already.
func (p *Plan) tellNames(r *table.Reader, mesh string) *Step {
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

// servicesTell says whether the services of this zone name all under whom their servers are to be taken.
func (p *Plan) servicesTell(r *table.Reader, mesh string) bool {
	return !slices.ContainsFunc(p.zoneServices(r, mesh), func(service *resource.Object[kind.MeshService]) bool {
		_, differs := withIdentities(service, p.facts.Get(r, graph.ServiceKey{Mesh: mesh, Name: service.Name}))
		return differs
	})
}

// zoneServices are the MeshServices of this zone.
func (p *Plan) zoneServices(r *table.Reader, mesh string) []*resource.Object[kind.MeshService] {
	return slices.DeleteFunc(p.State.ServicesByMesh.List(r, graph.MeshKey(mesh)), func(service *resource.Object[kind.MeshService]) bool {
		return p.State.ZoneOf(&service.Meta) != p.State.Zone
	})
}

// nextLeaves is a row as it is to be, nil where it stays, and when that changes by itself.
func (p *Plan) nextLeaves(r *table.Reader, row *resource.Object[kind.DataplaneCertificates], now time.Time) (updated *resource.Object[kind.DataplaneCertificates], again time.Time) {
	kept := counting(r, row.Spec.Certificates)
	again = r.Deadline()
	next := row.Spec.Next
	if announced := p.State.Announce(r, graph.ProxyKey{Mesh: row.Mesh, Name: row.Name}, now); announced != nil {
		next = announced.Spec.Next
	}
	if len(kept) == 0 {
		next = nil
	}
	if len(kept) == len(row.Spec.Certificates) && next == row.Spec.Next {
		return nil, again
	}
	changed := *row
	changed.Spec = kind.DataplaneCertificates{Certificates: kept, Next: next}
	return &changed, again
}

// counting are the leaves by which a proxy can be known still.
func counting(r *table.Reader, leaves []kind.WorkloadCertificate) (kept []kind.WorkloadCertificate) {
	for _, leaf := range leaves {
		if !r.Past(leaf.Until.Add(graph.ConnectionLife)) {
			kept = append(kept, leaf)
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

// patience is how long a step of a mesh's names waits: as long as any leaf is valid.
func (p *Plan) patience(r *table.Reader, mesh string) time.Duration {
	var longest kind.Duration
	for _, ca := range p.State.SigningCAsByMesh.List(r, graph.MeshKey(mesh)) {
		longest = max(longest, ca.Spec.Life)
	}
	return patienceFor(longest)
}

// signable is a row whose next name may be signed.
func signable(row *resource.Object[kind.DataplaneCertificates]) *resource.Object[kind.DataplaneCertificates] {
	changed := *row
	next := *row.Spec.Next
	next.Accepted = true
	changed.Spec.Next = &next
	return &changed
}

func namesTopic(mesh string) string { return "the names of proxies of the mesh " + mesh }

// mostRows is how many rows stand for all: whoever has the newest has those before.
const mostRows = 32

func newest[S any](rows []*resource.Object[S]) []resource.Key {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *resource.Object[S]) int {
		return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name))
	})
	var keys []resource.Key
	for _, row := range rows[:min(len(rows), mostRows)] {
		keys = append(keys, row.Key())
	}
	return keys
}

// settleNames waits until announced names are taken everywhere: by the clients of their services, and where a
// rule names one of them, in other zones too.
func (p *Plan) settleNames(r *table.Reader, mesh string, announced []*resource.Object[kind.DataplaneCertificates]) *Settle {
	s := &Settle{Topic: namesTopic(mesh), Mesh: mesh, Zones: true, Rows: slices.Concat(
		newest(announced), newest(p.zoneServices(r, mesh)), []resource.Key{kind.ChangingIdentitiesList.Key(mesh, p.State.Zone)})}
	for _, row := range announced {
		s.Then = append(s.Then, signable(row))
	}
	s.Renew = p.announcedStill
	return s
}

// announcedStill returns the row of a proxy with its next identity accepted, nil where another one, or none, is announced
// by now. A certificate that was renewed meanwhile changes the row, and nothing about what its clients have acked: where
// certificates are renewed more often than a wait takes, every wait would be in vain.
func (p *Plan) announcedStill(r *table.Reader, write resource.Any) resource.Any {
	acked := write.(*resource.Object[kind.DataplaneCertificates])
	row, ok := p.State.Certificates.Find(r, acked.Mesh, acked.Name)
	if !ok || row.Spec.Next == nil || row.Spec.Next.Accepted {
		return nil
	}
	now, then := row.Spec.Next, acked.Spec.Next
	if !now.Same(then.SpiffeIDs) || now.MeshIdentity != then.MeshIdentity || !now.Since.Equal(then.Since.Time) {
		return nil
	}
	return signable(row)
}

// namesSettled says that proxies wait for a name which a MeshIdentity gives them; nothing where none does.
func (p *Plan) namesSettled(r *table.Reader, mesh, meshIdentity string) []kind.Condition {
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
	return []kind.Condition{{Type: "IdentityConverged", Status: "False", Reason: "IdentityPropagating", Message: fmt.Sprintf(
		"%d Dataplanes get certificates of their new SPIFFE IDs once every proxy takes them under these, from %s at the latest%s",
		waiting, written(bound.Add(p.patience(r, mesh))), p.waitingFor(namesTopic(mesh)))}}
}
