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

// plainAtMost is how long a proxy that serves mutual TLS takes connections without it beside.
const plainAtMost = 30 * time.Second

// plainBegun is how long a connection without TLS may have been there, by whose first bytes its listener has not told
// yet that it is one: it would be refused as soon as these are refused. It is longer than listeners look.
const plainBegun = 2 * time.Second

// changing ends what is taken without TLS once every client has heard that it is served with it, or in time.
func (p *Plan) changing(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	var waiting []*resource.Object[kind.DataplaneServing]
	s := &Settle{Topic: "mutual TLS of proxies of the mesh " + mesh, Mesh: mesh, Everybody: true, After: plainBegun}
	for _, row := range p.State.ServingsChanging.List(r, graph.MeshKey(mesh)) {
		changed, end := secured(row)
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
func secured(row *resource.Object[kind.DataplaneServing]) (changed *resource.Object[kind.DataplaneServing], end time.Time) {
	copied := *row
	copied.Spec.Inbounds = slices.Clone(row.Spec.Inbounds)
	for i := range copied.Spec.Inbounds {
		in := &copied.Spec.Inbounds[i]
		if !in.AlsoPlain.IsZero() {
			end = earliest(end, in.AlsoPlain.Add(plainAtMost))
			in.AlsoPlain = kind.Time{}
		}
	}
	return &copied, end
}
