package dpserver

import (
	"context"
	"time"

	"weft/internal/state"
)

// SourcesOf returns the addresses for which the connection of a dataplane token vouches.
func (s *Server) SourcesOf(ctx context.Context) ([]string, error) { return s.sourcesOf(ctx, &caller{}) }

// SpendReports charges changed reports of a proxy. With FreezeBuckets, the next one is read after a second for each
// above the bound.
func (s *Server) SpendReports(key state.ProxyKey, reports int) {
	for range reports {
		s.flood.report(key)
	}
}

// FreezeBuckets stops the clock of the bounds of registrations and certificate requests: no bucket fills again.
func (s *Server) FreezeBuckets() {
	at := s.flood.now()
	s.flood.now = func() time.Time { return at }
}
