package join

import (
	"context"
	"maps"
	"sync"

	"weft/internal/mirror"
	"weft/internal/wait"
	"weft/internal/zonesync"
)

// localAcks waits, for one kind, until the zone's proxies run with the stored rows. Rows that are added during a wait
// belong to the next one. It outlives the streams, as the receiver does.
type localAcks struct {
	waitAcked       func(context.Context, mirror.Rows) error
	positionChanged *wait.Broadcast // raised after each wait

	mu      sync.Mutex
	waiting bool
	rows    mirror.Rows // of the next wait
	to      zonesync.Position
	at      zonesync.Position
}

func newLocalAcks(waitAcked func(context.Context, mirror.Rows) error) *localAcks {
	return &localAcks{waitAcked: waitAcked, rows: mirror.Rows{}, positionChanged: &wait.Broadcast{}}
}

// add adds stored rows, and the receiver's position that includes them.
func (s *localAcks) add(ctx context.Context, rows mirror.Rows, to zonesync.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.rows, rows)
	s.to = to
	s.awaitNext(ctx)
}

// awaitNext begins a wait, unless one is under way or there is no new position. It waits for proxies that do not ack
// without a bound: callers that wait for the zone have bounds of their own.
func (s *localAcks) awaitNext(ctx context.Context) {
	if s.waiting || s.to.Seq == 0 || s.to == s.at {
		return
	}
	s.waiting = true
	rows, to := s.rows, s.to
	s.rows = mirror.Rows{}
	go func() {
		for s.waitAcked(ctx, rows) != nil {
			if ctx.Err() != nil {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting, s.at = false, to
		s.positionChanged.Send()
		s.awaitNext(ctx)
	}()
}

// position returns the position of the last finished wait.
func (s *localAcks) position() zonesync.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}
