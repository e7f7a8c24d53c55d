package xds

import (
	"slices"
)

// follow makes these the stream's feeds. The first call answers what the client has asked so far; a
// later one sends the difference between the feeds that are left and those that are joined, resource by
// resource and by version, and nothing of those that stay.
func (s *session) follow(feeds []*ResourceSet) {
	s.catalog.mu.Lock()
	defer s.catalog.mu.Unlock()
	before := s.feeds
	s.feeds = append([]*ResourceSet{}, feeds...)
	for _, f := range before {
		delete(f.followers, s)
	}
	for _, f := range feeds {
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
	s.settle()
}

// replay handles the requests that came before the stream had feeds. None of them acknowledges
// anything, and a limit that one exceeds is seen with the next request.
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
	for _, f := range s.feeds {
		delete(f.followers, s)
	}
}

// place is where one subscription stood before its stream changed feeds.
type place struct {
	*subscription
	feeds []*ResourceSet
	sets  []idSets
}

// move carries a subscription over to the stream's new feeds.
func (s *session) move(t Type, before []*ResourceSet) {
	sub := &s.subs[t]
	old := place{sub, before, sub.sets}
	sub.sets = make([]idSets, len(s.feeds))
	for i, f := range s.feeds {
		if j := slices.Index(before, f); j >= 0 {
			sub.sets[i] = old.sets[j]
		}
	}
	for j, f := range before {
		if !slices.Contains(s.feeds, f) {
			s.part(t, old, j)
		}
	}
	for i, f := range s.feeds {
		if !slices.Contains(before, f) {
			s.join(t, old, i)
		}
	}
}

// part handles a feed that is left: names that were asked for stay asked for, what no feed has any more
// is taken from the client.
func (s *session) part(t Type, old place, j int) {
	sub := &s.subs[t]
	for e := old.feeds[j].shelves[t].newest; e != nil; e = e.older {
		named := old.sets[j].wanted.has(e.id)
		i, now := s.find(t, e.name)
		switch {
		case named && now != nil:
			sub.sets[i].wanted.add(now.id)
		case named:
			sub.miss(e.name)
		}
		if now == nil && removable(t) && (named || sub.wildcard) && sub.position > 0 {
			sub.gone = append(sub.gone, e.name)
		}
	}
}

// join handles a feed that is new: what the client has in this version already need not be sent.
func (s *session) join(t Type, old place, i int) {
	sub := &s.subs[t]
	for e := s.feeds[i].shelves[t].newest; e != nil; e = e.older {
		if e.resource == nil {
			continue
		}
		sub.adopt(i, e)
		if sub.wants(i, e) && old.version(t, e.name) != e.resource.Version {
			sub.sets[i].due.add(e.id)
		}
	}
}

// version is the one that the client had of a resource; empty where it had none, or it isn't known.
func (p place) version(t Type, name string) string {
	for j, f := range p.feeds {
		e := f.shelves[t].find(name)
		if e == nil || e.changed > p.position || p.sets[j].due.has(e.id) {
			continue
		}
		if p.wildcard || p.sets[j].wanted.has(e.id) {
			return e.resource.Version
		}
	}
	return ""
}
