// Package xds sends resources to Envoys over delta ADS.
//
// A [Catalog] holds [Feed]s. A feed is a set of resources that many streams share; a stream follows a
// few of them. One call of [Catalog.Commit] is one revision: it changes any number of feeds, and every
// stream sees all of it or nothing.
//
// What a stream has is a revision and its exceptions, never a copy of names and versions, and streams
// in the same position send the same bytes. So a change costs what it changes, times the streams that
// want it.
//
// The protocol is a core without I/O ([session]: requests in, responses out, no clock and no goroutine)
// in a thin gRPC shell ([Server]). The rules that it keeps, and what Envoy does without them, are
// written where they are kept. Nothing here knows what a resource means, with one exception: an
// endpoint assignment bears the name of its cluster.
//
// Callers may not assume that a stream sees every revision (a slow one gets the newest), nor that a
// name that is asked for one by one is ever taken away from a client: see [removable].
package xds

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Key names a resource.
type Key struct {
	Type Type
	Name string
}

// Change is what one commit does to one feed.
type Change struct {
	Set *ResourceSet
	// Changed are added, or replace those of their type and name. One whose version is what the feed
	// has already changes nothing.
	Changed []*Resource
	// Removed are taken out; one that is not there changes nothing.
	Removed []Key
}

// Catalog is a set of feeds that change together.
type Catalog struct {
	mu       sync.RWMutex // guards all below, and every feed
	revision uint64
	nonces   atomic.Uint64
}

// NewCatalog makes a catalog without feeds, at revision 0.
func NewCatalog() *Catalog { return &Catalog{} }

// Revision is that of the newest commit.
func (c *Catalog) Revision() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// Commit applies changes, one for each feed that changes, and wakes the streams that follow them. It
// answers the revision, which [Server.WaitAcked] takes. It does not wait for any stream.
func (c *Catalog) Commit(changes ...Change) uint64 {
	c.mu.Lock()
	c.revision++
	revision := c.revision
	var touched []*ResourceSet
	for _, change := range changes {
		if change.Set.apply(revision, change.Changed, change.Removed) {
			touched = append(touched, change.Set)
		}
	}
	c.mu.Unlock()
	for _, f := range touched {
		f.wake()
	}
	return revision
}

// NewResourceSet makes an empty feed. It needs no end: one that no stream follows is garbage.
func (c *Catalog) NewResourceSet() *ResourceSet {
	f := &ResourceSet{catalog: c, followers: map[*session]struct{}{}}
	for t := range f.shelves {
		f.shelves[t].entries = map[string]*entry{}
	}
	return f
}

// ResourceSet is a set of resources that streams share. A name of a type should stand in one only of the feeds
// that a stream follows.
type ResourceSet struct {
	catalog   *Catalog
	shelves   [numTypes]shelf
	followers map[*session]struct{}
}

// Commit is [Catalog.Commit] for this feed alone.
func (f *ResourceSet) Commit(changed []*Resource, removed []Key) uint64 {
	return f.catalog.Commit(Change{Set: f, Changed: changed, Removed: removed})
}

// Resources are those in the feed, by type and name.
func (f *ResourceSet) Resources() []*Resource {
	f.catalog.mu.RLock()
	defer f.catalog.mu.RUnlock()
	var all []*Resource
	for t := range f.shelves {
		for _, e := range f.shelves[t].entries {
			if e.resource != nil {
				all = append(all, e.resource)
			}
		}
	}
	slices.SortFunc(all, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// apply says whether anything changed.
func (f *ResourceSet) apply(revision uint64, changed []*Resource, removed []Key) bool {
	any := false
	for _, r := range changed {
		any = f.shelves[r.Type].put(revision, r.Name, r) || any
	}
	for _, k := range removed {
		any = f.shelves[k.Type].put(revision, k.Name, nil) || any
	}
	for t := range f.shelves {
		if f.shelves[t].crowded() {
			f.shelves[t].sweep(f.passed())
		}
	}
	return any
}

// passed is the revision that every follower has gone beyond.
func (f *ResourceSet) passed() uint64 {
	passed := f.catalog.revision
	for s := range f.followers {
		passed = min(passed, s.passed.Load())
	}
	return passed
}

func (f *ResourceSet) wake() {
	f.catalog.mu.RLock()
	defer f.catalog.mu.RUnlock()
	for s := range f.followers {
		s.wake()
	}
}
