package push

import (
	"slices"
	"time"

	"weft/internal/envoy"
	"weft/internal/table"
	"weft/internal/xds"
)

// block has resources that belong together, and the endpoint lists that they use. It is immutable, and one value for
// all proxies that have it: two versions of what proxies share differ in the blocks that are not the same.
type block[L comparable] struct {
	resources []*xds.Resource
	lists     []L
}

func sameBlock[L comparable](a, b *block[L]) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || slices.Equal(a.lists, b.lists) && sameResources(a.resources, b.resources)
}

// Shared has the resources that several proxies share, without the assignments, which change on their own. Several of
// its blocks may have the same resource or endpoint list. It is empty where its generation failed.
type Shared[L comparable] []*block[L]

// resources returns the resources, sorted by type and name.
func (s Shared[L]) resources() []*xds.Resource {
	var all []*xds.Resource
	for _, b := range s {
		all = append(all, b.resources...)
	}
	return inOrder(all)
}

// lists returns the endpoint lists, in the order of the blocks.
func (s Shared[L]) lists() []L {
	var all []L
	for _, b := range s {
		all = append(all, b.lists...)
	}
	return all
}

// subtract returns the blocks that other does not have, or has less often.
func (s Shared[L]) subtract(other Shared[L]) (rest Shared[L]) {
	has := make(map[*block[L]]int, len(other))
	for _, b := range other {
		has[b]++
	}
	for _, b := range s {
		if has[b]--; has[b] < 0 {
			rest = append(rest, b)
		}
	}
	return rest
}

func sameShared[L comparable](a, b Shared[L]) bool { return slices.EqualFunc(a, b, sameBlock) }

// withoutCommon returns the blocks that two versions do not have in common. It skips those that are in the same place:
// most edits change one.
func withoutCommon[L comparable](a, b Shared[L]) (onlyA, onlyB Shared[L]) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a.subtract(b), b.subtract(a)
}

// sharing derives the resources that proxies with the same K share. The resources use the endpoint lists L.
type sharing[K, L comparable] struct {
	shared     table.Derived[K, Shared[L]]
	assignment table.Derived[L, *xds.Resource]
	name       func(L) string // of a list's assignment
}

// withAssignments returns the resources of a key and their assignments.
func (s *sharing[K, L]) withAssignments(r *table.Reader, key K) []*xds.Resource {
	shared := s.shared.Get(r, key)
	all := shared.resources()
	for _, list := range shared.lists() {
		all = append(all, s.assignment.Get(r, list))
	}
	return all
}

// sharedSets has the shared resource sets of proxies that are in use.
type sharedSets[K, L comparable] struct {
	*sharing[K, L]
	catalog *xds.Catalog
	open    map[K]*sharedSet[L]
	// users are the sets that have the assignment of an endpoint list, with the number of their blocks that use it.
	users map[L]map[*sharedSet[L]]int
	// waiting has the assignments that wait to be published, in their last published versions.
	waiting map[L]*xds.Resource
	latest  time.Time // when the last addition that had to wait was committed
}

// sharedSet is one shared resource set.
type sharedSet[L comparable] struct {
	set     *xds.ResourceSet
	shared  Shared[L] // as published
	late    bool      // further resources wait
	members int
}

func newSharedSets[K, L comparable](s *sharing[K, L], catalog *xds.Catalog) *sharedSets[K, L] {
	return &sharedSets[K, L]{sharing: s, catalog: catalog, open: map[K]*sharedSet[L]{},
		users: map[L]map[*sharedSet[L]]int{}, waiting: map[L]*xds.Resource{}}
}

// sharedChange is the difference between the published version of a shared resource set and another one.
type sharedChange[L comparable] struct {
	old, wanted Shared[L] // the blocks that differ
	changed     []*xds.Resource
	removed     []xds.Key
	gained      []L // endpoint lists
	lost        []L
	adds        bool // everything that was published stays as it is
}

// change compares a version with the published one. Its cost grows with the blocks that differ.
func (p *sharedSets[K, L]) change(of *sharedSet[L], shared Shared[L]) *sharedChange[L] {
	c := &sharedChange[L]{}
	c.old, c.wanted = withoutCommon(of.shared, shared)
	had := c.old.resources()
	c.changed, c.removed = difference(had, c.wanted.resources())
	if len(c.removed) > 0 {
		c.removed = shared.unused(c.removed)
	}
	more := map[L]int{} // blocks that use a list
	for _, list := range c.wanted.lists() {
		if more[list]++; more[list] == 1 && p.users[list][of] == 0 {
			c.gained = append(c.gained, list)
		}
	}
	for _, list := range c.old.lists() {
		if more[list]--; p.users[list][of]+more[list] == 0 {
			c.lost = append(c.lost, list)
		}
	}
	c.adds = len(c.removed)+len(c.lost) == 0 && !slices.ContainsFunc(c.changed, func(r *xds.Resource) bool {
		_, changes := slices.BinarySearchFunc(had, r, compareNames)
		return changes
	})
	return c
}

// unused returns the keys that no block has a resource of.
func (s Shared[L]) unused(keys []xds.Key) []xds.Key {
	used := map[xds.Key]bool{}
	for _, key := range keys {
		used[key] = false
	}
	for _, b := range s {
		for _, r := range b.resources {
			key := xds.Key{Type: r.Type, Name: r.Name}
			if _, wanted := used[key]; wanted {
				used[key] = true
			}
		}
	}
	return slices.DeleteFunc(keys, func(key xds.Key) bool { return used[key] })
}

// update publishes a version.
func (p *sharedSets[K, L]) update(e edits, of *sharedSet[L], shared Shared[L], c *sharedChange[L]) {
	of.shared = shared
	e.add(of.set, c.changed, c.removed)
	for _, list := range c.wanted.lists() {
		p.use(of, list)
	}
	for _, list := range c.old.lists() {
		p.drop(of, list)
	}
	for _, list := range c.gained {
		a := p.assignment.Pin(list)
		if _, waits := p.waiting[list]; waits { // all sets have the same version
			delete(p.waiting, list)
			p.assign(e, list, a)
		} else if a != nil { // nil: generation failed
			e.add(of.set, []*xds.Resource{a}, nil)
		}
	}
	if len(c.lost) == 0 {
		return
	}
	names := map[string]bool{}
	for _, list := range c.wanted.lists() {
		names[p.name(list)] = true
	}
	for _, list := range c.lost {
		p.assignment.Unpin(list)
		if name := p.name(list); !names[name] {
			e.add(of.set, nil, []xds.Key{{Type: xds.Endpoint, Name: name}})
		}
	}
}

// use counts a block of a set that uses an endpoint list.
func (p *sharedSets[K, L]) use(of *sharedSet[L], list L) {
	if p.users[list] == nil {
		p.users[list] = map[*sharedSet[L]]int{}
	}
	p.users[list][of]++
}

// drop reverts one use.
func (p *sharedSets[K, L]) drop(of *sharedSet[L], list L) {
	users := p.users[list]
	if users[of]--; users[of] == 0 {
		delete(users, of)
	}
	if len(users) == 0 {
		delete(p.users, list)
	}
}

// join counts a proxy in, and makes the set for the first one.
func (p *sharedSets[K, L]) join(e edits, key K) {
	of := p.open[key]
	if of == nil {
		of = &sharedSet[L]{set: p.catalog.NewResourceSet()}
		p.open[key] = of
		shared := p.shared.Pin(key)
		p.update(e, of, shared, p.change(of, shared))
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
	for _, list := range p.change(of, nil).lost {
		p.assignment.Unpin(list)
	}
	for _, list := range of.shared.lists() {
		p.drop(of, list)
	}
	p.shared.Unpin(key)
	return true
}

// publish moves the differences of a commit into the resource sets. Additions wait in the groups for which hold returns
// true (nil: in none). It returns whether it has published an addition, and whether it has published anything else:
// then the caller publishes what waits in the same commit.
//
// The first endpoint of an assignment that was published empty does not wait: without it, every request fails.
func (p *sharedSets[K, L]) publish(e edits, changes *table.Changes, delays func(K) bool) (hasAdditions, changed bool) {
	for key, shared := range table.ChangedValues(p.shared, changes) {
		of := p.open[key]
		c := p.change(of, shared)
		if of.late = c.adds && delays != nil && delays(key); of.late {
			p.latest = time.Now()
			continue
		}
		hasAdditions, changed = hasAdditions || c.adds, changed || !c.adds
		p.update(e, of, shared, c)
	}
	for c := range table.Transitions(p.assignment, changes) {
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
			hasAdditions, changed = hasAdditions || adds, changed || !adds
		}
	}
	return hasAdditions, changed
}

// assign puts an assignment into every resource set that has it, and reports whether any has.
func (p *sharedSets[K, L]) assign(e edits, list L, assignment *xds.Resource) (assigned bool) {
	if assignment == nil { // generation failed
		return false
	}
	for of := range p.users[list] {
		e.add(of.set, []*xds.Resource{assignment}, nil)
	}
	return len(p.users[list]) > 0
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
			p.update(e, of, shared, p.change(of, shared))
		}
	}
}
