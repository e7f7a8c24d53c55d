package push

import (
	"slices"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rejections are the changes of a batch to the rejected versions of modified resources.
type rejections struct {
	state   *graph.State
	added   []state.PatchRejection
	removed []string // versions
}

// newRejections returns the rejections that the insights of a batch have, and those that end since their policies are
// written or removed in it.
func newRejections(g *graph.State, before *table.Reader, b *mirror.Batch) *rejections {
	rs := &rejections{state: g}
	for _, o := range b.Put {
		if insight, ok := o.(*resource.Object[kind.DataplaneInsight]); ok {
			rs.add(insight)
		}
		rs.end(before, o.Key())
	}
	for _, key := range b.Removed {
		rs.end(before, key)
	}
	return rs
}

func (rs *rejections) add(insight *resource.Object[kind.DataplaneInsight]) {
	for i := range insight.Spec.NACKs {
		nack := &insight.Spec.NACKs[i]
		var policies []kind.Cause
		for _, cause := range nack.Causes {
			if cause.Kind == kind.MeshProxyPatches.Name {
				policies = append(policies, cause)
			}
		}
		if len(policies) > 0 && nack.Version != "" {
			rs.added = append(rs.added, state.PatchRejection{Version: nack.Version, Mesh: insight.Mesh,
				Proxy: insight.Name, Policies: policies, Resource: nack.Type + " " + nack.Name, Message: nack.Message})
		}
	}
}

func (rs *rejections) end(before *table.Reader, of resource.Key) {
	if of.Kind != kind.MeshProxyPatches.Name {
		return
	}
	key := state.CauseKey(of.Mesh, kind.Cause{Kind: of.Kind, Name: of.Name})
	for _, rejection := range rs.state.Tables.PatchRejectionsByCause.List(before, key) {
		rs.removed = append(rs.removed, rejection.Version)
	}
}

func (rs *rejections) note(tx *table.Tx) {
	for _, version := range rs.removed {
		rs.state.Tables.PatchRejections.Delete(tx, version)
	}
	for _, rejection := range rs.added {
		if !slices.Contains(rs.removed, rejection.Version) {
			rs.state.Tables.PatchRejections.Put(tx, rejection)
		}
	}
}
