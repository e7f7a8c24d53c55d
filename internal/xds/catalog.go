// Package xds sends resources to Envoys over delta ADS.
//
// A [Catalog] has resource sets. A [ResourceSet] is shared by many streams; a stream follows a few of them. One call of
// [Catalog.Commit] is one revision: it changes any number of sets, and a stream sees all of the changes or none.
//
// A stream keeps a revision and its exceptions, never a copy of names and versions, and streams at the same position
// send the same bytes. So the cost of a change is its size times the streams that want it.
//
// The protocol is a core without I/O ([session]: requests in, responses out, no clock and no goroutine) in a thin gRPC
// shell ([Server]). The rules of the protocol, and the behavior of Envoy without them, are documented where they are
// implemented. The package does not interpret resources, with one exception: an endpoint assignment has the name of its
// cluster.
//
// Callers may not assume that a stream sees every revision, since a slow one gets the newest. They may not assume
// either that a resource that is requested by name is ever removed from a client: see [removable].
package xds

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Key identifies a resource.
type Key struct {
	Type Type
	Name string
}

// Change has the changes of one commit to one resource set.
type Change struct {
	Set *ResourceSet
	// Changed are added, or replace the resources of the same type and name. A resource whose version the set already
	// has changes nothing.
	Changed []*Resource
	// Removed are removed; a key that the set does not have changes nothing.
	Removed []Key
}

// Catalog is a set of resource sets that change together.
type Catalog struct {
	moving   sync.Mutex   // before the locks of streams, which are before mu
	mu       sync.RWMutex // guards all fields below, and every resource set
	revision uint64
	nonces   atomic.Uint64
}

// NewCatalog returns a catalog without resource sets, at revision 0.
func NewCatalog() *Catalog { return &Catalog{} }

// Revision returns the revision of the newest commit.
func (c *Catalog) Revision() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// Commit applies changes, one for each resource set, and wakes the streams that follow them. It returns the revision,
// which [Server.WaitAcked] takes. It does not wait for any stream.
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

// NewResourceSet returns an empty resource set. It need not be closed: a set that no stream follows is garbage.
func (c *Catalog) NewResourceSet() *ResourceSet {
	return &ResourceSet{catalog: c, followers: map[*session]struct{}{}}
}

// NewOwnSet returns an empty resource set of one client. It is [Catalog.NewResourceSet] without a memory of the
// responses that other streams may send too.
func (c *Catalog) NewOwnSet() *ResourceSet {
	f := c.NewResourceSet()
	f.own = true
	return f
}

// ResourceSet is a set of resources that streams share. Of the sets that a stream follows, only one may have a resource
// of a given type and name, and another one an [Exclusion] of it.
type ResourceSet struct {
	catalog   *Catalog
	own       bool // of one client
	types     [numTypes]typeSet
	followers map[*session]struct{}
}

// Commit is [Catalog.Commit] for this resource set alone.
func (f *ResourceSet) Commit(changed []*Resource, removed []Key) uint64 {
	return f.catalog.Commit(Change{Set: f, Changed: changed, Removed: removed})
}

// Resources returns the resources of the set, also those that another set excludes, by type and name.
func (f *ResourceSet) Resources() []*Resource {
	f.catalog.mu.RLock()
	defer f.catalog.mu.RUnlock()
	var all []*Resource
	for t := range f.types {
		for e := f.types[t].newest; e != nil; e = e.older {
			if e.resource != nil && !e.resource.IsExclusion() {
				all = append(all, e.resource)
			}
		}
	}
	slices.SortFunc(all, func(a, b *Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// apply reports whether anything changed.
func (f *ResourceSet) apply(revision uint64, changed []*Resource, removed []Key) bool {
	differs := false
	for _, r := range changed {
		differs = f.types[r.Type].put(revision, r.Name, r) || differs
	}
	for _, k := range removed {
		differs = f.types[k.Type].put(revision, k.Name, nil) || differs
	}
	for t := range f.types {
		if f.types[t].needsSweep() {
			f.types[t].sweep(f.passed())
		}
	}
	return differs
}

// passed returns the revision that every follower has passed.
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
