package server

import (
	"time"

	"weft/internal/check"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/resource"
)

// checker returns what finds the problems of this control plane and its meshes.
func (s *Server) checker() func(mesh string, known check.Known) *check.Report {
	pending := func(key state.ProxyKey) (since time.Time, ok bool) {
		if live := s.proxies.Live(key); live.PendingSince != nil {
			return live.PendingSince.Time, true
		}
		return time.Time{}, false
	}
	return func(mesh string, known check.Known) *check.Report {
		var link *inspect.GlobalLink
		if s.remote.global != nil {
			link = s.remote.global()
		}
		world := check.World{
			State: s.state, Snapshot: s.state.Tables.DB.Snapshot(), Modifying: s.hub.Inspector.Modifications,
			Known: known, Mesh: mesh, Global: link, Pending: pending,
			Replica: s.replicaState(), OperatorsUnset: s.settings.OperatorsUnset(), Now: time.Now(),
		}
		if since, why, ok := s.outage.Now(); ok {
			world.StoreOutage = &check.Failure{Since: since, Reason: why}
		}
		return check.Run(world)
	}
}

// findingsOf returns what `weft check` would find of a resource that a user writes, as the warnings of the write.
func (s *Server) findingsOf(o resource.Any) []string {
	var texts []string
	for _, f := range check.Written(check.World{State: s.state, Snapshot: s.state.Tables.DB.Snapshot()}, o) {
		texts = append(texts, f.Problem+": "+f.Detail)
	}
	return texts
}
