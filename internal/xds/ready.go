package xds

import (
	"slices"
	"sync"
)

// ready returns the responses to send now; the caller sends all of them, in order.
func (s *session) ready() []*response {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	var out []*response
	for t := range numTypes {
		if sub := &s.subs[t]; !sub.open || len(sub.outstanding) > 0 {
			continue
		}
		if limit, ok := s.limit(t); ok {
			out = append(out, s.batch(t, limit)...)
		}
	}
	if clusters := &s.subs[Cluster]; len(clusters.gone) > 0 && clusters.idle() && s.unreferenced() {
		out = append(out, clusters.sent(s.removals(Cluster))...)
	}
	s.advance()
	return out
}

// batch returns the responses of a type to send now, with the changes up to a revision.
func (s *session) batch(t Type, limit uint64) []*response {
	sub := &s.subs[t]
	if batch := s.isolated(t); len(batch) > 0 {
		if t == Cluster {
			s.requireEndpoints(batch)
		}
		return sub.sent(batch)
	}
	var batch []*response
	list := lists.Get().(*[]*Resource)
	defer lists.Put(list)
	for i, f := range s.sets {
		if *list = s.changed((*list)[:0], t, i, limit); len(*list) > 0 {
			batch = append(batch, f.response(t, *list))
		}
		clear(*list)
	}
	sub.position, sub.waitsSince = limit, 0
	if s.pending(t) {
		sub.waitsSince = s.catalog.revision
	}
	switch {
	case t == Cluster:
		s.requireEndpoints(batch)
	case len(sub.gone) > 0:
		batch = append(s.removals(t), batch...)
	}
	if len(batch) == 0 && !sub.responded {
		batch = append(batch, s.catalog.encode(t, nil, nil)) // Envoy waits for the first response
	}
	sub.responded = true
	return sub.sent(batch)
}

// sent records responses as outstanding.
func (sub *subscription) sent(batch []*response) []*response {
	for _, r := range batch {
		sub.outstanding = append(sub.outstanding, r.manifest)
	}
	return batch
}

// isolated returns responses of one resource each: for resources that were rejected together, and for rejected
// resources that are sent again.
func (s *session) isolated(t Type) []*response {
	sub := &s.subs[t]
	var batch []*response
	for _, name := range sub.alone {
		i, e := s.find(t, name)
		if e == nil || !s.wants(t, i, e) || sub.rejects(e.resource) {
			continue
		}
		sub.sets[i].due.remove(e.id)
		batch = append(batch, s.alone(t, i, e))
	}
	for _, name := range sub.again {
		if i, e := s.find(t, name); e != nil && s.wants(t, i, e) && sub.rejects(e.resource) {
			batch = append(batch, s.alone(t, i, e))
		}
	}
	sub.alone, sub.again = nil, nil
	return batch
}

func (s *session) alone(t Type, i int, e *entry) *response {
	return s.sets[i].response(t, []*Resource{e.resource})
}

// lists are lists of resources of one response. Thousands of clients that connect at once have the same responses.
var lists = sync.Pool{New: func() any { return &[]*Resource{} }}

// changed appends the resources of one resource set that the client needs: those that changed since the type's
// position, up to a revision, and those that are due, as many as fit into one response. The rest is due afterwards.
func (s *session) changed(changed []*Resource, t Type, i int, limit uint64) []*Resource {
	sub, typeSet := &s.subs[t], &s.sets[i].types[t]
	due := &sub.sets[i].due
	for e := typeSet.newest; e != nil && e.changed > sub.position; e = e.older {
		switch {
		case e.changed <= limit && e.resource == nil:
			s.drop(t, i, e)
			s.include(t, e.name)
		case e.changed <= limit && e.resource.IsExclusion():
			s.exclude(t, i, e)
		}
		if e.resource == nil {
			due.remove(e.id)
			continue
		}
		sub.resolveMissing(i, e)
		if s.wants(t, i, e) {
			due.add(e.id)
		}
	}
	if due.empty() {
		return changed
	}
	changed = slices.Grow(changed, due.len())
	size := 0
	for id := range due.all() {
		e := typeSet.byID[id]
		if size += len(e.resource.Wire); size > chunkBytes && len(changed) > 0 {
			return changed
		}
		due.remove(id)
		if s.wants(t, i, e) && !sub.rejects(e.resource) && sub.passes(e, limit) {
			changed = append(changed, e.resource)
		}
	}
	*due = (*due)[:0]
	return changed
}

// drop handles an entry whose resource was removed. The removal is also sent to a client that never had the name, where
// the resource was added and removed between two positions. That is harmless.
func (s *session) drop(t Type, i int, e *entry) {
	sub := &s.subs[t]
	known := s.wants(t, i, e) && sub.position > 0
	sub.markMissing(i, e)
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
			if i, e := s.find(Endpoint, r.Name); e != nil && s.wants(Endpoint, i, e) {
				sub.sets[i].due.add(e.id)
			}
		}
	}
}

// removals returns a response that removes resources from the client, without changes.
func (s *session) removals(t Type) []*response {
	sub := &s.subs[t]
	names := slices.DeleteFunc(sub.gone, func(name string) bool {
		_, e := s.find(t, name)
		return e != nil // it was added again, and was sent or will be
	})
	sub.gone = nil
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []*response{s.catalog.encode(t, nil, slices.Compact(names))}
}

// unreferenced reports whether the client has no resource left that names a removed cluster. A client that has
// reconnected shows that only once it has requested its listeners.
func (s *session) unreferenced() bool {
	return s.subs[Listener].open && s.typeAcked(Listener) && s.typeAcked(Extension) && s.typeAcked(Route)
}

// leadsToClusters reports whether resources of a type name clusters. Of the extension configs, TCP proxies do.
func leadsToClusters(t Type) bool { return t == Listener || t == Extension || t == Route }

// limit returns the revision up to which changes of a type may be sent, and false where none may be. A type that leads
// to clusters waits for those that were there when it began to wait, not for every later one: under steady changes of
// clusters it would never be sent. What leads to later ones is postponed ([subscription.passes]), except in the
// first response, after which Envoy begins to serve.
func (s *session) limit(t Type) (revision uint64, ok bool) {
	sub, clusters := &s.subs[t], &s.subs[Cluster]
	if !leadsToClusters(t) || !s.pending(t) || len(clusters.outstanding) == 0 && !s.pending(Cluster) {
		sub.waitsSince = 0
		return s.catalog.revision, true
	}
	if sub.waitsSince == 0 {
		sub.waitsSince = s.catalog.revision
	}
	if !sub.responded {
		return s.catalog.revision, clusters.acked >= sub.waitsSince
	}
	return clusters.acked, clusters.acked >= sub.waitsSince
}

// pending reports whether there is, or may be, something that was not sent yet.
func (s *session) pending(t Type) bool {
	sub := &s.subs[t]
	if !sub.open {
		return false
	}
	if !sub.responded || len(sub.alone)+len(sub.again) > 0 {
		return true
	}
	for i, f := range s.sets {
		newest := f.types[t].newest
		if newest != nil && newest.changed > sub.position || !sub.sets[i].due.empty() {
			return true
		}
	}
	return false
}

// needsReady reports whether ready may have something to send.
func (s *session) needsReady() bool {
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

// typeAcked reports whether the client has everything of a type, except removals.
func (s *session) typeAcked(t Type) bool {
	return len(s.subs[t].outstanding) == 0 && !s.pending(t)
}

// advance updates the acked revision of each type, and the revision that the stream has passed.
func (s *session) advance() {
	passed := s.catalog.revision
	for t := range numTypes {
		sub := &s.subs[t]
		if !sub.open {
			continue
		}
		if !s.pending(t) && len(sub.outstanding) == 0 {
			sub.position = s.catalog.revision
		}
		if sub.idle() && sub.responded {
			sub.acked = sub.position
		}
		passed = min(passed, sub.position)
	}
	s.passed.Store(passed)
}

// inSyncAt reports whether everything up to a revision is sent and acknowledged.
func (s *session) inSyncAt(revision uint64) bool {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	return s.past(revision)
}

// inSync is inSyncAt of the newest revision.
func (s *session) inSync() bool {
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	return s.past(s.catalog.revision)
}

func (s *session) past(revision uint64) bool {
	if s.sets == nil {
		return false
	}
	s.advance()
	for t := range numTypes {
		if sub := &s.subs[t]; sub.open && (sub.acked < revision || sub.removing()) {
			return false
		}
	}
	return true
}
