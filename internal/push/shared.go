package push

import (
	"cmp"
	"slices"
	"time"

	"weft/internal/envoy"
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
	if !slices.Equal(before.Lists, shared.Lists) {
		p.updateLists(e, of, before)
	}
}

// updateLists makes a resource set have the assignments of other endpoint lists than before.
func (p *sharedSets[K, L]) updateLists(e edits, of *sharedSet[L], before *Shared[L]) {
	shared, names := of.shared, map[string]bool{}
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

// publish moves the differences of a commit into the resource sets. Additions wait in the groups for which hold returns
// true (nil: in none). It returns whether it has published an addition, and whether it has published anything else:
// then the caller publishes what waits in the same commit.
//
// The first endpoint of an assignment that was published empty does not wait: without it, every request fails.
func (p *sharedSets[K, L]) publish(e edits, changes *table.Changes, delays func(K) bool) (grew, changed bool) {
	for key, shared := range p.shared.Changed(changes) {
		of := p.open[key]
		adds := p.onlyAdds(of.shared, shared)
		if of.late = adds && delays != nil && delays(key); of.late {
			p.latest = time.Now()
			continue
		}
		grew, changed = grew || adds, changed || !adds
		p.update(e, of, shared)
	}
	for c := range p.assignment.Transitions(changes) {
		published, waits := p.waiting[c.Key]
		if !waits {
			published = c.Old
		}
		adds := envoy.OnlyAddsEndpoints(published, c.New)
		if adds && delays != nil && envoy.HasEndpoints(published) {
			p.waiting[c.Key] = published
			p.latest = time.Now()
			continue
		}
		delete(p.waiting, c.Key)
		if p.assign(e, c.Key, c.New) {
			grew, changed = grew || adds, changed || !adds
		}
	}
	return grew, changed
}

// onlyAdds reports whether everything that was shared stays as it is.
func (p *sharedSets[K, L]) onlyAdds(before, after *Shared[L]) bool {
	changed, removed := difference(before.Resources, after.Resources)
	return len(removed) == 0 &&
		!slices.ContainsFunc(changed, func(r *xds.Resource) bool {
			_, had := slices.BinarySearchFunc(before.Resources, r, compareNames)
			return had
		}) &&
		!slices.ContainsFunc(before.Lists, func(list L) bool { return !p.has(after, list) })
}

// assign puts an assignment into every resource set that has it, and reports whether any has.
func (p *sharedSets[K, L]) assign(e edits, list L, assignment *xds.Resource) (assigned bool) {
	if assignment == nil { // generation failed
		return false
	}
	for _, each := range p.open {
		if p.has(each.shared, list) {
			e.add(each.set, []*xds.Resource{assignment}, nil)
			assigned = true
		}
	}
	return assigned
}

// waits reports whether any addition waits.
func (p *sharedSets[K, L]) waits() bool {
	for _, of := range p.open {
		if of.late {
			return true
		}
	}
	return len(p.waiting) > 0
}

// release publishes all that waits.
func (p *sharedSets[K, L]) release(e edits) {
	for list := range p.waiting {
		if assignment, ok := p.assignment.Value(list); ok {
			p.assign(e, list, assignment)
		}
	}
	clear(p.waiting)
	for key, of := range p.open {
		if shared, ok := p.shared.Value(key); of.late && ok {
			of.late = false
			p.update(e, of, shared)
		}
	}
}
