package xds

import (
	"slices"
)

// follow makes these the stream's resource sets. The first call handles the requests that came before. A later call
// sends the difference between the former sets and the new ones, resource by resource and by version, and nothing of a
// set that stays.
func (s *session) follow(sets []*ResourceSet) {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	before := s.sets
	s.sets = append([]*ResourceSet{}, sets...)
	for _, f := range before {
		delete(f.followers, s)
	}
	for _, f := range sets {
		f.followers[s] = struct{}{}
	}
	if before == nil {
		s.replay()
	} else {
		for t := range numTypes {
			if s.subs[t].open {
				s.move(t, before)
			}
		}
	}
	s.advance()
}

// replay handles the requests that came before the stream had resource sets. None of them acknowledges a response. A
// limit that one of them exceeds is reported with the next request.
func (s *session) replay() {
	early := s.early
	s.early = nil
	for _, r := range early {
		t, _ := TypeOf(r.typeURL)
		_, _ = s.handle(t, r)
	}
}

// leave ends the session.
func (s *session) leave() {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	for _, f := range s.sets {
		delete(f.followers, s)
	}
}

// place is the state of a subscription before its stream changed resource sets.
type place struct {
	*subscription
	followed []*ResourceSet
	sets     []idSets
}

// move carries a subscription over to the stream's new resource sets.
func (s *session) move(t Type, before []*ResourceSet) {
	sub := &s.subs[t]
	old := place{sub, before, sub.sets}
	sub.sets, sub.postponed = make([]idSets, len(s.sets)), nil
	for i, f := range s.sets {
		if j := slices.Index(before, f); j >= 0 {
			sub.sets[i] = old.sets[j]
		}
	}
	for j, f := range before {
		if !slices.Contains(s.sets, f) {
			s.leaveSet(t, old, j)
		}
	}
	for i, f := range s.sets {
		if !slices.Contains(before, f) {
			s.joinSet(t, old, i)
		}
	}
}

// leaveSet handles a resource set that the stream no longer follows. Names that were requested stay requested, and
// resources that no other set has are removed from the client.
func (s *session) leaveSet(t Type, old place, j int) {
	sub := &s.subs[t]
	for e := old.followed[j].types[t].newest; e != nil; e = e.older {
		if e.resource != nil && e.resource.IsExclusion() {
			s.include(t, e.name)
			continue
		}
		named := old.sets[j].wanted.has(e.id)
		i, now := s.find(t, e.name)
		switch {
		case named && now != nil:
			sub.sets[i].wanted.add(now.id)
		case named:
			sub.addMissing(e.name)
		}
		if now == nil && removable(t) && (named || sub.wildcard) && sub.position > 0 {
			sub.gone = append(sub.gone, e.name)
		}
	}
}

// joinSet handles a new resource set: a version that the client already has need not be sent.
func (s *session) joinSet(t Type, old place, i int) {
	sub := &s.subs[t]
	for e := s.sets[i].types[t].newest; e != nil; e = e.older {
		if e.resource == nil {
			continue
		}
		if e.resource.IsExclusion() {
			s.exclude(t, i, e)
			continue
		}
		sub.resolveMissing(i, e)
		if s.wants(t, i, e) && old.version(t, e.name) != e.resource.Version {
			sub.sets[i].due.add(e.id)
			sub.acked = min(sub.acked, e.changed-1)
		}
	}
}

// version returns the version that the client had of a resource, or "" where it had none or the version is not known.
func (p place) version(t Type, name string) string {
	for j, f := range p.followed {
		e := f.types[t].find(name)
		if e == nil || e.changed > p.position || p.sets[j].due.has(e.id) {
			continue
		}
		if p.wildcard || p.sets[j].wanted.has(e.id) {
			return e.resource.Version
		}
	}
	return ""
}
