package graph

import (
	"slices"

	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
)

// derive adds the derived tables, each of which reads rows and tables that were added before.
func (s *State) derive() {
	s.Inbounds = table.NewDerived(s.DB, "inbounds of a Dataplane", s.inbounds, state.DeepEqual[[]Member])
	s.ServiceMembers = table.NewDerived(s.DB, "members of a service", s.members, slices.Equal)
	s.Destinations = table.NewDerived(s.DB, "services of a mesh", s.destinations, slices.Equal)
	s.Tagged = table.NewDerived(s.DB, "services of a tag", s.tagged, slices.Equal)
	s.Labeled = table.NewDerived(s.DB, "services of labels", s.labeledServices, slices.Equal)
	s.Named = table.NewDerived(s.DB, "service of a row", s.named, func(a, b DestinationKey) bool { return a == b })
	s.Ports = table.NewDerived(s.DB, "service ports", s.ports, slices.Equal)
	s.ByEgress = table.NewDerived(s.DB, "whether by egress", s.byEgress, func(a, b bool) bool { return a == b })
	s.EgressRoute = table.NewDerived(s.DB, "egress routes of the zone", s.egressRoute, state.DeepEqual[*EgressRoute])
	s.ServiceIdentities = table.NewDerived(s.DB, "service identities", s.serviceIdentities, slices.Equal)
	s.Destination = table.NewDerived(s.DB, "destination", s.destination, state.DeepEqual[*Destination])
	s.Endpoints = table.NewDerived(s.DB, "endpoints", s.endpoints, equalEndpoints)
	s.MultiZone = table.NewDerived(s.DB, "destination of many zones", s.multiZone, state.DeepEqual[*Destination])
	s.LocalityEndpoints = table.NewDerived(s.DB, "endpoints of a locality", s.localityEndpoints, equalEndpoints)
	s.External = table.NewDerived(s.DB, "external destination", s.external, state.DeepEqual[*Destination])
	s.ExternalEndpoints = table.NewDerived(s.DB, "endpoints of an external destination", s.externalEndpoints,
		equalEndpoints)
	s.Routes = table.NewDerived(s.DB, "routes", s.route, state.DeepEqual[*Route])
	s.ServiceSNIRoutes = table.NewDerived(s.DB, "SNI routes of a service", s.serviceSNIRoutes, slices.Equal)
	s.SNIRoutes = table.NewDerived(s.DB, "SNI routes of a mesh", s.sniRoutes, slices.Equal)
	s.RemoteEndpoints = table.NewDerived(s.DB, "ingresses of other zones", s.remoteIngresses, slices.Equal)
	s.CrossZoneSNIRoutes = table.NewDerived(s.DB, "cross-zone SNI routes of a mesh", s.crossZoneSNIRoutes, slices.Equal)
	s.Forwardable = table.NewDerived(s.DB, "forwardable endpoints", s.forwardable, slices.Equal)
	s.IngressProxies = table.NewDerived(s.DB, "zone ingresses", s.ingressProxies, slices.Equal)
	s.EgressProxies = table.NewDerived(s.DB, "zone egresses", s.egressProxies, slices.Equal)
	s.EgressServices = table.NewDerived(s.DB, "egress filter chains of a mesh", s.egressServices,
		state.DeepEqual[[]EgressService])
	s.ExternalUpstreams = table.NewDerived(
		s.DB,
		"external upstream",
		s.externalUpstream,
		state.DeepEqual[*ExternalUpstream],
	)
	s.Reached = table.NewDerived(s.DB, "reached", s.reached, slices.Equal)
	s.HostsOf = table.NewDerived(s.DB, "host names of a destination", s.hostsOf, equalHosts)
	s.Hosts = table.NewDerived(s.DB, "host names of a proxy group", s.hosts, equalHosts)
	s.Policies = table.NewDerived(s.DB, "policies of a mesh", s.policies, (*policy.List).Equal)
	s.OutboundKinds = table.NewDerived(s.DB, "kinds of outbound policies", s.outboundKinds, slices.Equal)
	s.Selectable = table.NewDerived(s.DB, "proxy as policies select it", s.selectable, state.DeepEqual[*policy.Proxy])
	s.Selections = table.NewDerived(s.DB, "policies of a proxy", s.selections, policy.EqualSelections)
	s.Proxy = table.NewDerived(s.DB, "proxy", s.proxy, state.DeepEqual[*Proxy])
	s.Draining = table.NewDerived(s.DB, "draining", s.draining, slices.Equal)
	s.services = s.serviceKinds()
}

func equalEndpoints(a, b *Endpoints) bool { return slices.Equal(a.Endpoints, b.Endpoints) }
