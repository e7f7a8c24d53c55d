package reconcile

import (
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PlaintextKind is the kind of requests for the proxies of a mesh that change from plaintext to mutual TLS.
const PlaintextKind = "plaintext"

// plaintextTimeout is the longest time, in addition to the drain time, for which a proxy accepts plaintext beside
// mutual TLS.
const plaintextTimeout = 30 * time.Second

// reconcilePlaintext stops plaintext at changing proxies once every client has acked that they serve mutual TLS, and
// after plaintextTimeout at the latest.
func (p *Plan) reconcilePlaintext(r *table.Reader, mesh string, now time.Time) (steps []Step, requeue time.Time) {
	var waiting []*resource.Object[kind.DataplaneListenerStatus]
	s := &AckWait{Name: "mutual TLS of proxies of the mesh " + mesh, Mesh: mesh, AllProxies: true}
	for _, row := range p.State.ListenerStatusesChanging.List(r, graph.MeshKey(mesh)) {
		changed, end := p.withoutPlaintext(row)
		if !now.Before(end) {
			steps = append(steps, Step{Put: changed})
			continue
		}
		requeue = earliest(requeue, end)
		waiting, s.Then = append(waiting, row), append(s.Then, changed)
	}
	if len(waiting) > 0 {
		s.Rows = newestRows(waiting)
		steps = append(steps, Step{AckWait: s})
	}
	return steps, requeue
}

// withoutPlaintext returns a copy of the row that accepts mutual TLS only, and the deadline of that change.
func (p *Plan) withoutPlaintext(row *resource.Object[kind.DataplaneListenerStatus]) (
	changed *resource.Object[kind.DataplaneListenerStatus], end time.Time) {
	copied := *row
	copied.Spec.Inbounds = slices.Clone(row.Spec.Inbounds)
	for i := range copied.Spec.Inbounds {
		in := &copied.Spec.Inbounds[i]
		if !in.AlsoPlaintext.IsZero() {
			end = earliest(end, in.AlsoPlaintext.Add(plaintextTimeout+p.DrainTime))
			in.AlsoPlaintext = kind.Time{}
		}
	}
	return &copied, end
}
