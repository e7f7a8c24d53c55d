package server

import (
	"context"
	"time"

	"weft/internal/check"
	"weft/resource"
)

// world returns the state of this control plane that no table has.
func (s *Server) world() check.World {
	zones := s.wholeWorld(s.state.Tables.DB.Snapshot())
	zones.Links = s.remote.links
	w := check.World{
		Modifying: s.hub.Inspector.Modifications, Ended: s.replica.HasExpired, ZoneInsight: zones.Zone,
		Pending: s.proxies.PendingProxies(), Replica: s.replicaState(), OperatorsUnset: s.settings.OperatorsUnset(),
		Now: time.Now(),
	}
	if s.remote.global != nil {
		w.Global = s.remote.global()
	}
	if since, why, ok := s.outage.Now(); ok {
		w.StoreOutage = &check.Failure{Since: since, Reason: why}
	}
	return w
}

// runCheck returns all findings, evaluated from nothing.
func (s *Server) runCheck() *check.Report {
	return check.Run(s.checks, s.state.Tables.DB.Snapshot(), s.world())
}

// buildFindings makes the tracker of findings.
func (s *Server) buildFindings(context.Context) error {
	s.findings = check.NewTracker(check.Config{Stage: s.checks, World: s.world, Commit: s.hub.Commit,
		Write: s.hub.Write})
	s.hub.Follow(s.findings.Follow)
	return nil
}

// findingsOf returns what `weft check` would find of a resource that a user writes, as the warnings of the write.
func (s *Server) findingsOf(o resource.Any) []string {
	var texts []string
	for _, f := range check.Written(s.checks, s.state.Tables.DB.Snapshot(), o) {
		texts = append(texts, f.Problem+": "+f.Detail)
	}
	return texts
}
