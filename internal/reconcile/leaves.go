package reconcile

import (
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// LeavesUnit is the kind of units that stand for all leaves of a mesh.
const LeavesUnit = "leaves"

// leaves forgets the leaves of a mesh that nobody can be shown any more.
func (p *Plan) leaves(r *table.Reader, mesh string, now time.Time) (steps []Step, again time.Time) {
	for _, row := range p.State.LeavesByRoot.List(r, graph.MeshKey(mesh)) {
		kept := slices.DeleteFunc(slices.Clone(row.Spec.Leaves), func(leaf kind.HeldLeaf) bool {
			end := leaf.Until.Add(graph.ConnectionLife)
			if now.Before(end) && (again.IsZero() || end.Before(again)) {
				again = end
			}
			return !now.Before(end)
		})
		if len(kept) < len(row.Spec.Leaves) {
			steps = append(steps, Step{Put: withLeaves(row, kept)})
		}
	}
	return steps, again
}

func withLeaves(row *resource.Object[kind.DataplaneLeaves], leaves []kind.HeldLeaf) *resource.Object[kind.DataplaneLeaves] {
	updated := *row
	updated.Spec.Leaves = leaves
	return &updated
}
