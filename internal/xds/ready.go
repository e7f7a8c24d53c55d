package xds

import "slices"

// ready answers what is to be sent now; the caller sends all of it, in order.
func (s *session) ready() []*response {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	var out []*response
	for t := range numTypes {
		if sub := &s.subs[t]; sub.open && len(sub.outstanding) == 0 && !s.mustWait(t) {
			out = append(out, s.lot(t)...)
		}
	}
	if clusters := &s.subs[Cluster]; len(clusters.gone) > 0 && clusters.idle() && s.unreferenced() {
		out = append(out, clusters.sent(s.removals(Cluster))...)
	}
	s.settle()
	return out
}

// lot is what a type has to say now.
func (s *session) lot(t Type) []*response {
	sub := &s.subs[t]
	if lot := s.isolated(t); len(lot) > 0 {
		if t == Cluster {
			s.requireEndpoints(lot)
		}
		return sub.sent(lot)
	}
	var lot []*response
	for i, f := range s.feeds {
		if changed := s.changed(t, i, f); len(changed) > 0 {
			lot = append(lot, f.shelves[t].cache.response(s.catalog, t, changed))
		}
	}
	sub.position, sub.held = s.catalog.revision, 0
	switch {
	case t == Cluster:
		s.requireEndpoints(lot)
	case len(sub.gone) > 0:
		lot = append(lot, s.removals(t)...)
	}
	if len(lot) == 0 && !sub.answered {
		lot = append(lot, s.catalog.encode(t, nil, nil)) // Envoy waits for the first answer
	}
	sub.answered = true
	return sub.sent(lot)
}

// sent notes what is on its way.
func (sub *subscription) sent(lot []*response) []*response {
	for _, r := range lot {
		sub.outstanding = append(sub.outstanding, r.manifest)
	}
	return lot
}

// isolated are responses of one resource each: of those that were refused together, and of those that are
// refused and tried again.
func (s *session) isolated(t Type) []*response {
	sub := &s.subs[t]
	var lot []*response
	for _, name := range sub.alone {
		i, e := s.find(t, name)
		if e == nil || !sub.wants(i, e) || sub.refuses(e.resource) {
			continue
		}
		sub.sets[i].due.remove(e.id)
		lot = append(lot, s.alone(t, i, e))
	}
	for _, name := range sub.again {
		if i, e := s.find(t, name); e != nil && sub.wants(i, e) && sub.refuses(e.resource) {
			lot = append(lot, s.alone(t, i, e))
		}
	}
	sub.alone, sub.again = nil, nil
	return lot
}

func (s *session) alone(t Type, i int, e *entry) *response {
	return s.feeds[i].shelves[t].cache.response(s.catalog, t, []*Resource{e.resource})
}

// changed are the resources of one feed that the client needs: those that have changed since the
// type's position and those that are due, as many as go into one response. The rest is due afterwards.
func (s *session) changed(t Type, i int, f *ResourceSet) []*Resource {
	sub, shelf := &s.subs[t], &f.shelves[t]
	due := &sub.sets[i].due
	for e := shelf.newest; e != nil && e.changed > sub.position; e = e.older {
		if e.resource == nil {
			s.drop(t, i, e)
			continue
		}
		sub.adopt(i, e)
		if sub.wants(i, e) {
			due.add(e.id)
		}
	}
	if due.empty() {
		return nil
	}
	changed := make([]*Resource, 0, due.len())
	size := 0
	for id := range due.all() {
		r := shelf.byID[id].resource
		if size += len(r.Wire); size > portionBytes && len(changed) > 0 {
			return changed
		}
		due.remove(id)
		if sub.wants(i, shelf.byID[id]) && !sub.refuses(r) {
			changed = append(changed, r)
		}
	}
	*due = (*due)[:0]
	return changed
}

// drop handles an entry whose resource has gone. A client that never heard of the name is told too, where
// it came and went between two positions: that is harmless.
func (s *session) drop(t Type, i int, e *entry) {
	sub := &s.subs[t]
	known := sub.wants(i, e) && sub.position > 0
	sub.orphan(i, e)
	if _, other := s.find(t, e.name); known && removable(t) && other == nil {
		sub.gone = append(sub.gone, e.name)
	}
}

// requireEndpoints makes the assignments of clusters that are being sent due.
func (s *session) requireEndpoints(clusters []*response) {
	sub := &s.subs[Endpoint]
	if !sub.open {
		s.unassigned = s.unassigned || len(clusters) > 0
		return
	}
	for _, response := range clusters {
		for _, r := range response.changed {
			if i, e := s.find(Endpoint, r.Name); e != nil && sub.wants(i, e) {
				sub.sets[i].due.add(e.id)
			}
		}
	}
}

// removals take from the client what is gone, in a response without changes.
func (s *session) removals(t Type) []*response {
	sub := &s.subs[t]
	names := slices.DeleteFunc(sub.gone, func(name string) bool {
		_, e := s.find(t, name)
		return e != nil // it is back, and was sent or will be
	})
	sub.gone = nil
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []*response{s.catalog.encode(t, nil, slices.Compact(names))}
}

// unreferenced says whether the client has nothing left that names a cluster which is gone. One that has
// come back has not said so before it asks for its listeners.
func (s *session) unreferenced() bool {
	return s.subs[Listener].open && s.settledOn(Listener) && s.settledOn(Route)
}

// mustWait says whether a type waits for clusters. It does not wait for those that changed after it
// began to: under steady changes of clusters it would never be sent.
func (s *session) mustWait(t Type) bool {
	sub, clusters := &s.subs[t], &s.subs[Cluster]
	if t != Listener && t != Route || !s.pending(t) {
		return false
	}
	if len(clusters.outstanding) == 0 && !s.pending(Cluster) {
		return false
	}
	if sub.held == 0 {
		sub.held = s.catalog.revision
	}
	return clusters.settled < sub.held
}

// pending says whether there is, or may be, something to send that was not sent yet.
func (s *session) pending(t Type) bool {
	sub := &s.subs[t]
	if !sub.open {
		return false
	}
	if !sub.answered || len(sub.alone)+len(sub.again) > 0 {
		return true
	}
	for i, f := range s.feeds {
		newest := f.shelves[t].newest
		if newest != nil && newest.changed > sub.position || !sub.sets[i].due.empty() {
			return true
		}
	}
	return false
}

// restless says whether ready may have something to send.
func (s *session) restless() bool {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	for t := range numTypes {
		sub := &s.subs[t]
		if sub.open && len(sub.outstanding) == 0 && (s.pending(t) || len(sub.gone) > 0) {
			return true
		}
	}
	return false
}

// settledOn says whether the client has everything of a type, removals apart.
func (s *session) settledOn(t Type) bool {
	return len(s.subs[t].outstanding) == 0 && !s.pending(t)
}

// settle advances what each type has settled, and what the stream has passed.
func (s *session) settle() {
	passed := s.catalog.revision
	for t := range numTypes {
		sub := &s.subs[t]
		if !sub.open {
			continue
		}
		if !s.pending(t) && len(sub.outstanding) == 0 {
			sub.position = s.catalog.revision
		}
		if sub.idle() && sub.answered {
			sub.settled = sub.position
		}
		passed = min(passed, sub.position)
	}
	s.passed.Store(passed)
}

// settledAt says whether nothing of this or an earlier revision is unsent or unacknowledged.
func (s *session) settledAt(revision uint64) bool {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	return s.past(revision)
}

// settledNow is settledAt of the newest revision.
func (s *session) settledNow() bool {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	return s.past(s.catalog.revision)
}

func (s *session) past(revision uint64) bool {
	if s.feeds == nil {
		return false
	}
	s.settle()
	for t := range numTypes {
		if sub := &s.subs[t]; sub.open && (sub.settled < revision || sub.removing()) {
			return false
		}
	}
	return true
}
