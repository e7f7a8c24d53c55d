package xds

// excludes reports whether one of the stream's sets excludes a name.
func (s *session) excludes(t Type, name string) bool {
	for _, f := range s.sets {
		if f.types[t].excludes(name) {
			return true
		}
	}
	return false
}

// wants reports whether the client should have the entry of the resource set at index i.
func (s *session) wants(t Type, i int, e *entry) bool {
	return s.subs[t].wants(i, e) && !s.excludes(t, e.name)
}

// exclude handles an exclusion in the resource set at index i: the client does not keep the resource of another set.
func (s *session) exclude(t Type, i int, exclusion *entry) {
	sub := &s.subs[t]
	for j, f := range s.sets {
		if e := f.types[t].entry(exclusion.name); e != nil && j != i {
			sub.sets[j].due.remove(e.id)
			delete(sub.postponed, e)
		}
	}
	delete(sub.nacks, exclusion.name)
	if sub.wants(i, exclusion) && sub.position > 0 && removable(t) {
		sub.gone = append(sub.gone, exclusion.name)
	}
}

// include handles a removed entry that may have been an exclusion: the resource of another set is due.
func (s *session) include(t Type, name string) {
	if i, e := s.find(t, name); e != nil && s.wants(t, i, e) {
		s.subs[t].require(i, e)
	}
}
