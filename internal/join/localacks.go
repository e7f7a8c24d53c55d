package join

import (
	"context"
	"sync"

	"weft/internal/mirror"
	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/kind"
)

// localAcks waits, for one kind, until the zone's proxies run with the stored rows. Each mesh has a wait of its own, so
// a proxy that does not ack delays the rows of its mesh alone. It outlives the streams, as the receiver does.
type localAcks struct {
	waitAcked       func(context.Context, mirror.Rows) error
	positionChanged *wait.Broadcast

	mu       sync.Mutex
	position zonesync.Position    // with all added rows
	pending  map[string]*meshAcks // by mesh: those with rows that are waited for
}

// ackedPositions are positions of a peer's log.
type ackedPositions = zonesync.Acked[zonesync.Position]

// meshAcks is the wait for the rows of one mesh. Rows that are added during a wait belong to the next one.
type meshAcks struct {
	acked zonesync.Position
	next  mirror.Rows
}

func newLocalAcks(waitAcked func(context.Context, mirror.Rows) error) *localAcks {
	return &localAcks{waitAcked: waitAcked, pending: map[string]*meshAcks{}, positionChanged: &wait.Broadcast{}}
}

// add adds stored rows, and the receiver's position that includes them. It waits for proxies that do not ack without a
// bound: callers that wait for the zone have bounds of their own.
func (s *localAcks) add(ctx context.Context, rows mirror.Rows, to zonesync.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var began []string
	for row, version := range rows {
		mesh := kind.MeshOf(row)
		m := s.pending[mesh]
		if m == nil {
			m = &meshAcks{acked: s.position, next: mirror.Rows{}}
			s.pending[mesh] = m
			began = append(began, mesh)
		}
		m.next[row] = version
	}
	if s.position != to {
		s.position = to
		s.positionChanged.Send()
	}
	for _, mesh := range began {
		go s.awaitMesh(ctx, mesh)
	}
}

// awaitMesh waits until no row of a mesh is pending, or ctx ends.
func (s *localAcks) awaitMesh(ctx context.Context, mesh string) {
	for rows, to := s.take(mesh); len(rows) > 0; rows, to = s.finish(mesh, to) {
		for s.waitAcked(ctx, rows) != nil {
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// take returns the rows of the next wait of a mesh, and the position that includes them.
func (s *localAcks) take(mesh string) (mirror.Rows, zonesync.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pending[mesh]
	rows := m.next
	m.next = mirror.Rows{}
	return rows, s.position
}

// finish records that the rows of a mesh are acked up to a position, and returns those of the next wait.
func (s *localAcks) finish(mesh string, acked zonesync.Position) (mirror.Rows, zonesync.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.positionChanged.Send()
	m := s.pending[mesh]
	rows := m.next
	if len(rows) == 0 {
		delete(s.pending, mesh)
		return nil, s.position
	}
	m.acked, m.next = acked, mirror.Rows{}
	return rows, s.position
}

// acked returns the positions of the finished waits.
func (s *localAcks) acked() ackedPositions {
	s.mu.Lock()
	defer s.mu.Unlock()
	acked := ackedPositions{Most: s.position}
	if len(s.pending) > 0 {
		acked.Lagging = make(map[string]zonesync.Position, len(s.pending))
	}
	for mesh, m := range s.pending {
		acked.Lagging[mesh] = m.acked
	}
	return acked
}
