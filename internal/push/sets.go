package push

import (
	"slices"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/internal/xds"
)

// resourceSets has the shared resource sets of the proxies that are in use. The lock of the table's writer guards it.
type resourceSets struct {
	catalog   *xds.Catalog
	groups    *sharedSets[proxy.Group, service.List]
	ingresses *sharedSets[proxy.ZoneGroup, sniRouteList]
	forwards  *sharedSets[proxy.ZoneGroup, sniRouteList]
	egresses  *sharedSets[proxy.EgressGroup, sniRouteList]
}

func newResourceSets(c *config, catalog *xds.Catalog) *resourceSets {
	return &resourceSets{
		catalog:   catalog,
		groups:    newSharedSets(c.group, catalog),
		ingresses: newSharedSets(c.ingress, catalog),
		forwards:  newSharedSets(c.forward, catalog),
		egresses:  newSharedSets(c.egress, catalog),
	}
}

// commit publishes the changes of one commit together, and moves streams to other sets.
func (s *resourceSets) commit(e edits, moves ...xds.Move) {
	if len(e)+len(moves) == 0 {
		return
	}
	var changes []xds.Change
	for _, c := range e {
		changes = append(changes, *c)
	}
	s.catalog.CommitAndMove(moves, changes...)
}

// publishZoneProxies moves the differences of a commit into the resource sets of zone ingresses and egresses.
func (s *resourceSets) publishZoneProxies(e edits, changes *table.Changes) {
	s.ingresses.publish(e, changes, nil)
	s.forwards.publish(e, changes, nil)
	s.egresses.publish(e, changes, nil)
}

// sharesAs reports whether two proxies share the same resource sets.
func sharesAs(a, b *proxy.Proxy) bool {
	return a.Group == b.Group && slices.Equal(a.Passes, b.Passes) && slices.Equal(a.EgressGroups, b.EgressGroups) &&
		slices.Equal(a.Forwards, b.Forwards)
}

// join adds a proxy to its shared resource sets, which are made for the first proxy.
func (s *resourceSets) join(e edits, p *proxy.Proxy) {
	s.groups.join(e, p.Group)
	for _, group := range p.Passes {
		s.ingresses.join(e, group)
	}
	for _, group := range p.Forwards {
		s.forwards.join(e, group)
	}
	for _, group := range p.EgressGroups {
		s.egresses.join(e, group)
	}
}

// leave reports whether the proxy was the last one of its group.
func (s *resourceSets) leave(p *proxy.Proxy) (last bool) {
	for _, group := range p.Passes {
		s.ingresses.leave(group)
	}
	for _, group := range p.Forwards {
		s.forwards.leave(group)
	}
	for _, group := range p.EgressGroups {
		s.egresses.leave(group)
	}
	return s.groups.leave(p.Group)
}

// of returns the shared resource sets of a proxy.
func (s *resourceSets) of(p *proxy.Proxy) []*xds.ResourceSet {
	sets := []*xds.ResourceSet{s.groups.open[p.Group].set}
	for _, group := range p.Passes {
		sets = append(sets, s.ingresses.open[group].set)
	}
	for _, group := range p.Forwards {
		sets = append(sets, s.forwards.open[group].set)
	}
	for _, group := range p.EgressGroups {
		sets = append(sets, s.egresses.open[group].set)
	}
	return sets
}

// waits reports whether resources of a group wait to be published.
func (s *resourceSets) waits(group proxy.Group) bool {
	of := s.groups.open[group]
	return of != nil && of.late
}

// GroupSize is the number of a group's proxies that are in use.
type GroupSize struct {
	Group   proxy.Group
	Proxies int
}

// sizes returns the groups that have a proxy in use, in no order.
func (s *resourceSets) sizes() []GroupSize {
	var all []GroupSize
	for key, of := range s.groups.open {
		all = append(all, GroupSize{key, of.members})
	}
	return all
}
