// Package service derives the services of a mesh, of every kind and zone: their members, ports, host names and SPIFFE
// IDs, and the destinations, routes and endpoints that clients have of them. It knows no client and no zone proxy.
package service

import (
	"slices"

	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneroute"
	"weft/kind"
)

// Stage is the stage of services. The order of the fields is the order in which they are created: each reads rows,
// earlier stages and earlier fields.
type Stage struct {
	state    *state.Tables
	identity *identity.Stage
	routes   *zoneroute.Stage

	// Inbounds are the inbounds of a Dataplane, with their listener status; none where the mesh does not admit it.
	Inbounds table.Derived[state.ProxyKey, []Member]
	// ServiceMembers are the [Stage.Members] of a MeshService, which several values read whenever one of them changes.
	ServiceMembers table.Derived[state.ServiceKey, []*Member]
	// Destinations are the services of a mesh, of every kind and zone. Tagged are the MeshServices that select a value
	// of kuma.io/service, by its [state.TagKey]. Labeled are the services of a kind that have labels. Named is the
	// service with a name, the zero key where there is none. Ports are a service's ports. These values separate the
	// services from their clients: a change of a service that leaves them equal recomputes no proxy group.
	Destinations table.Derived[string, []DestinationKey]
	Tagged       table.Derived[string, []DestinationKey]
	Labeled      table.Derived[labelQuery, []DestinationKey]
	Named        table.Derived[NameQuery, DestinationKey]
	Ports        table.Derived[DestinationKey, []uint32]
	// Targeted is a destination as policies target it; nil where there is no such service.
	Targeted table.Derived[DestinationKey, *policy.Destination]
	// ServiceIdentities are the SPIFFE IDs that a service's servers may present, sorted.
	ServiceIdentities table.Derived[state.ServiceKey, []string]
	// Destination is one port of a MeshService; nil where there is none. MultiZone is the same for a
	// MeshMultiZoneService, derived from the former, and External for a MeshExternalService. [Stage.DestinationOf]
	// returns any of them.
	Destination, MultiZone, External table.Derived[DestinationKey, *Destination]
	// Routes are the routes of destinations; nil where there is none.
	Routes table.Derived[DestinationKey, *Route]
	// Endpoints are the published endpoints of a MeshService's port. LocalityEndpoints are those of a locality of a
	// MeshMultiZoneService's port, and ExternalEndpoints those of a MeshExternalService's. [Stage.EndpointsOf] returns
	// any of them.
	Endpoints, LocalityEndpoints, ExternalEndpoints table.Derived[DestinationKey, *Endpoints]
	// AffinityValues are the values of a label that the servers of a destination in this zone have, sorted. Statuses
	// and endpoints leave them equal.
	AffinityValues table.Derived[AffinityQuery, []string]
	// Preceding are the destinations of older services that have a virtual IP and the port of a destination too; most
	// have none. They precede it at that address.
	Preceding table.Derived[DestinationKey, []VirtualAddress]
	// HostsOf are the host names of a destination, whose key has no port.
	HostsOf table.Derived[DestinationKey, []Host]
	kinds   []serviceKind // by DestinationKind
	// placesOf are the places of services, by DestinationKind. They separate a status from its readers: a changed count
	// of proxies recomputes no destination.
	placesOf []places
}

// New adds the stage to the tables, before their first commit.
func New(t *state.Tables, i *identity.Stage, routes *zoneroute.Stage) *Stage {
	s := &Stage{state: t, identity: i, routes: routes}
	s.placesOf = []places{
		MeshService: placesIn(t, kind.MeshServices.Name, t.ServiceStatuses, (*kind.MeshServiceStatus).Places),
		MultiZoneService: placesIn(t, kind.MeshMultiZoneServices.Name, t.MultiZoneServiceStatuses,
			(*kind.MeshMultiZoneServiceStatus).Places),
		ExternalService: placesIn(t, kind.MeshExternalServices.Name, t.ExternalServiceStatuses,
			(*kind.MeshExternalServiceStatus).Places),
	}
	s.Inbounds = table.NewDerived(t.DB, "inbounds of a Dataplane", s.inbounds, state.DeepEqual[[]Member])
	s.ServiceMembers = table.NewDerived(t.DB, "members of a service", s.members, slices.Equal)
	s.Destinations = table.NewDerived(t.DB, "services of a mesh", s.destinations, slices.Equal)
	s.Tagged = table.NewDerived(t.DB, "services of a tag", s.tagged, slices.Equal)
	s.Labeled = table.NewDerived(t.DB, "services of labels", s.labeledServices, slices.Equal)
	s.Named = table.NewDerived(t.DB, "service of a row", s.named, func(a, b DestinationKey) bool { return a == b })
	s.Ports = table.NewDerived(t.DB, "service ports", s.ports, slices.Equal)
	s.Targeted = table.NewDerived(t.DB, "destination as policies target it", s.targeted,
		state.DeepEqual[*policy.Destination])
	s.ServiceIdentities = table.NewDerived(t.DB, "service identities", s.serviceIdentities, slices.Equal)
	s.Destination = table.NewDerived(t.DB, "destination", s.destination, state.DeepEqual[*Destination])
	table.Share(s.ServiceIdentities, func(key state.ServiceKey) string { return state.RowKey(key.Mesh, key.Name) })
	table.Share(s.Destination, DestinationKey.String)
	s.Endpoints = table.NewDerived(t.DB, "endpoints", s.endpoints, equalEndpoints)
	s.MultiZone = table.NewDerived(t.DB, "destination of many zones", s.multiZone, state.DeepEqual[*Destination])
	s.LocalityEndpoints = table.NewDerived(t.DB, "endpoints of a locality", s.localityEndpoints, equalEndpoints)
	s.External = table.NewDerived(t.DB, "external destination", s.external, state.DeepEqual[*Destination])
	s.ExternalEndpoints = table.NewDerived(t.DB, "endpoints of an external destination", s.externalEndpoints,
		equalEndpoints)
	s.Routes = table.NewDerived(t.DB, "routes", s.route, state.DeepEqual[*Route])
	s.AffinityValues = table.NewDerived(t.DB, "values of a label of servers", s.affinityValues, slices.Equal)
	s.Preceding = table.NewDerived(t.DB, "destinations with an older one at their address", s.preceding, slices.Equal)
	s.HostsOf = table.NewDerived(t.DB, "host names of a destination", s.hostsOf, EqualHosts)
	s.kinds = s.serviceKinds()
	return s
}
