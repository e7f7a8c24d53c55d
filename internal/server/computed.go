package server

import (
	"context"
	"time"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/internal/reconcile"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
)

// Computed statuses are stored soon after a change. A pass reads all policies, so the pauses between passes are as long
// as keeps their share of one core small: at the size at which a pass takes 1.6 s, there is one a minute.
const (
	minComputePause   = time.Second
	maxComputePause   = time.Minute
	computePauseShare = 36 // a pause is that many times as long as the pass before it
)

// computeStatuses has the computed parts of statuses stored in a zone on Kubernetes, whose users read them with
// kubectl, while this replica leads. (ADR 126, ADR 190)
func (s *Server) computeStatuses(ctx context.Context) {
	if s.pods == nil {
		return
	}
	s.goLead(ctx, func(ctx context.Context) {
		defer s.reconciler.SetComputed(nil) // the next leader has its own
		followSnapshots(ctx, s.hub.NextCommit, s.state.Tables.DB.Snapshot, func(now *table.Snapshot) {
			s.reconciler.SetComputed(s.computedStatuses(now))
		})
	})
}

// followSnapshots calls pass with the newest snapshot, at once and after each commit, until ctx ends. Commits during a
// pass and the pause after it are one further pass. A pass does not block the table's writer.
func followSnapshots(ctx context.Context, next func() <-chan struct{}, newest func() *table.Snapshot,
	pass func(*table.Snapshot)) {
	for ctx.Err() == nil {
		changed, began := next(), time.Now()
		at := newest()
		pass(at)
		pause := min(max(computePauseShare*time.Since(began), minComputePause), maxComputePause)
		if wait.Sleep(ctx, pause) != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// wholeWorld returns a snapshot with every mesh, for what the control plane reads itself.
func (s *Server) wholeWorld(at *table.Snapshot) *inspect.World {
	return &inspect.World{State: s.state, Snapshot: at, Meshes: access.AllMeshes(), Expired: s.replica.HasExpired}
}

// computedStatuses returns the computed parts of the statuses of policies and external services.
func (s *Server) computedStatuses(at *table.Snapshot) (all []*reconcile.ComputedStatus) {
	world := s.wholeWorld(at)
	world.Modifying = s.hub.Inspector.Modifications
	reports := world.Reports()
	effects := reports.PolicyEffects()
	for _, policies := range kind.Policies() {
		for o := range s.state.Tables.ResourcesAfter(at, policies.Describe().Name, "", "") {
			all = append(all, &reconcile.ComputedStatus{Of: o.Key(),
				Conditions: withoutMessages(effects.Status(o).Conditions)})
		}
	}
	for o := range s.state.Tables.ExternalServices.RowsAfter(at, "", "") {
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
