package xds

import "time"

// Progress says how far a client has come.
type Progress struct {
	// InSync: it has, or has refused, everything, and nothing that it should not have.
	InSync bool
	// PendingSince is since when it is not settled; zero where it is.
	PendingSince time.Time
	// LastAck is when it last took a response; zero: never.
	LastAck time.Time
	// Sent, Acked and Rejected count the responses of the stream.
	Sent, Acked, Rejected uint64
	// Types are those that it has asked for, in their order.
	Types []TypeProgress
}

// TypeProgress is how far a client has come with one type.
type TypeProgress struct {
	Type Type
	// Wanted is the revision of the newest change of the stream's feeds, Acknowledged the one up to which
	// everything was acknowledged or refused.
	Wanted, Acknowledged uint64
}

// Progress answers how far the client has come by now.
func (s *Stream) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.track(time.Now())
	return Progress{
		InSync:       s.pendingSince.IsZero(),
		PendingSince: s.pendingSince,
		LastAck:      s.lastAck,
		Sent:         s.sent.Load(), Acked: s.acked, Rejected: s.rejected,
		Types: s.session.progress(),
	}
}

// track notes since when the client lacks something. It is told of every request and every send, so that
// the time is right to within what a sender takes to wake.
func (s *Stream) track(now time.Time) {
	switch {
	case s.session.settledNow():
		if s.settled != nil && !s.pendingSince.IsZero() {
			s.settled(now.Sub(s.pendingSince))
		}
		s.pendingSince = time.Time{}
	case s.pendingSince.IsZero():
		s.pendingSince = now
	}
}

func (s *session) progress() []TypeProgress {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	var types []TypeProgress
	for t := range numTypes {
		if !s.subs[t].open {
			continue
		}
		p := TypeProgress{Type: t, Acknowledged: s.subs[t].settled}
		for _, f := range s.feeds {
			if newest := f.shelves[t].newest; newest != nil {
				p.Wanted = max(p.Wanted, newest.changed)
			}
		}
		types = append(types, p)
	}
	return types
}
