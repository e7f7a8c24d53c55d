package push

import (
	"slices"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// Own has the resources that belong to one proxy alone: its inbounds, and listeners that bind a port.
type Own struct {
	Proxy     *proxy.Proxy
	Resources []*xds.Resource // sorted by type and name
	// Excluded are exclusions of resources that the proxy's group shares.
	Excluded []*xds.Resource
}

// entries returns what the resource set of the proxy has, sorted by type and name.
func (o *Own) entries() []*xds.Resource {
	if o == nil {
		return nil
	}
	return inOrder(slices.Concat(o.Resources, o.Excluded))
}

// outbound has the clusters of a destination, or the listeners and the route of a destination with its clusters.
type outbound = block[service.List]

// config has the last stages of the table: from weft's own types to encoded resources. A resource of a destination is
// generated once and shared by all proxy groups that reach it.
type config struct {
	state           *graph.State
	clusters        table.Derived[clustersKey, *outbound]
	outbound        table.Derived[outboundKey, *outbound]
	patches         table.Derived[policy.Confs, *envoy.Patches] // of a proxy or a group
	bundles         table.Derived[string, []*xds.Resource]
	evicted         table.Derived[string, []*xds.Resource]
	trust           table.Derived[trustKey, *outbound]
	names           table.Derived[proxy.Group, *HostNames]
	sniRouteCluster table.Derived[sniRouteKey, *xds.Resource]
	upstream        table.Derived[upstreamKey, []*xds.Resource]
	patched         table.Derived[patchedKey, *outbound]
	matches         table.Derived[patchedKey, envoy.Patched] // for inspection: never kept
	near            table.Derived[nearKey, *outbound]
	externalRoute   table.Derived[externalRouteKey, *xds.Resource]
	captures        table.Derived[proxy.Capture, []*xds.Resource]
	inbounds        table.Derived[proxy.InboundSettings, *envoy.InboundParts]
	own             table.Derived[state.ProxyKey, *Own]
	reached         table.Derived[reachedPart, Shared[service.List]]
	// The resources that are shared by the proxies of a group, by the zone ingresses of a mesh with the same policies,
	// and by its zone egresses: those that forward to other zones, and those that dial external services.
	group   *sharing[proxy.Group, service.List]
	ingress *sharing[proxy.ZoneGroup, sniRouteList]
	forward *sharing[proxy.ZoneGroup, sniRouteList]
	egress  *sharing[proxy.EgressGroup, sniRouteList]
}

// clustersKey is a destination and the properties of a proxy group on which the clusters of the destination depend.
type clustersKey struct {
	destination service.DestinationKey
	secured     bool
	source      identity.Source
	confs       policy.Confs // the effective confs of the traffic to the destination
}

// sniRouteKey is the cluster of an SNI route, by its name, and the effective confs of the traffic to its destination.
type sniRouteKey struct {
	name  string
	confs policy.Confs
}

// upstreamKey is an external service as an egress dials it: the effective confs of its callers at the egress, and those
// of the traffic to it.
type upstreamKey struct {
	externalRouteKey
	sent    policy.Confs
	machine kind.IPFamilies // as [proxy.Group] has it
}

// sniRouteList is the endpoint list of an SNI route as zone proxies on some machines use it.
type sniRouteList struct {
	zoneproxy.SNIRoute
	machine kind.IPFamilies // as [proxy.Group] has it
}

// externalRouteKey is an external service and the effective confs of its callers at an egress.
type externalRouteKey struct {
	destination service.DestinationKey
	confs       policy.Confs
}

// outboundKey is a destination that clients address, and the properties of a proxy group on which its resources depend.
type outboundKey struct {
	clustersKey
	families kind.IPFamilies    // of the listeners at virtual IPs; empty: none
	without  proxy.VIPs         // virtual IPs without a listener
	route    service.RouteValue // of the policies; the zero value: no policy routes the traffic
}

// patchedKey is shared resources after the modifications of a group of proxies.
type patchedKey struct {
	of    any // an outboundKey, clustersKey, sniRouteKey or upstreamKey
	patch policy.Confs
}

// nearKey is the resources of a destination with the endpoint lists that clients with some values use.
type nearKey struct {
	patchedKey
	clients service.Affinity
	machine kind.IPFamilies // as [proxy.Group] has it
}

// trustKey is the proxies of a mesh whose certificates and roots have one source. Those without a mesh are
// ZoneEgresses.
type trustKey struct {
	mesh   string
	source identity.Source
}

func newConfig(state *graph.State) *config {
	c := &config{state: state}
	c.clusters = table.NewDerived(state.Tables.DB, "clusters of a destination", c.makeClusters, sameBlock)
	c.outbound = table.NewDerived(state.Tables.DB, "outbounds", c.makeOutbound, sameBlock)
	c.patches = table.NewDerived(state.Tables.DB, "modifications of resources", c.makePatches,
		func(*envoy.Patches, *envoy.Patches) bool { return false })
	c.bundles = table.NewDerived(state.Tables.DB, "trust bundles", c.makeBundles, sameResources)
	c.evicted = table.NewDerived(state.Tables.DB, "filters that deny evicted proxies", c.makeDenyEvicted, sameResources)
	c.trust = table.NewDerived(state.Tables.DB, "trust of proxy groups", c.makeTrust, sameBlock)
	c.names = table.NewDerived(state.Tables.DB, "host names by proxy group", c.makeNames, sameNames)
	c.sniRouteCluster = table.NewDerived(state.Tables.DB, "clusters of SNI routes", makeSNIRouteCluster, sameResource)
	c.upstream = table.NewDerived(state.Tables.DB, "external upstreams", c.makeUpstream, sameResources)
	c.patched = table.NewDerived(state.Tables.DB, "modified resources", c.makePatched, sameBlock)
	c.matches = table.NewDerived(state.Tables.DB, "matches of modifications", c.makeMatches,
		func(envoy.Patched, envoy.Patched) bool { return false })
	c.near = table.NewDerived(state.Tables.DB, "outbounds by clients' values", c.makeNear, sameBlock)
	c.externalRoute = table.NewDerived(state.Tables.DB, "routes of external services", c.makeExternalRoute,
		sameResource)
	c.captures = table.NewDerived(state.Tables.DB, "listeners of redirected connections", makeCapture, sameResources)
	c.inbounds = table.NewDerived(state.Tables.DB, "common parts of inbounds", makeInboundParts,
		func(*envoy.InboundParts, *envoy.InboundParts) bool { return false })
	c.own = table.NewDerived(state.Tables.DB, "own of proxy", c.makeOwn, sameOwn)
	c.reached = table.NewDerived(state.Tables.DB, "parts of a proxy group", c.makeReached, sameShared)
	c.group = &sharing[proxy.Group, service.List]{
		shared:     table.NewDerived(state.Tables.DB, "shared by proxy group", c.makeShared, sameShared),
		assignment: table.NewDerived(state.Tables.DB, "assignments", c.makeAssignment, sameResource),
		name:       func(list service.List) string { return list.String() },
	}
	c.ingress = &sharing[proxy.ZoneGroup, sniRouteList]{
		shared: table.NewDerived(state.Tables.DB, "shared by zone ingresses", c.makeIngress, sameShared),
		assignment: table.NewDerived(
			state.Tables.DB,
			"endpoints of SNI routes",
			c.makeSNIRouteAssignment,
			sameResource,
		),
		name: func(list sniRouteList) string { return envoy.SNIRouteCluster(list.SNIRoute) },
	}
	c.forward = &sharing[proxy.ZoneGroup, sniRouteList]{
		shared:     table.NewDerived(state.Tables.DB, "cross-zone SNI routes", c.makeForward, sameShared),
		assignment: c.ingress.assignment,
		name:       c.ingress.name,
	}
	c.egress = &sharing[proxy.EgressGroup, sniRouteList]{
		shared:     table.NewDerived(state.Tables.DB, "shared by zone egresses", c.makeEgress, sameShared),
		assignment: c.ingress.assignment,
		name:       c.ingress.name,
	}
	return c
}

func (c *config) makeClusters(r *table.Reader, key clustersKey) *outbound {
	d := c.state.Services.DestinationOf(r, key.destination)
	if d == nil {
		return &outbound{}
	}
	by := service.EffectiveOf(key.confs)
	d = d.WithConfs(by)
	return &outbound{inOrder(envoy.Clusters(d, key.secured, key.source)), d.Lists(key.secured)}
}

// makeOutbound returns the listeners and the route of a destination, and its own clusters, also where the route leads
// to other backends only: a route that returns to them finds them. It returns nothing while they cannot be generated.
func (c *config) makeOutbound(r *table.Reader, key outboundKey) *outbound {
	d, clusters := c.state.Services.DestinationOf(r, key.destination), c.clusters.Get(r, key.clustersKey)
	route := c.routeOf(r, key.destination, key.route, key.confs)
	if d == nil || route == nil || clusters == nil {
		return &outbound{}
	}
	resources := append(slices.Concat(clusters.resources, envoy.SNIProxies(route)), envoy.Route(route))
	if key.families != "" {
		resources = append(resources, envoy.VIPListeners(d, route, key.families, key.without)...)
	}
	return &outbound{inOrder(resources), clusters.lists}
}

// routeOf returns the route of the traffic to a destination with effective confs, as policies route it; nil where there
// is no such destination.
func (c *config) routeOf(r *table.Reader, to service.DestinationKey, value service.RouteValue,
	confs policy.Confs) *service.Route {
	route := value.Get()
	if route == nil {
		route = c.state.Services.Routes.Get(r, to)
	}
	if route == nil {
		return nil
	}
	return route.WithConfs(service.EffectiveOf(confs))
}

func (c *config) makeAssignment(r *table.Reader, list service.List) *xds.Resource {
	return envoy.Assignment(c.state.Services.EndpointsOfList(r, list))
}

func (c *config) makeBundles(r *table.Reader, mesh string) []*xds.Resource {
	trust := c.state.Identity.Trust.Get(r, mesh)
	bundles := append(envoy.DomainBundles(trust), envoy.TrustBundle(trust))
	return append(bundles, envoy.EgressBundle(c.state.Identity.EgressTrust.Get(r, mesh)))
}

func (c *config) makeDenyEvicted(r *table.Reader, mesh string) []*xds.Resource {
	return envoy.EvictionFilters(mesh, c.state.Identity.EvictedSANs.Get(r, mesh))
}

// clustersKey returns the key of the clusters by which a group reaches a destination, with the confs of the group's
// policies about it, whichever route leads to it.
func (c *config) clustersKey(r *table.Reader, group proxy.Group, d service.DestinationKey) clustersKey {
	return clustersKey{d, group.Secured, group.Source, c.state.Proxies.ConfsOf(r, group.Policies, d)}
}

// reachedPart is a part of the destinations of a group.
type reachedPart struct {
	group proxy.Group
	of    proxy.ReachPart
}

// makeReached returns the resources of a part of a group's destinations. Several routes may lead to a destination.
func (c *config) makeReached(r *table.Reader, part reachedPart) (shared Shared[service.List]) {
	group := part.group
	add := func(key any) {
		if o := c.outboundOf(r, group, key); o != nil { // nil: generation failed
			shared = append(shared, o)
		}
	}
	concerned := c.state.Proxies.ConcernedBy(r, group.Policies, part.of)
	for _, d := range c.state.Proxies.ReachedPart.Get(r, part.of) {
		for _, key := range c.outboundKeys(r, group, d, concerned[d]) {
			add(key)
		}
	}
	return shared
}

// outboundKeys returns the keys of the resources by which a group reaches a destination. concerned states that policies
// of the group may be about it.
func (c *config) outboundKeys(r *table.Reader, group proxy.Group, d service.DestinationKey, concerned bool) []any {
	key := outboundKey{clustersKey: clustersKey{d, group.Secured, group.Source, policy.Confs{}}}
	if key.families = group.IPFamilies; group.Transparent {
		key.without = c.state.Proxies.ExcludedVIPs(r, group, d)
	}
	if concerned {
		key.clustersKey, key.route = c.clustersKey(r, group, d), c.state.Proxies.RouteOf(r, group.Policies, d)
	}
	keys := []any{key}
	if routed := key.route.Get(); routed != nil {
		for _, backend := range routed.Backends() {
			keys = append(keys, c.clustersKey(r, group, backend))
		}
	}
	return keys
}

// outboundOf returns the resources of a destination for a group: after the modifications of the group, and with the
// endpoint lists that its clients use.
func (c *config) outboundOf(r *table.Reader, group proxy.Group, of any) *outbound {
	key := patchedKey{of, group.Patch}
	o := c.generated(r, key)
	if o != nil && (group.Machine != "" && len(o.lists) > 0 || slices.ContainsFunc(o.lists, service.List.IsGrouped)) {
		return c.near.Get(r, nearKey{key, group.Affinity, group.Machine})
	}
	return o
}

func (c *config) makeNear(r *table.Reader, key nearKey) *outbound {
	o := c.generated(r, key.patchedKey)
	if o == nil {
		return nil
	}
	near := &outbound{resources: o.resources}
	for _, list := range o.lists {
		near.lists = append(near.lists, c.state.Services.ListFor(r, list, key.clients).OnMachines(key.machine))
	}
	return near
}

func (c *config) makeShared(r *table.Reader, group proxy.Group) (shared Shared[service.List]) {
	for _, of := range group.ReachKey().Parts() {
		shared = append(shared, c.reached.Get(r, reachedPart{group, of})...)
	}
	if group.Secured {
		if trust := c.trust.Get(r, trustKey{group.Mesh, group.Source}); trust != nil { // nil: generation failed
			shared = append(shared, trust)
		}
	}
	return shared
}

// makeTrust returns the resources by which proxies with an identity verify their callers and servers.
func (c *config) makeTrust(r *table.Reader, key trustKey) *outbound {
	if key.mesh == "" {
		return &outbound{resources: inOrder(c.trustOfAllMeshes(r, key.source))}
	}
	evicted := c.evicted.Get(r, key.mesh)
	if key.source.FromSPIRE() {
		return &outbound{resources: append([]*xds.Resource{envoy.SPIREAgent(key.source)}, evicted...)}
	}
	return &outbound{resources: inOrder(slices.Concat(c.bundles.Get(r, key.mesh), evicted))}
}

// trustOfAllMeshes returns the resources by which a ZoneEgress verifies callers of all meshes.
func (c *config) trustOfAllMeshes(r *table.Reader, from identity.Source) []*xds.Resource {
	known := []*xds.Resource{envoy.TrustBundle(c.state.Identity.Trust.Get(r, ""))}
	if from.FromSPIRE() {
		known = append(known, envoy.SPIREAgent(from))
	}
	for _, mesh := range c.state.Tables.MeshNames(r) {
		known = append(known, envoy.MeshBundle(c.state.Identity.Trust.Get(r, mesh)))
		known = append(known, c.evicted.Get(r, mesh)...)
	}
	return known
}

func (c *config) makeNames(r *table.Reader, group proxy.Group) *HostNames {
	return newNames(c.state.Proxies.Hosts.Get(r, group.HostsKey()))
}

func makeSNIRouteCluster(_ *table.Reader, key sniRouteKey) *xds.Resource {
	return envoy.ClusterOfSNIRoute(key.name, service.EffectiveOf(key.confs))
}

func (c *config) makeSNIRouteAssignment(r *table.Reader, list sniRouteList) *xds.Resource {
	backends := c.state.ZoneProxies.SNIRouteBackends(r, list.SNIRoute)
	if list.machine != "" {
		backends = slices.DeleteFunc(slices.Clone(backends), func(e service.Endpoint) bool {
			return list.machine.Lacks(e.Address)
		})
	}
	return envoy.EndpointsOfSNIRoute(envoy.SNIRouteCluster(list.SNIRoute), backends)
}

func (c *config) makeIngress(r *table.Reader, group proxy.ZoneGroup) Shared[sniRouteList] {
	sniRoutes := c.state.ZoneProxies.SNIRoutes.Get(r, group.Mesh)
	return c.forwarding(r, sniRoutes, c.sniRouteKeys(r, sniRoutes, group.Policies), group)
}

// sniRouteKeys returns the keys of the clusters of SNI routes, with the confs that policies have about their
// destinations.
func (c *config) sniRouteKeys(r *table.Reader, sniRoutes []zoneproxy.SNIRoute, policies proxy.PolicySet) []any {
	var keys []any
	for _, p := range sniRoutes {
		confs := c.state.Proxies.ConfsOf(r, policies, p.Destination.WithLocality(""))
		keys = append(keys, sniRouteKey{envoy.SNIRouteCluster(p), confs})
	}
	return keys
}

// forwarding returns the resources of keys after modifications, which zone proxies share, with the SNI routes whose
// endpoints they use.
func (c *config) forwarding(r *table.Reader, sniRoutes []zoneproxy.SNIRoute, keys []any,
	group proxy.ZoneGroup) Shared[sniRouteList] {
	b := &block[sniRouteList]{}
	for _, route := range sniRoutes {
		b.lists = append(b.lists, sniRouteList{route, group.Machine})
	}
	for _, key := range keys {
		if o := c.generated(r, patchedKey{key, group.Patch}); o != nil { // nil: generation failed
			b.resources = append(b.resources, o.resources...)
		}
	}
	b.resources = inOrder(b.resources)
	return Shared[sniRouteList]{b}
}

func (c *config) makeUpstream(r *table.Reader, key upstreamKey) []*xds.Resource {
	o := c.state.ZoneProxies.ExternalUpstreams.Get(r, key.destination)
	if o == nil {
		return nil
	}
	return envoy.ExternalUpstream(o, key.confs, service.EffectiveOf(key.sent), key.machine)
}

// makeExternalRoute returns nil where the external service is not HTTP, or can't be dialed.
func (c *config) makeExternalRoute(r *table.Reader, key externalRouteKey) *xds.Resource {
	o := c.state.ZoneProxies.ExternalUpstreams.Get(r, key.destination)
	if o == nil || !o.Protocol.IsHTTP() {
		return nil
	}
	return envoy.ExternalRoute(o, key.confs)
}

func (c *config) makeForward(r *table.Reader, group proxy.ZoneGroup) Shared[sniRouteList] {
	sniRoutes := c.state.ZoneProxies.CrossZoneSNIRoutes.Get(r, group.Mesh)
	return c.forwarding(r, sniRoutes, c.sniRouteKeys(r, sniRoutes, proxy.PolicySet{}), group)
}

func (c *config) makeEgress(r *table.Reader, group proxy.EgressGroup) Shared[sniRouteList] {
	return c.forwarding(r, nil, c.upstreamKeys(r, group), group.ZoneGroup)
}

// upstreamKeys returns the keys of the clusters of external services. Of an egress with confs about its callers they
// are its own, and such egresses share each cluster with equal confs.
func (c *config) upstreamKeys(r *table.Reader, group proxy.EgressGroup) []any {
	var keys []any
	add := func(to service.DestinationKey, confs policy.Confs) {
		sent := c.state.Proxies.ConfsOf(r, group.Policies, to)
		keys = append(keys, upstreamKey{externalRouteKey{to.WithLocality(service.ExternalLocality), confs}, sent,
			group.Machine})
	}
	if group.Of == (state.ProxyKey{}) {
		for _, external := range c.state.ZoneProxies.EgressServices.Get(r, group.Mesh) {
			add(external.Key, policy.Confs{})
		}
	} else if p := c.state.Proxies.Proxy.Get(r, group.Of); p != nil {
		for i := range p.Chains {
			if chain := &p.Chains[i]; chain.Key.Mesh == group.Mesh {
				add(chain.Key, chain.Confs)
			}
		}
	}
	return keys
}

func (c *config) makeOwn(r *table.Reader, key state.ProxyKey) *Own {
	p := c.state.Proxies.Proxy.Get(r, key)
	if p == nil {
		return nil
	}
	return &Own{p, inOrder(c.modified(r, p, c.ownResources(r, p))), envoy.Exclusions(p.Excluded)}
}

// ownResources returns a proxy's own resources before modifications, sorted.
func (c *config) ownResources(r *table.Reader, p *proxy.Proxy) []*xds.Resource {
	var resources []*xds.Resource
	for i := range p.Listeners {
		l := &p.Listeners[i] // without parts, of which the generation failed, that of the proxy fails too
		resources = append(resources, c.inbounds.Get(r, l.Settings(p.Identity != nil)).Inbound(l)...)
	}
	for i := range p.Outbounds {
		to := p.Outbounds[i].Destination
		route := c.routeOf(r, to, service.RouteValue{}, c.state.Proxies.ConfsOf(r, p.Group.Policies, to))
		var snis []string
		if !p.Outbounds[i].Protocol.IsHTTP() {
			snis = c.state.Proxies.SNIsOf(r, p.Group.Policies, to)
		}
		resources = append(resources, envoy.ExplicitListener(&p.Outbounds[i], route, snis...))
	}
	for i := range p.Ingresses {
		resources = append(resources, envoy.Ingress(&p.Ingresses[i])...)
	}
	for i := range p.Egresses {
		resources = append(resources, envoy.Egress(&p.Egresses[i], p.Identity.Source, p.Chains)...)
	}
	for i := range p.Chains {
		resources = append(resources, envoy.ChainResources(&p.Chains[i])...)
		resources = append(resources, c.externalRoute.Get(r,
			externalRouteKey{p.Chains[i].Key.WithLocality(service.ExternalLocality), p.Chains[i].Confs}))
	}
	if p.Capture != nil {
		resources = append(resources, c.captures.Get(r, *p.Capture)...)
	}
	return inOrder(resources)
}

func makeInboundParts(_ *table.Reader, of proxy.InboundSettings) *envoy.InboundParts {
	return envoy.NewInboundParts(of)
}

func makeCapture(_ *table.Reader, of proxy.Capture) []*xds.Resource { return envoy.Capture(&of) }

func sameOwn(a, b *Own) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Proxy == b.Proxy && sameResources(a.Resources, b.Resources)
}
