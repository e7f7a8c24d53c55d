package push

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/table"
	"weft/internal/xds"
)

// Shared has the resources that several proxies share, without the assignments, which change on their own.
type Shared[L any] struct {
	Resources []*xds.Resource // sorted by type and name
	Lists     []L             // of endpoints, sorted
}

// sharing derives the resources that proxies with the same K share. The resources use the endpoint lists L.
type sharing[K, L comparable] struct {
	shared     *table.Derived[K, *Shared[L]]
	assignment *table.Derived[L, *xds.Resource]
	order      func(a, b L) int
	name       func(L) string // of a list's assignment
}

// sharedOf returns the value of shared, empty where its generation failed.
func (s *sharing[K, L]) sharedOf(r *table.Reader, key K) *Shared[L] {
	return cmp.Or(s.shared.Get(r, key), &Shared[L]{})
}

// withAssignments returns the resources of a key and their assignments.
func (s *sharing[K, L]) withAssignments(r *table.Reader, key K) []*xds.Resource {
	shared := s.sharedOf(r, key)
	all := slices.Clone(shared.Resources)
	for _, list := range shared.Lists {
		all = append(all, s.assignment.Get(r, list))
	}
	return all
}

func sameShared[L comparable](a, b *Shared[L]) bool {
	return slices.Equal(a.Lists, b.Lists) && sameResources(a.Resources, b.Resources)
}

// sharedSets has the shared resource sets of proxies that are in use.
type sharedSets[K, L comparable] struct {
	*sharing[K, L]
	catalog *xds.Catalog
	open    map[K]*sharedSet[L]
	// waiting has the assignments that wait to be published, in their last published versions.
	waiting map[L]*xds.Resource
	latest  time.Time // when the last addition that had to wait was committed
}

// sharedSet is one shared resource set.
type sharedSet[L comparable] struct {
	set     *xds.ResourceSet
	shared  *Shared[L] // as published
	late    bool       // further resources wait
	members int
}

func newSharedSets[K, L comparable](s *sharing[K, L], catalog *xds.Catalog) *sharedSets[K, L] {
	return &sharedSets[K, L]{sharing: s, catalog: catalog, open: map[K]*sharedSet[L]{}, waiting: map[L]*xds.Resource{}}
}

func (p *sharedSets[K, L]) update(e edits, of *sharedSet[L], shared *Shared[L]) {
	before := of.shared
	of.shared = shared
	changed, removed := difference(before.Resources, shared.Resources)
	e.add(of.set, changed, removed)
	names := map[string]bool{}
	for _, list := range shared.Lists {
		names[p.name(list)] = true
		if p.has(before, list) {
			continue
		}
		a := p.assignment.Pin(list)
		if _, waits := p.waiting[list]; waits { // all sets have the same version
			delete(p.waiting, list)
			p.assign(e, list, a)
		} else if a != nil { // nil: generation failed
			e.add(of.set, []*xds.Resource{a}, nil)
		}
	}
	for _, list := range before.Lists {
		if p.has(shared, list) {
			continue
		}
		p.assignment.Unpin(list)
		if name := p.name(list); !names[name] {
			e.add(of.set, nil, []xds.Key{{Type: xds.Endpoint, Name: name}})
		}
	}
}

func (p *sharedSets[K, L]) has(shared *Shared[L], list L) bool {
	_, found := slices.BinarySearchFunc(shared.Lists, list, p.order)
	return found
}

// join counts a proxy in, and makes the set for the first one.
func (p *sharedSets[K, L]) join(e edits, key K) {
	of := p.open[key]
	if of == nil {
		of = &sharedSet[L]{set: p.catalog.NewResourceSet(), shared: &Shared[L]{}}
		p.open[key] = of
		p.update(e, of, cmp.Or(p.shared.Pin(key), of.shared)) // nil: generation failed
	}
	of.members++
}

// leave reports whether the proxy was the last one.
func (p *sharedSets[K, L]) leave(key K) (last bool) {
	of := p.open[key]
	if of.members--; of.members > 0 {
		return false
	}
	delete(p.open, key)
	for _, list := range of.shared.Lists {
		p.assignment.Unpin(list)
	}
	p.shared.Unpin(key)
	return true
}
