package push

import (
	"slices"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
)

// edits collects the changes of one commit to each resource set.
type edits map[*xds.ResourceSet]*xds.Change

func (e edits) of(f *xds.ResourceSet) *xds.Change {
	if e[f] == nil {
		e[f] = &xds.Change{Set: f}
	}
	return e[f]
}

func (e edits) add(f *xds.ResourceSet, changed []*xds.Resource, removed []xds.Key) {
	if len(changed)+len(removed) == 0 {
		return
	}
	c := e.of(f)
	c.Changed = append(c.Changed, changed...)
	c.Removed = append(c.Removed, removed...)
}

// resourceSets has the shared resource sets of the proxies that are in use. The lock of the hub guards it.
type resourceSets struct {
	catalog   *xds.Catalog
	groups    *sharedSets[graph.ProxyGroup, graph.DestinationKey]
	ingresses *sharedSets[string, graph.SNIRoute] // by mesh
	forwards  *sharedSets[string, graph.SNIRoute] // by mesh
	egresses  *sharedSets[string, graph.SNIRoute] // by mesh
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

// commit publishes the changes of one commit together.
func (s *resourceSets) commit(e edits) {
	if len(e) == 0 {
		return
	}
	var changes []xds.Change
	for _, c := range e {
		changes = append(changes, *c)
	}
	s.catalog.Commit(changes...)
}

// publishZoneProxies moves the differences of a commit into the resource sets of zone ingresses and egresses.
func (s *resourceSets) publishZoneProxies(e edits, changes *table.Changes) {
	s.ingresses.publish(e, changes, nil)
	s.forwards.publish(e, changes, nil)
	s.egresses.publish(e, changes, nil)
}

// sharesAs reports whether two proxies share the same resource sets.
func sharesAs(a, b *graph.Proxy) bool {
	return a.Group == b.Group && slices.Equal(a.Passes, b.Passes) && slices.Equal(a.IsEgress, b.IsEgress) &&
		slices.Equal(a.Forwards, b.Forwards)
}

// join adds a proxy to its shared resource sets, which are made for the first proxy.
func (s *resourceSets) join(e edits, p *graph.Proxy) {
	s.groups.join(e, p.Group)
	for _, mesh := range p.Passes {
		s.ingresses.join(e, mesh)
	}
	for _, mesh := range p.Forwards {
		s.forwards.join(e, mesh)
	}
	for _, mesh := range p.IsEgress {
		s.egresses.join(e, mesh)
	}
}

// leave reports whether the proxy was the last one of its group.
func (s *resourceSets) leave(p *graph.Proxy) (last bool) {
	for _, mesh := range p.Passes {
		s.ingresses.leave(mesh)
	}
	for _, mesh := range p.Forwards {
		s.forwards.leave(mesh)
	}
	for _, mesh := range p.IsEgress {
		s.egresses.leave(mesh)
	}
	return s.groups.leave(p.Group)
}

// setsOf returns the resource sets that the streams of a proxy follow: the shared ones and its own.
func (s *resourceSets) setsOf(p *proxy) []*xds.ResourceSet {
	if p.own == nil {
		return []*xds.ResourceSet{p.set}
	}
	sets := []*xds.ResourceSet{s.groups.open[p.own.Proxy.Group].set}
	for _, mesh := range p.own.Proxy.Passes {
		sets = append(sets, s.ingresses.open[mesh].set)
	}
	for _, mesh := range p.own.Proxy.Forwards {
		sets = append(sets, s.forwards.open[mesh].set)
	}
	for _, mesh := range p.own.Proxy.IsEgress {
		sets = append(sets, s.egresses.open[mesh].set)
	}
	return append(sets, p.set)
}
