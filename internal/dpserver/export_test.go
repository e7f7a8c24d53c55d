package dpserver

import (
	"context"
	"time"
)

// SourcesOf returns the addresses for which the connection of a dataplane token vouches.
func (s *Server) SourcesOf(ctx context.Context) ([]string, error) { return s.sourcesOf(ctx, &caller{}) }

// FreezeBuckets stops the clock of the bounds of registrations and certificate requests: no bucket fills again.
func (s *Server) FreezeBuckets() {
	at := s.flood.now()
	s.flood.now = func() time.Time { return at }
}
