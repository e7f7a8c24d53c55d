package reconcile

import (
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ChangingUnit is the kind of units that stand for all proxies of a mesh that change from plain connections
// to mutual TLS.
const ChangingUnit = "changing"

// plainAtMost is how long a proxy that serves mutual TLS takes connections without it beside, the drain time apart.
const plainAtMost = 30 * time.Second

// changing ends what is taken without TLS once every client has heard that it is served with it, or in time.
func (p *Plan) changing(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	var waiting []*resource.Object[kind.DataplaneListenerStatus]
	s := &Settle{Topic: "mutual TLS of proxies of the mesh " + mesh, Mesh: mesh, Everybody: true}
	for _, row := range p.State.ListenerStatusesChanging.List(r, graph.MeshKey(mesh)) {
		changed, end := p.secured(row)
		if !now.Before(end) {
			steps = append(steps, Step{Put: changed})
			continue
		}
		again = earliest(again, end)
		waiting, s.Then = append(waiting, row), append(s.Then, changed)
	}
	if len(waiting) > 0 {
		s.Rows = newest(waiting)
		steps = append(steps, Step{Settle: s})
	}
	return steps, again
}

// secured is a row that takes mutual TLS alone, and when that must be.
func (p *Plan) secured(row *resource.Object[kind.DataplaneListenerStatus]) (changed *resource.Object[kind.DataplaneListenerStatus], end time.Time) {
	copied := *row
	copied.Spec.Inbounds = slices.Clone(row.Spec.Inbounds)
	for i := range copied.Spec.Inbounds {
		in := &copied.Spec.Inbounds[i]
		if !in.AlsoPlaintext.IsZero() {
			end = earliest(end, in.AlsoPlaintext.Add(plainAtMost+p.DrainTime))
			in.AlsoPlaintext = kind.Time{}
		}
	}
	return &copied, end
}
