package graph

import (
	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// identityStage names the stage of identities in the State.
type identityStage = identity.Stage

// State is the table of one zone, or of global, which has no zone: the rows of the store, and the values derived from
// them. The order of the [Derived] fields is the order of the stages: each reads rows and earlier ones.
type State struct {
	*state.Tables
	*identityStage

	// Inbounds are the inbounds of a Dataplane, with their listener status; none where the mesh does not admit it.
	Inbounds *table.Derived[state.ProxyKey, []Member]
	// ServiceMembers are the [State.Members] of a MeshService, which several values read whenever one of them changes.
	ServiceMembers *table.Derived[state.ServiceKey, []*Member]
	// Destinations are the services of a mesh, of every kind and zone. Tagged are the MeshServices that select a value
	// of kuma.io/service, by its [TagKey]. Labeled are the services of a kind that have labels. Named is the service
	// with a name, the zero key where there is none. Ports are a service's ports. These values separate the services
	// from their clients: a change of a service that leaves them equal recomputes no proxy group.
	Destinations *table.Derived[string, []DestinationKey]
	Tagged       *table.Derived[string, []DestinationKey]
	Labeled      *table.Derived[labelQuery, []DestinationKey]
	Named        *table.Derived[nameQuery, DestinationKey]
	Ports        *table.Derived[DestinationKey, []uint32]
	// EgressRoute is the route of the proxies of a mesh out of this zone. ByEgress is whether they also use it for
	// remote zones.
	EgressRoute *table.Derived[string, *EgressRoute]
	ByEgress    *table.Derived[string, bool]
	// ServiceIdentities are the SPIFFE IDs that a service's servers may present, sorted.
	ServiceIdentities *table.Derived[state.ServiceKey, []string]
	// Destination is one port of a MeshService; nil where there is none. MultiZone is the same for a
	// MeshMultiZoneService, derived from the former, and External for a MeshExternalService. [State.DestinationOf]
	// returns any of them.
	Destination, MultiZone, External *table.Derived[DestinationKey, *Destination]
	// Routes are the routes of destinations; nil where there is none.
	Routes *table.Derived[DestinationKey, *Route]
	// Endpoints are the published endpoints of a MeshService's port. LocalityEndpoints are those of a locality of a
	// MeshMultiZoneService's port, and ExternalEndpoints those of a MeshExternalService's. [State.EndpointsOf] returns
	// any of them.
	Endpoints, LocalityEndpoints, ExternalEndpoints *table.Derived[DestinationKey, *Endpoints]
	// ServiceSNIRoutes are the SNI routes of a service, and SNIRoutes those of a mesh, on which the zone ingresses
	// forward to the Forwardable endpoints of a destination. CrossZoneSNIRoutes are those on which the zone egresses
	// forward to ingresses of remote zones, the RemoteEndpoints. [State.SNIRouteBackends] returns either.
	ServiceSNIRoutes   *table.Derived[DestinationKey, []SNIRoute]
	SNIRoutes          *table.Derived[string, []SNIRoute]
	Forwardable        *table.Derived[DestinationKey, []Endpoint]
	CrossZoneSNIRoutes *table.Derived[string, []SNIRoute]
	RemoteEndpoints    *table.Derived[DestinationKey, []Endpoint]
	// IngressProxies are the zone ingresses of a mesh in this zone; those that serve every mesh under no mesh.
	IngressProxies *table.Derived[string, []ZoneProxy]
	// EgressProxies are the zone egresses, likewise.
	EgressProxies *table.Derived[string, []ZoneProxy]
	// EgressServices are the external services of a mesh, as its zone egresses accept connections for them, sorted by
	// key. ExternalUpstreams are the services as egresses dial them; nil where there is none, or where it refers to
	// certificates that never existed.
	EgressServices    *table.Derived[string, []EgressService]
	ExternalUpstreams *table.Derived[DestinationKey, *ExternalUpstream]
	// Reached are the destinations of a proxy group, sorted by name.
	Reached *table.Derived[ProxyGroup, []DestinationKey]
	// HostsOf are the host names of a destination, whose key has no port.
	HostsOf *table.Derived[DestinationKey, []Host]
	// Hosts are the host names that the proxies of a group resolve, sorted; none where the group is not transparent.
	Hosts *table.Derived[ProxyGroup, []Host]
	// Policies are the policies of a kind in a mesh. They have no confs, so an edited conf leaves them equal.
	Policies *table.Derived[PoliciesKey, *policy.List]
	// OutboundKinds are the kinds of which a mesh has a policy with to items, sorted. A Dataplane reads its selections
	// of these kinds only, so the first policy of a kind wakes the proxies of the mesh, and a permission none.
	OutboundKinds *table.Derived[string, []string]
	// Selectable is a Dataplane as policies select it; nil where there is none. The proxy of a ZoneEgress has no name,
	// labels and sections. Endpoint statuses leave it equal.
	Selectable *table.Derived[state.ProxyKey, *policy.Proxy]
	// Selections are the policies of a kind that apply to a proxy, in ascending order.
	Selections *table.Derived[SelectionKey, []policy.Selected]
	// Proxy is one proxy; nil where there is no such Dataplane.
	Proxy *table.Derived[state.ProxyKey, *Proxy]
	// Draining are the listeners that a proxy serves and its Dataplane no longer has, and, by their Section, such
	// inbounds of its listeners.
	Draining *table.Derived[state.ProxyKey, []string]

	services []serviceKind // by DestinationKind
}

// NewState returns an empty state of a zone.
func NewState(zone string) *State {
	t := state.New(zone)
	s := &State{Tables: t, identityStage: identity.New(t)}
	s.derive()
	return s
}

func hostnameKeys(mesh string, generators []kind.HostnameGeneratorStatus) []string {
	var keys []string
	for _, g := range generators {
		if g.Hostname != "" {
			keys = append(keys, state.HostnameKey(mesh, g.Hostname))
		}
	}
	return keys
}
