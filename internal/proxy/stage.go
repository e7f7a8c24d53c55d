// Package proxy derives the configuration of each proxy, independent of Envoy: the policies that apply to it, its proxy
// group and what the group reaches, its listeners and those that drain.
package proxy

import (
	"slices"

	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/resource"
)

// Stage is the last stage: proxies. The order of the fields is the order in which they are created: each reads rows,
// earlier stages and earlier fields.
type Stage struct {
	state       *state.Tables
	identity    *identity.Stage
	services    *service.Stage
	zoneProxies *zoneproxy.Stage

	// Reached are the destinations that proxies reach, sorted by name. Groups that differ in other properties share
	// them.
	Reached table.Derived[ReachKey, []service.DestinationKey]
	// ReachedPart is a part of them.
	ReachedPart table.Derived[ReachPart, []service.DestinationKey]
	// Hosts are the host names that proxies resolve, sorted; none where they are not transparent.
	Hosts table.Derived[HostsKey, []service.Host]
	// PartCosts are the costs of the items of a policy that have any.
	PartCosts table.Derived[resource.Key, []PartCost]
	// RoutedPorts are the ports that the MeshHTTPRoutes of a mesh are about, with the number of routes.
	RoutedPorts table.Derived[string, []RoutedPorts]
	// Costs are the policies of a kind in a mesh that are left out for what they would cost proxies, by name.
	Costs table.Derived[PoliciesKey, []Costly]
	// Policies are the policies of a kind in a mesh that apply. They have no confs: an edited conf leaves them equal.
	Policies table.Derived[PoliciesKey, *policy.List]
	// OutboundKinds are the kinds of which a mesh has a policy with to items, sorted. A Dataplane reads its selections
	// of these kinds only, so the first policy of a kind wakes the proxies of the mesh, and a permission none.
	OutboundKinds table.Derived[string, []string]
	// InboundKinds are the kinds of which a mesh has a policy with rules that merge, sorted. A place where connections
	// arrive reads the selections of these kinds only, so the first policy of a kind wakes the proxies of the mesh.
	InboundKinds table.Derived[string, []string]
	// WholeProxyKinds are the kinds of which a mesh has a policy about whole proxies, sorted. A proxy reads its
	// selections of these kinds only, so the first policy of a kind wakes the proxies of the mesh.
	WholeProxyKinds table.Derived[string, []string]
	// Selectable is a Dataplane as policies select it; nil where there is none. The proxy of a ZoneEgress has no name,
	// labels and sections. Endpoint statuses leave it equal.
	Selectable table.Derived[state.ProxyKey, *policy.Proxy]
	// Selections are the policies of a kind that apply to a proxy, in ascending order.
	Selections table.Derived[SelectionKey, []policy.Selected]
	// Concerned are the destinations in a part of those that proxies reach which a policy has to items about. An edited
	// conf leaves them equal.
	Concerned table.Derived[ConcernKey, []service.DestinationKey]
	// About are the items of one policy about a destination.
	About table.Derived[AboutKey, []policy.Part]
	// Effective are the effective confs of the traffic of proxies with a set of policies to a destination. Groups with
	// different policies and equal confs share the resources of the destination.
	Effective table.Derived[EffectiveKey, policy.Confs]
	// AffinityLabels are the labels by which the policies of a set group endpoints, sorted. AffinityServed are the
	// values of a label that servers of this zone have in a destination whose endpoints it groups, and AffinityMatters
	// is whether one value is among them. They read configured servers, and no endpoint.
	AffinityLabels  table.Derived[PolicySet, []string]
	AffinityServed  table.Derived[AffinityKey, []string]
	AffinityMatters table.Derived[AffinityMatch, bool]
	// AffinityExceeds is whether the affinity tags of a policy make more than [AffinityLimit] proxy groups.
	AffinityExceeds table.Derived[resource.Key, bool]
	// Conflicts are the to items of a kind's policies in a mesh that have no effect somewhere. The statuses of the
	// policies read them.
	Conflicts table.Derived[PoliciesKey, []Conflict]
	// OutboundSets are the sets of outbound policies of the Dataplanes of a mesh, each once, sorted. A Dataplane that
	// changes between them leaves them equal, so no conflicts are computed again.
	OutboundSets table.Derived[string, []PolicySet]
	partialSets  table.Derived[meshPart, []PolicySet]
	// Received are the effective confs of the traffic that a proxy receives at one place, by caller. It reads
	// selections and the policies with rules that apply.
	Received table.Derived[PlaceKey, policy.Confs]
	// WholeProxy are the effective confs about a proxy as a whole. It reads selections and the policies with such a
	// conf that apply.
	WholeProxy table.Derived[WholeKey, policy.Confs]
	// TLS are the versions and ciphers of the connections between the proxies of a mesh.
	TLS table.Derived[string, identity.TLS]
	// OperatorGrants are the services to which the routes of operators in a mesh send, by the namespace of the services
	// that they are about.
	OperatorGrants table.Derived[string, []OperatorGrant]
	// Routed are the routes of the traffic of proxies with a set of policies to a destination, by value. It reads no
	// endpoint, and no value of it differs while only an origin does.
	Routed table.Derived[EffectiveKey, service.RouteValue]
	// SNIs are the SNIs of the rules of a route, in the order of their precedence. Other edits leave them equal.
	SNIs table.Derived[EffectiveKey, []string]
	// Proxy is one proxy; nil where there is no such Dataplane.
	Proxy table.Derived[state.ProxyKey, *Proxy]
	// Draining are the listeners that a proxy serves and its Dataplane no longer has, and, by their Section, such
	// inbounds of its listeners.
	Draining table.Derived[state.ProxyKey, []string]
}

// New adds the stage to the tables, before their first commit.
func New(t *state.Tables, i *identity.Stage, services *service.Stage, zoneProxies *zoneproxy.Stage) *Stage {
	s := &Stage{state: t, identity: i, services: services, zoneProxies: zoneProxies}
	s.Reached = table.NewDerived(t.DB, "reached", s.reached, slices.Equal)
	s.ReachedPart = table.NewDerived(t.DB, "parts of the reached", s.reachedPart, slices.Equal)
	s.Hosts = table.NewDerived(t.DB, "host names of proxies", s.hosts, service.EqualHosts)
	s.PartCosts = table.NewDerived(t.DB, "costs of a policy", s.partCosts, state.DeepEqual[[]PartCost])
	s.RoutedPorts = table.NewDerived(t.DB, "routed ports", s.routedPorts, state.DeepEqual[[]RoutedPorts])
	s.Costs = table.NewDerived(t.DB, "costs of policies", s.costs, slices.Equal)
	s.Policies = table.NewDerived(t.DB, "policies of a mesh", s.policies, (*policy.List).Equal)
	s.OutboundKinds = table.NewDerived(t.DB, "kinds of outbound policies", s.outboundKinds, slices.Equal)
	s.InboundKinds = table.NewDerived(t.DB, "kinds of inbound policies", s.inboundKinds, slices.Equal)
	s.WholeProxyKinds = table.NewDerived(t.DB, "kinds of policies of whole proxies", s.wholeProxyKinds, slices.Equal)
	s.Selectable = table.NewDerived(t.DB, "proxy as policies select it", s.selectable, state.DeepEqual[*policy.Proxy])
	s.Selections = table.NewDerived(t.DB, "policies of a proxy", s.selections, policy.EqualSelections)
	s.Concerned = table.NewDerived(t.DB, "destinations of a policy", s.concerned, slices.Equal)
	s.About = table.NewDerived(t.DB, "items about a destination", s.about, state.DeepEqual[[]policy.Part])
	s.Effective = table.NewDerived(t.DB, "effective confs", s.effective, func(a, b policy.Confs) bool { return a == b })
	s.AffinityLabels = table.NewDerived(t.DB, "labels of affinity tags", s.affinityLabels, slices.Equal)
	s.AffinityServed = table.NewDerived(t.DB, "values of affinity tags", s.affinityServed, slices.Equal)
	s.AffinityMatters = table.NewDerived(t.DB, "matches of affinity tags", s.affinityMatters, same)
	s.AffinityExceeds = table.NewDerived(t.DB, "groups of affinity tags", s.affinityExceeds, same)
	s.partialSets = table.NewDerived(t.DB, "outbound policy sets of a part of a mesh", s.outboundSetsOf, slices.Equal)
	s.OutboundSets = table.NewDerived(t.DB, "outbound policy sets of a mesh", s.outboundSets, slices.Equal)
	s.Conflicts = table.NewDerived(t.DB, "conflicts of policies", s.conflicts, slices.Equal)
	s.Received = table.NewDerived(t.DB, "effective confs by caller", s.received,
		func(a, b policy.Confs) bool { return a == b })
	s.WholeProxy = table.NewDerived(t.DB, "effective confs of a whole proxy", s.wholeProxy,
		func(a, b policy.Confs) bool { return a == b })
	s.TLS = table.NewDerived(t.DB, "TLS of a mesh", s.tls, func(a, b identity.TLS) bool { return a == b })
	s.OperatorGrants = table.NewDerived(t.DB, "grants of operators' routes", s.operatorGrants, slices.Equal)
	s.Routed = table.NewDerived(t.DB, "routes of policies", s.routed,
		func(a, b service.RouteValue) bool { return a == b })
	s.SNIs = table.NewDerived(t.DB, "SNIs of routes", s.snis, slices.Equal)
	s.Proxy = table.NewDerived(t.DB, "proxy", s.proxy, state.DeepEqual[*Proxy])
	s.Draining = table.NewDerived(t.DB, "draining", s.draining, slices.Equal)
	return s
}

func same(a, b bool) bool { return a == b }
