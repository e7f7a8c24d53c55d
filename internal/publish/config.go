package publish

import (
	"cmp"
	"slices"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
)

// Own is what one proxy has for itself: its inbounds and whatever binds a port.
type Own struct {
	Proxy     *graph.Proxy
	Resources []*xds.Resource // sorted by type and name
}

// Shared is what every proxy of a class has, but for the assignments: those change on their own.
type Shared struct {
	Resources []*xds.Resource        // sorted by type and name
	Lists     []graph.DestinationKey // of endpoints, sorted
}

// outbound is what a destination is made into, and the lists of endpoints that this uses.
type outbound struct {
	resources []*xds.Resource
	lists     []graph.DestinationKey
}

// Ingress is what every zone ingress of a mesh has, but for the assignments: those change on their own.
type Ingress struct {
	Resources []*xds.Resource // sorted by type and name
	Passages  []graph.Passage // sorted
}

// config are the last stages of the table: from our own nouns to encoded resources. A resource of a
// destination is made once and shared by all classes that reach it.
type config struct {
	state      *graph.State
	outbound   *table.Derived[outboundKey, *outbound]
	assignment *table.Derived[graph.DestinationKey, *xds.Resource]
	bundles    *table.Derived[string, []*xds.Resource]
	putOut     *table.Derived[string, []*xds.Resource]
	shared     *table.Derived[graph.Class, *Shared]
	names      *table.Derived[graph.Class, *Names]
	// passage is the cluster of a server name, passageAssignment what is behind it.
	passage           *table.Derived[string, *xds.Resource]
	passageAssignment *table.Derived[graph.Passage, *xds.Resource]
	ingress           *table.Derived[string, *Ingress]
	own               *table.Derived[graph.ProxyKey, *Own]
}

// outboundKey is a destination with all of a class that its resources depend on.
type outboundKey struct {
	destination graph.DestinationKey
	secured     bool
	source      graph.Source
	families    string // of the listeners at its virtual IPs; empty: none
}

func newConfig(state *graph.State) *config {
	c := &config{state: state}
	c.outbound = table.NewDerived(state.DB, "outbounds", c.makeOutbound, sameOutbound)
	c.assignment = table.NewDerived(state.DB, "assignments", c.makeAssignment, sameResource)
	c.bundles = table.NewDerived(state.DB, "trust bundles", c.makeBundles, sameResources)
	c.putOut = table.NewDerived(state.DB, "filters of whom a mesh has put out", c.makePutOut, sameResources)
	c.shared = table.NewDerived(state.DB, "shared by class", c.makeShared, sameShared)
	c.names = table.NewDerived(state.DB, "names by class", c.makeNames, sameNames)
	c.passage = table.NewDerived(state.DB, "clusters of server names", c.makePassage, sameResource)
	c.passageAssignment = table.NewDerived(state.DB, "assignments of server names", c.makePassageAssignment, sameResource)
	c.ingress = table.NewDerived(state.DB, "shared by zone ingresses", c.makeIngress, sameIngress)
	c.own = table.NewDerived(state.DB, "own of proxy", c.makeOwn, sameOwn)
	return c
}

func (c *config) makeOutbound(r *table.Reader, key outboundKey) *outbound {
	d := c.state.DestinationOf(r, key.destination)
	if d == nil {
		return &outbound{}
	}
	resources := append(envoy.Clusters(d, key.secured, key.source), envoy.Route(d))
	if key.families != "" {
		resources = append(resources, envoy.VIPListeners(d, key.families)...)
	}
	return &outbound{resources, d.Lists(key.secured)}
}

func (c *config) makeAssignment(r *table.Reader, key graph.DestinationKey) *xds.Resource {
	return envoy.Assignment(c.state.EndpointsOf(r, key))
}

func (c *config) makeBundles(r *table.Reader, mesh string) []*xds.Resource {
	trust := c.state.Trust.Get(r, mesh)
	return append(envoy.DomainBundles(trust), envoy.TrustBundle(trust))
}

func (c *config) makePutOut(r *table.Reader, mesh string) []*xds.Resource {
	return envoy.PutOut(mesh, c.state.PutOut.Get(r, mesh))
}

func (c *config) makeShared(r *table.Reader, class graph.Class) *Shared {
	s := &Shared{}
	for _, d := range c.state.Reached.Get(r, class) {
		if o := c.outbound.Get(r, outboundKey{d, class.Secured, class.Source, class.IPFamilies}); o != nil { // nil: it could not be made yet
			s.Resources = append(s.Resources, o.resources...)
			s.Lists = append(s.Lists, o.lists...)
		}
	}
	slices.SortFunc(s.Lists, graph.CompareDestinations)
	switch {
	case class.Source.FromSPIRE():
		s.Resources = append(s.Resources, envoy.SPIREAgent(class.Source))
	case class.Secured:
		s.Resources = append(s.Resources, c.bundles.Get(r, class.Mesh)...)
	}
	if class.Secured {
		s.Resources = append(s.Resources, c.putOut.Get(r, class.Mesh)...)
	}
	s.Resources = inOrder(s.Resources)
	return s
}

func (c *config) makePassage(_ *table.Reader, sni string) *xds.Resource {
	return envoy.PassageCluster(sni)
}

func (c *config) makePassageAssignment(r *table.Reader, p graph.Passage) *xds.Resource {
	return envoy.PassageAssignment(p.SNI, c.state.Passable.Get(r, p.Destination))
}

func (c *config) makeIngress(r *table.Reader, mesh string) *Ingress {
	i := &Ingress{Passages: c.state.Passages.Get(r, mesh)}
	for _, p := range i.Passages {
		i.Resources = append(i.Resources, c.passage.Get(r, p.SNI))
	}
	i.Resources = inOrder(i.Resources)
	return i
}

func (c *config) makeOwn(r *table.Reader, key graph.ProxyKey) *Own {
	p := c.state.Proxy.Get(r, key)
	if p == nil {
		return nil
	}
	own := &Own{Proxy: p}
	for i := range p.Listeners {
		own.Resources = append(own.Resources, envoy.Inbound(&p.Listeners[i], p.Identity != nil)...)
	}
	for i := range p.Outbounds {
		own.Resources = append(own.Resources, envoy.Explicit(&p.Outbounds[i]))
	}
	for i := range p.Ingresses {
		own.Resources = append(own.Resources, envoy.Ingress(&p.Ingresses[i]))
	}
	if p.Capture != nil {
		own.Resources = append(own.Resources, envoy.Capture(p.Capture)...)
	}
	own.Resources = inOrder(own.Resources)
	return own
}

// inOrder sorts resources and drops what is nil or stands there twice: inbounds with equal rules share
// the resources that hold them.
func inOrder(resources []*xds.Resource) []*xds.Resource {
	resources = slices.DeleteFunc(resources, func(r *xds.Resource) bool { return r == nil })
	slices.SortFunc(resources, compareNames)
	return slices.CompactFunc(resources, func(a, b *xds.Resource) bool { return compareNames(a, b) == 0 })
}

func compareNames(a, b *xds.Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

func sameResource(a, b *xds.Resource) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || a.Type == b.Type && a.Name == b.Name && a.Version == b.Version
}

func sameResources(a, b []*xds.Resource) bool { return slices.EqualFunc(a, b, sameResource) }

func sameOutbound(a, b *outbound) bool {
	return slices.Equal(a.lists, b.lists) && sameResources(a.resources, b.resources)
}

func sameShared(a, b *Shared) bool {
	return slices.Equal(a.Lists, b.Lists) && sameResources(a.Resources, b.Resources)
}

func sameIngress(a, b *Ingress) bool {
	return slices.Equal(a.Passages, b.Passages) && sameResources(a.Resources, b.Resources)
}

func sameOwn(a, b *Own) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Proxy == b.Proxy
}

// difference walks two sorted lists and tells what became of their resources.
func difference(old, wanted []*xds.Resource) (changed []*xds.Resource, removed []xds.Key) {
	for len(old) > 0 || len(wanted) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(wanted) == 0:
			order = -1
		default:
			order = compareNames(old[0], wanted[0])
		}
		switch {
		case order < 0:
			removed = append(removed, xds.Key{Type: old[0].Type, Name: old[0].Name})
			old = old[1:]
		case order > 0:
			changed = append(changed, wanted[0])
			wanted = wanted[1:]
		default:
			if old[0].Version != wanted[0].Version {
				changed = append(changed, wanted[0])
			}
			old, wanted = old[1:], wanted[1:]
		}
	}
	return changed, removed
}
