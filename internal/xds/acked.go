package xds

import (
	"context"
	"errors"
	"slices"
)

// SyncState counts the streams that were open when a wait began, by their state.
type SyncState struct {
	InSync  int // have acked or rejected everything up to the revision
	NACKed  int // of the streams in sync, those that reject a resource of concern
	Lost    int // ended meanwhile; their clients keep their configuration
	Pending int // not in sync yet
}

// ackWait is a wait for one stream. Its channel is buffered, so that a send never blocks.
type ackWait struct {
	revision uint64
	concerns func(NACK) bool // nil: every NACK does
	progress func()          // called for each response that the client acks or rejects; nil: not wanted
	done     chan<- streamOutcome
}

// streamOutcome is the end of a wait for a stream.
type streamOutcome int

const (
	inSync streamOutcome = iota
	rejecting
	lost
)

// WaitAcked waits until each stream that is open now is in sync at a revision, or has ended. The caller decides what
// streams mean that were lost or that rejected something. concerns selects the NACKs that count (nil: all); several
// streams call it at once, and it must not block. The error is the context's; the counts are valid then too.
func (s *Server) WaitAcked(ctx context.Context, revision uint64, concerns func(NACK) bool) (SyncState, error) {
	return WaitAcked(ctx, s.Streams(), revision, concerns)
}

// WaitAcked is [Server.WaitAcked] for some streams of a server.
func WaitAcked(ctx context.Context, streams []*Stream, revision uint64, concerns func(NACK) bool) (SyncState, error) {
	return waitAcked(ctx, streams, ackWait{revision: revision, concerns: concerns}, 0)
}

// WaitHalfAcked waits until half of the streams that are open now have acked or rejected everything up to a revision,
// or have ended. It calls progress, which may be nil, for each response that a stream acks or rejects before it is in
// sync. Several streams call it at once, and it must not block. The error is the context's.
func (s *Server) WaitHalfAcked(ctx context.Context, revision uint64, progress func()) error {
	streams := s.Streams()
	_, err := waitAcked(ctx, streams, ackWait{revision: revision, progress: progress}, len(streams)/2)
	return err
}

// waitAcked waits until at most maxPending of the streams are neither in sync nor ended.
func waitAcked(ctx context.Context, streams []*Stream, w ackWait, maxPending int) (SyncState, error) {
	done := make(chan streamOutcome, len(streams))
	w.done = done
	for _, stream := range streams {
		stream.await(w)
	}
	dropWaits := func() {
		for _, stream := range streams {
			stream.dropWait(done)
		}
	}
	result := SyncState{Pending: len(streams)}
	for result.Pending > maxPending {
		select {
		case f := <-done:
			result.count(f)
		case <-ctx.Done():
			dropWaits()
			close(done)
			for f := range done { // sent before their wait was dropped
				result.count(f)
			}
			return result, ctx.Err()
		}
	}
	if maxPending > 0 {
		dropWaits()
	}
	return result, nil
}

// ErrLost is the error of a stream that ended before it was in sync.
var ErrLost = errors.New("the stream ended")

// WaitAcked waits until the client has acked or rejected everything up to a revision. The error is the context's, or
// [ErrLost].
func (s *Stream) WaitAcked(ctx context.Context, revision uint64) error {
	done := make(chan streamOutcome, 1)
	s.await(ackWait{revision: revision, done: done})
	select {
	case f := <-done:
		if f == lost {
			return ErrLost
		}
		return nil
	case <-ctx.Done():
		s.dropWait(done)
		return ctx.Err()
	}
}

func (r *SyncState) count(o streamOutcome) {
	r.Pending--
	switch o {
	case inSync:
		r.InSync++
	case rejecting:
		r.InSync++
		r.NACKed++
	case lost:
		r.Lost++
	}
}

func (s *Stream) await(w ackWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		w.done <- lost
		return
	}
	s.waits = append(s.waits, w)
	s.reportAcked()
}

func (s *Stream) dropWait(done chan<- streamOutcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(w ackWait) bool { return w.done == done })
}

// reportProgress notifies the waits that the client has acked or rejected a response.
func (s *Stream) reportProgress() {
	for _, w := range s.waits {
		if w.progress != nil {
			w.progress()
		}
	}
}

// reportAcked ends the waits that are complete.
func (s *Stream) reportAcked() {
	if len(s.waits) == 0 {
		return
	}
	s.waits = slices.DeleteFunc(s.waits, func(w ackWait) bool {
		if !s.session.inSyncAt(w.revision) {
			return false
		}
		w.done <- s.session.waitOutcome(w.concerns)
		return true
	})
}

// waitOutcome returns the outcome of a wait for a stream that is in sync.
func (s *session) waitOutcome(concerns func(NACK) bool) streamOutcome {
	for t := range s.subs {
		for _, nack := range s.subs[t].nacks {
			if concerns == nil || concerns(nack) {
				return rejecting
			}
		}
	}
	return inSync
}
