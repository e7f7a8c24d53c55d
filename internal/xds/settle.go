package xds

import (
	"context"
	"errors"
	"slices"
)

// SyncState counts the streams that were open when a wait began.
type SyncState struct {
	InSync  int // have everything up to the revision, or said what they refuse
	NACKed  int // of those, the ones that refuse a resource of concern
	Lost    int // ended meanwhile; their clients run on with what they had
	Pending int // have not settled yet
}

// wait is for one stream to settle. Its channel has room, so that telling never blocks.
type wait struct {
	revision uint64
	concerns func(NACK) bool // nil: every refusal does
	progress func()          // is called for each response that the client acks or rejects; nil: not wanted
	done     chan<- fate
}

type fate int

const (
	settled fate = iota
	refusing
	lost
)

// WaitAcked waits until each stream that is open now has settled past a revision, or has ended. What
// the lost and the refusing ones mean is the caller's to say, and which refusals it is about (nil: all):
// concerns is called by streams, several at once, and must not block. The error is the context's; the
// counts hold then too.
func (s *Server) WaitAcked(ctx context.Context, revision uint64, concerns func(NACK) bool) (SyncState, error) {
	streams := s.Streams()
	return settle(ctx, streams, wait{revision: revision, concerns: concerns}, 0)
}

// WaitHalfAcked waits until half of the streams that are open now have acked or rejected everything up to a revision, or
// have ended. It calls progress, which may be nil, for each response that a stream acks or rejects until it has all:
// several at once, and it must not block. The error is the context's.
func (s *Server) WaitHalfAcked(ctx context.Context, revision uint64, progress func()) error {
	streams := s.Streams()
	_, err := settle(ctx, streams, wait{revision: revision, progress: progress}, len(streams)/2)
	return err
}

// settle waits until all but some of the streams have settled or ended.
func settle(ctx context.Context, streams []*Stream, w wait, behind int) (SyncState, error) {
	done := make(chan fate, len(streams))
	w.done = done
	for _, stream := range streams {
		stream.await(w)
	}
	forget := func() {
		for _, stream := range streams {
			stream.forget(done)
		}
	}
	result := SyncState{Pending: len(streams)}
	for result.Pending > behind {
		select {
		case f := <-done:
			result.count(f)
		case <-ctx.Done():
			forget()
			close(done)
			for f := range done { // told in the same moment
				result.count(f)
			}
			return result, ctx.Err()
		}
	}
	if behind > 0 {
		forget()
	}
	return result, nil
}

// ErrLost is of a stream that ended before it settled.
var ErrLost = errors.New("the stream ended")

// WaitAcked waits until the client has, or has refused, everything up to a revision. The error is the
// context's, or [ErrLost].
func (s *Stream) WaitAcked(ctx context.Context, revision uint64) error {
	done := make(chan fate, 1)
	s.await(wait{revision: revision, done: done})
	select {
	case f := <-done:
		if f == lost {
			return ErrLost
		}
		return nil
	case <-ctx.Done():
		s.forget(done)
		return ctx.Err()
	}
}

func (r *SyncState) count(f fate) {
	r.Pending--
	switch f {
	case settled:
		r.InSync++
	case refusing:
		r.InSync++
		r.NACKed++
	case lost:
		r.Lost++
	}
}

func (s *Stream) await(w wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		w.done <- lost
		return
	}
	s.waits = append(s.waits, w)
	s.report()
}

func (s *Stream) forget(done chan<- fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(w wait) bool { return w.done == done })
}

// progress tells those who wait that the client has acked or rejected a response.
func (s *Stream) progress() {
	for _, w := range s.waits {
		if w.progress != nil {
			w.progress()
		}
	}
}

// report tells those who wait.
func (s *Stream) report() {
	if len(s.waits) == 0 {
		return
	}
	s.waits = slices.DeleteFunc(s.waits, func(w wait) bool {
		if !s.session.settledAt(w.revision) {
			return false
		}
		w.done <- s.session.fate(w.concerns)
		return true
	})
}

func (s *session) fate(concerns func(NACK) bool) fate {
	for t := range s.subs {
		for _, refusal := range s.subs[t].refused {
			if concerns == nil || concerns(refusal) {
				return refusing
			}
		}
	}
	return settled
}
