package server

import (
	"context"
	"time"

	"weft/internal/inspect"
	"weft/internal/reconcile"
	"weft/internal/table"
	"weft/kind"
)

// computeEvery is the time between two computations of what statuses have on reading alone. Tests shorten it.
var computeEvery = time.Minute

// computeStatuses has the computed parts of statuses stored in a zone on Kubernetes, whose users read them with
// kubectl, while this replica leads. A pass reads a snapshot, so the table's writer does not wait for it, and is left
// out where the table is as it was. (ADR 126)
func (s *Server) computeStatuses(ctx context.Context) {
	if s.pods == nil {
		return
	}
	s.goLead(ctx, func(ctx context.Context) {
		defer s.reconciler.SetComputed(nil) // the next leader has its own
		var last *table.Snapshot
		for ctx.Err() == nil {
			if now := s.state.Tables.DB.Snapshot(); now != last {
				s.reconciler.SetComputed(s.computedStatuses(now))
				last = now
			}
			select {
			case <-time.After(computeEvery):
			case <-ctx.Done():
			}
		}
	})
}

// computedStatuses returns the computed parts of the statuses of policies and external services.
func (s *Server) computedStatuses(at *table.Snapshot) (all []*reconcile.ComputedStatus) {
	world := inspect.World{State: s.state, Snapshot: at, Modifying: s.hub.Inspector.Modified}
	reports := world.Reports()
	effects := reports.PolicyEffects()
	for _, policies := range kind.Policies() {
		for o := range s.state.Tables.From(at, policies.Describe().Name, "", "") {
			all = append(all, &reconcile.ComputedStatus{Of: o.Key(),
				Conditions: withoutMessages(effects.Status(o).Conditions)})
		}
	}
	for o := range s.state.Tables.ExternalServices.From(at, "", "") {
		computed := &reconcile.ComputedStatus{Of: o.Key(),
			Conditions: withoutMessages(reports.ReachabilityConditions(o)), ZoneEgress: reports.ServiceEgress(o)}
		if computed.ZoneEgress != nil {
			computed.ZoneEgress.Endpoints = nil
		}
		all = append(all, computed)
	}
	return all
}

// withoutMessages removes the messages of conditions, which have counts and the names of proxies.
func withoutMessages(conditions []kind.Condition) []kind.Condition {
	for i := range conditions {
		conditions[i].Message = ""
	}
	return conditions
}
