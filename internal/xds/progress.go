package xds

import "time"

// Progress is the position of a client.
type Progress struct {
	// InSync reports whether the client has acked or rejected everything, and has nothing that was removed.
	InSync bool
	// PendingSince is the time since which the client is not in sync; zero where it is.
	PendingSince time.Time
	// LastAck is the time of the last ACK; zero: never.
	LastAck time.Time
	// Sent, Acked and Rejected count the responses of the stream.
	Sent, Acked, Rejected uint64
	// Types are the types that the client has requested, in their order.
	Types []TypeProgress
}

// TypeProgress is the position of a client in one type.
type TypeProgress struct {
	Type Type
	// Wanted is the revision of the newest change of the stream's resource sets. Acknowledged is the revision up to
	// which everything was acknowledged or rejected.
	Wanted, Acknowledged uint64
}

// Progress returns the present position of the client.
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

// PendingSince returns the time since which the client is not in sync; zero where it is.
func (s *Stream) PendingSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.track(time.Now())
	return s.pendingSince
}

// track notes the time since which the client is not in sync. It is called for every request and every response, so the
// time is exact except for the delay until a sender wakes.
func (s *Stream) track(now time.Time) {
	switch {
	case s.session.inSync():
		if s.ackedAfter != nil && !s.pendingSince.IsZero() {
			s.ackedAfter(now.Sub(s.pendingSince))
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
		p := TypeProgress{Type: t, Acknowledged: s.subs[t].acked}
		for _, f := range s.sets {
			if newest := f.types[t].newest; newest != nil {
				p.Wanted = max(p.Wanted, newest.changed)
			}
		}
		types = append(types, p)
	}
	return types
}
