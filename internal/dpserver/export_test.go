package dpserver

import "time"

// FreezeBuckets stops the clock of the bounds of registrations and certificate requests: no bucket fills again.
func (s *Server) FreezeBuckets() {
	at := s.flood.now()
	s.flood.now = func() time.Time { return at }
}
