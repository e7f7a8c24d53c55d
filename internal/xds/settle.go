package xds

import (
	"context"
	"errors"
	"slices"
)

// Settlement counts the streams that were open when a wait began.
type Settlement struct {
	Settled  int // have everything up to the revision, or said what they refuse
	Refusing int // of those, the ones that refuse a resource of concern
	Lost     int // ended meanwhile; their clients run on with what they had
	Behind   int // have not settled yet
}

// wait is for one stream to settle. Its channel has room, so that telling never blocks.
type wait struct {
	revision uint64
	concerns func(Refusal) bool // nil: every refusal does
	done     chan<- fate
}

type fate int

const (
	settled fate = iota
	refusing
	lost
)

// WaitSettled waits until each stream that is open now has settled past a revision, or has ended. What
// the lost and the refusing ones mean is the caller's to say, and which refusals it is about (nil: all):
// concerns is called by streams, several at once, and must not block. The error is the context's; the
// counts hold then too.
func (s *Server) WaitSettled(ctx context.Context, revision uint64, concerns func(Refusal) bool) (Settlement, error) {
	streams := s.Streams()
	done := make(chan fate, len(streams))
	for _, stream := range streams {
		stream.await(wait{revision, concerns, done})
	}
	result := Settlement{Behind: len(streams)}
	for result.Behind > 0 {
		select {
		case f := <-done:
			result.count(f)
		case <-ctx.Done():
			for _, stream := range streams {
				stream.forget(done)
			}
			close(done)
			for f := range done { // told in the same moment
				result.count(f)
			}
			return result, ctx.Err()
		}
	}
	return result, nil
}

// ErrLost is of a stream that ended before it settled.
var ErrLost = errors.New("the stream ended")

// WaitSettled waits until the client has, or has refused, everything up to a revision. The error is the
// context's, or [ErrLost].
func (s *Stream) WaitSettled(ctx context.Context, revision uint64) error {
	done := make(chan fate, 1)
	s.await(wait{revision, nil, done})
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

func (r *Settlement) count(f fate) {
	r.Behind--
	switch f {
	case settled:
		r.Settled++
	case refusing:
		r.Settled++
		r.Refusing++
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

func (s *session) fate(concerns func(Refusal) bool) fate {
	for t := range s.subs {
		for _, refusal := range s.subs[t].refused {
			if concerns == nil || concerns(refusal) {
				return refusing
			}
		}
	}
	return settled
}
