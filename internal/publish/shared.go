package publish

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/table"
	"weft/internal/xds"
)

// Shared is what several proxies have, but for the assignments: those change on their own.
type Shared[L any] struct {
	Resources []*xds.Resource // sorted by type and name
	Lists     []L             // of endpoints, sorted
}

// sharing derives what proxies have that agree in a K, which uses the lists of endpoints L.
type sharing[K, L comparable] struct {
	shared     *table.Derived[K, *Shared[L]]
	assignment *table.Derived[L, *xds.Resource]
	order      func(a, b L) int
	name       func(L) string // of a list's assignment
}

// of is what shared has, nothing where it could not be made yet.
func (s *sharing[K, L]) of(r *table.Reader, key K) *Shared[L] {
	return cmp.Or(s.shared.Get(r, key), &Shared[L]{})
}

// all are the resources of a key with the assignments.
func (s *sharing[K, L]) all(r *table.Reader, key K) []*xds.Resource {
	shared := s.of(r, key)
	all := slices.Clone(shared.Resources)
	for _, list := range shared.Lists {
		all = append(all, s.assignment.Get(r, list))
	}
	return all
}

func sameShared[L comparable](a, b *Shared[L]) bool {
	return slices.Equal(a.Lists, b.Lists) && sameResources(a.Resources, b.Resources)
}

// pools are the feeds of attached proxies that share them.
type pools[K, L comparable] struct {
	*sharing[K, L]
	catalog *xds.Catalog
	open    map[K]*pool[L]
	// waiting are the assignments that wait to be published, as they were published last.
	waiting map[L]*xds.Resource
	latest  time.Time // when the last addition that had to wait was committed
}

// pool is one of them.
type pool[L comparable] struct {
	feed    *xds.ResourceSet
	shared  *Shared[L] // as it is published
	late    bool       // there is more of it, which waits
	members int
}

func newPools[K, L comparable](s *sharing[K, L], catalog *xds.Catalog) *pools[K, L] {
	return &pools[K, L]{sharing: s, catalog: catalog, open: map[K]*pool[L]{}, waiting: map[L]*xds.Resource{}}
}

func (p *pools[K, L]) update(e edits, of *pool[L], shared *Shared[L]) {
	before := of.shared
	of.shared = shared
	changed, removed := difference(before.Resources, shared.Resources)
	e.add(of.feed, changed, removed)
	names := map[string]bool{}
	for _, list := range shared.Lists {
		names[p.name(list)] = true
		if p.has(before, list) {
			continue
		}
		a := p.assignment.Pin(list)
		if _, waits := p.waiting[list]; waits { // all sets have the same version of it
			delete(p.waiting, list)
			p.assign(e, list, a)
		} else if a != nil { // nil: it could not be made yet
			e.add(of.feed, []*xds.Resource{a}, nil)
		}
	}
	for _, list := range before.Lists {
		if p.has(shared, list) {
			continue
		}
		p.assignment.Unpin(list)
		if name := p.name(list); !names[name] {
			e.add(of.feed, nil, []xds.Key{{Type: xds.Endpoint, Name: name}})
		}
	}
}

func (p *pools[K, L]) has(shared *Shared[L], list L) bool {
	_, found := slices.BinarySearchFunc(shared.Lists, list, p.order)
	return found
}

// join counts a proxy in; the feed is made for the first one.
func (p *pools[K, L]) join(e edits, key K) {
	of := p.open[key]
	if of == nil {
		of = &pool[L]{feed: p.catalog.NewResourceSet(), shared: &Shared[L]{}}
		p.open[key] = of
		p.update(e, of, cmp.Or(p.shared.Pin(key), of.shared)) // nil: it could not be made yet
	}
	of.members++
}

// leave answers whether it was the last one.
func (p *pools[K, L]) leave(key K) (last bool) {
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
