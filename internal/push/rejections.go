package push

import (
	"cmp"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// rejections are the changes of a batch to the rejected versions of resources. Proxies get them without a part.
type rejections struct {
	state   *graph.State
	added   []state.Rejection
	removed []string // versions
}

// newRejections returns the rejections that the insights of a batch have, and those that end since their policies are
// written or removed in it. Those of an event log that cannot be opened are of its MeshHealthCheck, and all others of
// the MeshProxyPatches that may have modified the resource.
func newRejections(g *graph.State, before *table.Reader, b *mirror.Batch) *rejections {
	rs := &rejections{state: g}
	for _, o := range b.Put {
		if insight, ok := o.(*resource.Object[kind.DataplaneInsight]); ok {
			rs.add(before, insight)
		}
		rs.end(before, o.Key())
	}
	for _, key := range b.Removed {
		rs.end(before, key)
	}
	return rs
}

func (rs *rejections) add(before *table.Reader, insight *resource.Object[kind.DataplaneInsight]) {
	for i := range insight.Spec.NACKs {
		nack := &insight.Spec.NACKs[i]
		policies := causesOf(nack, func(cause kind.Cause) bool {
			return rs.logsTo(before, insight.Mesh, cause, nack.Message)
		})
		if len(policies) == 0 {
			policies = causesOf(nack, func(cause kind.Cause) bool { return cause.Kind == kind.MeshProxyPatches.Name })
		}
		if len(policies) > 0 && nack.Version != "" {
			rs.added = append(rs.added, state.Rejection{Version: nack.Version, Mesh: insight.Mesh,
				Proxy: insight.Name, Policies: policies, Resource: nack.Type + " " + nack.Name, Message: nack.Message})
		}
	}
}

// causesOf returns the causes of a NACK that hold.
func causesOf(nack *kind.NACK, holds func(kind.Cause) bool) []kind.Cause {
	return slices.DeleteFunc(slices.Clone(nack.Causes), func(cause kind.Cause) bool { return !holds(cause) })
}

// logsTo reports whether a cause is a MeshHealthCheck with an event log that the message of a NACK names: Envoy cannot
// open the file.
func (rs *rejections) logsTo(before *table.Reader, mesh string, cause kind.Cause, message string) bool {
	key := resource.Key{Kind: cause.Kind, Mesh: cmp.Or(cause.Mesh, mesh), Name: cause.Name}
	o, _ := rs.state.Tables.Find(before, key)
	checks, ok := o.(*resource.Object[kind.MeshHealthCheck])
	return ok && slices.ContainsFunc(checks.Spec.To, func(item kind.ToItem[kind.HealthCheckConf]) bool {
		return item.Default.EventLogPath != "" && strings.Contains(message, item.Default.EventLogPath)
	})
}

func (rs *rejections) end(before *table.Reader, of resource.Key) {
	if of.Kind != kind.MeshProxyPatches.Name && of.Kind != kind.MeshHealthChecks.Name {
		return
	}
	key := state.CauseKey(of.Mesh, kind.Cause{Kind: of.Kind, Name: of.Name})
	for _, rejection := range rs.state.Tables.RejectionsByCause.List(before, key) {
		rs.removed = append(rs.removed, rejection.Version)
	}
}

func (rs *rejections) note(tx *table.Tx) {
	for _, version := range rs.removed {
		rs.state.Tables.Rejections.Delete(tx, version)
	}
	for _, rejection := range rs.added {
		if !slices.Contains(rs.removed, rejection.Version) {
			rs.state.Tables.Rejections.Put(tx, rejection)
		}
	}
}
