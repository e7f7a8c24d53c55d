package xds

// shelf is a feed's resources of one type. Its entries form a list by the revision of their last
// change, newest first, so that "what changed since my revision" is a walk over just that.
type shelf struct {
	entries map[string]*entry
	byID    []*entry // nil where the id is free
	free    []uint32
	newest  *entry
	oldest  *entry
	removed int // entries without a resource
	sweepAt int // as many of them are worth a sweep
	cache   cache
}

// entry is one name. It stays for a while after its resource has gone, until every stream knows.
type entry struct {
	name string
	// id is small, and no other entry of the shelf has it: streams keep bit sets of ids.
	id       uint32
	resource *Resource // nil: removed
	changed  uint64    // the revision
	newer    *entry
	older    *entry
}

// minSweep is the number of removed entries that is never worth looking at the followers for.
const minSweep = 64

// put sets or (nil) removes a resource, and says whether that changed anything.
func (s *shelf) put(revision uint64, name string, r *Resource) bool {
	e := s.entries[name]
	switch {
	case e == nil && r == nil:
		return false
	case e == nil:
		e = s.add(name)
	case r == nil && e.resource == nil:
		return false
	case r != nil && e.resource != nil && r.Version == e.resource.Version:
		return false
	case r == nil:
		s.removed++
		s.unlink(e)
	default:
		if e.resource == nil {
			s.removed--
		}
		s.unlink(e)
	}
	e.resource, e.changed = r, revision
	s.link(e)
	s.cache.clear()
	return true
}

func (s *shelf) add(name string) *entry {
	e := &entry{name: name}
	if n := len(s.free); n > 0 {
		e.id = s.free[n-1]
		s.free = s.free[:n-1]
		s.byID[e.id] = e
	} else {
		e.id = uint32(len(s.byID))
		s.byID = append(s.byID, e)
	}
	s.entries[name] = e
	return e
}

// find answers the entry of a resource that is there.
func (s *shelf) find(name string) *entry {
	if e := s.entries[name]; e != nil && e.resource != nil {
		return e
	}
	return nil
}

func (s *shelf) link(e *entry) {
	e.older = s.newest
	if s.newest != nil {
		s.newest.newer = e
	}
	s.newest = e
	if s.oldest == nil {
		s.oldest = e
	}
}

func (s *shelf) unlink(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		s.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		s.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}

// crowded says whether the removed entries are worth a sweep: its cost is paid by as many removals.
func (s *shelf) crowded() bool { return s.removed >= max(minSweep, s.sweepAt) }

// sweep forgets the entries that were removed at a revision that every stream has passed. No stream has
// the bit of such an entry any more, so its id is free.
func (s *shelf) sweep(passed uint64) {
	for e := s.oldest; e != nil && e.changed <= passed; {
		newer := e.newer
		if e.resource == nil {
			s.unlink(e)
			delete(s.entries, e.name)
			s.byID[e.id] = nil
			s.free = append(s.free, e.id)
			s.removed--
		}
		e = newer
	}
	s.sweepAt = s.removed + len(s.entries)/2
}
