package xds

// typeSet has the resources of one type of a resource set. Its entries form a list by the revision of their last
// change, newest first, so that the changes since a revision are the first entries of the list.
type typeSet struct {
	entries map[string]*entry // by name; nil while there are few, as in the set of one proxy
	byID    []*entry          // nil where the id is free
	free    []uint32
	newest  *entry
	oldest  *entry
	removed int // entries without a resource
	// exclusions is the number of entries that are an [Exclusion].
	exclusions int
	sweepAt    int // the number of them at which a sweep pays
	cache      cache
}

// entry is one name. It stays after its resource was removed until every stream has passed the removal.
type entry struct {
	name string
	// id is small, and unique in the type set: streams keep bit sets of ids.
	id       uint32
	resource *Resource // nil: removed
	changed  uint64    // the revision
	newer    *entry
	older    *entry
}

// minSweep is the number of removed entries below which no sweep pays.
const minSweep = 64

// put sets or (nil) removes a resource, and reports whether that changed anything.
func (s *typeSet) put(revision uint64, name string, r *Resource) bool {
	e := s.entry(name)
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
	if e.resource != nil && e.resource.IsExclusion() {
		s.exclusions--
	}
	if r != nil && r.IsExclusion() {
		s.exclusions++
	}
	e.resource, e.changed = r, revision
	s.link(e)
	s.cache.clear()
	return true
}

func (s *typeSet) add(name string) *entry {
	e := &entry{name: name}
	if n := len(s.free); n > 0 {
		e.id = s.free[n-1]
		s.free = s.free[:n-1]
		s.byID[e.id] = e
	} else {
		e.id = uint32(len(s.byID))
		s.byID = append(s.byID, e)
	}
	switch {
	case s.entries != nil:
		s.entries[name] = e
	case len(s.byID) > maxSearched:
		s.entries = make(map[string]*entry, len(s.byID))
		for _, e := range s.byID {
			if e != nil {
				s.entries[e.name] = e
			}
		}
	}
	return e
}

// maxSearched is the number of entries above which a search costs more than a map.
const maxSearched = 8

// entry returns the entry of a name, or nil where there is none.
func (s *typeSet) entry(name string) *entry {
	if s.entries != nil {
		return s.entries[name]
	}
	for _, e := range s.byID {
		if e != nil && e.name == name {
			return e
		}
	}
	return nil
}

// find returns the entry of a resource, or nil where the set does not have it.
func (s *typeSet) find(name string) *entry {
	if e := s.entry(name); e != nil && e.resource != nil && !e.resource.IsExclusion() {
		return e
	}
	return nil
}

// excludes reports whether the set has an [Exclusion] of a name.
func (s *typeSet) excludes(name string) bool {
	if s.exclusions == 0 {
		return false
	}
	e := s.entry(name)
	return e != nil && e.resource != nil && e.resource.IsExclusion()
}

func (s *typeSet) link(e *entry) {
	e.older = s.newest
	if s.newest != nil {
		s.newest.newer = e
	}
	s.newest = e
	if s.oldest == nil {
		s.oldest = e
	}
}

func (s *typeSet) unlink(e *entry) {
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

// needsSweep reports whether a sweep of the removed entries pays: its cost is spread over as many removals.
func (s *typeSet) needsSweep() bool { return s.removed >= max(minSweep, s.sweepAt) }

// sweep deletes the entries that were removed at a revision that every stream has passed. No stream has the bit of such
// an entry any more, so its id is free.
func (s *typeSet) sweep(passed uint64) {
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
	s.sweepAt = s.removed + (len(s.byID)-len(s.free))/2
}
