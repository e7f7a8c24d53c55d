package join

import (
	"context"
	"sync"

	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/resource"
)

// settling finds out, for one kind, when the zone's proxies run with what is stored. While one wait lasts what
// comes is collected for the next. It outlives the streams, as the receiver does.
type settling struct {
	settled func(context.Context, []resource.Key) error
	reached *wait.Broadcast // raised when there is another position

	mu      sync.Mutex
	waiting bool
	rows    []resource.Key // that are to be settled on next
	to      zonesync.Position
	at      zonesync.Position
}

func newSettling(settled func(context.Context, []resource.Key) error) *settling {
	return &settling{settled: settled, reached: &wait.Broadcast{}}
}

// add says that rows were stored, and where the receiver is with that.
func (s *settling) add(ctx context.Context, rows []resource.Key, to zonesync.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows, s.to = append(s.rows, rows...), to
	s.next(ctx)
}

// next begins to wait, unless that is under way, or there is no position yet that could be settled on. Proxies
// that do not settle are waited for for good: whoever waits for the zone has a bound of its own.
func (s *settling) next(ctx context.Context) {
	if s.waiting || s.to.Seq == 0 || s.to == s.at {
		return
	}
	s.waiting = true
	rows, to := s.rows, s.to
	s.rows = nil
	go func() {
		for s.settled(ctx, rows) != nil {
			if ctx.Err() != nil {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting, s.at = false, to
		s.reached.Send()
		s.next(ctx)
	}()
}

// position answers what was settled on last.
func (s *settling) position() zonesync.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}
