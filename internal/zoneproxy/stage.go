// Package zoneproxy derives what the zone ingresses and zone egresses of a zone serve: the SNIs that they forward and
// their servers, the external services and how egresses dial them, and the addresses that are announced.
package zoneproxy

import (
	"slices"

	"weft/internal/identity"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneroute"
)

// Stage is the stage of zone proxies. The order of the fields is the order in which they are created: each reads rows,
// earlier stages and earlier fields.
type Stage struct {
	state    *state.Tables
	identity *identity.Stage
	routes   *zoneroute.Stage
	services *service.Stage

	// ServiceSNIRoutes are the SNI routes of a service, and SNIRoutes those of a mesh, on which the zone ingresses
	// forward to the Forwardable endpoints of a destination. CrossZoneSNIRoutes are those on which the zone egresses
	// forward to ingresses of remote zones, the RemoteEndpoints. [Stage.SNIRouteBackends] returns either.
	ServiceSNIRoutes   table.Derived[service.DestinationKey, []SNIRoute]
	SNIRoutes          table.Derived[string, []SNIRoute]
	Forwardable        table.Derived[service.DestinationKey, []service.Endpoint]
	CrossZoneSNIRoutes table.Derived[string, []SNIRoute]
	RemoteEndpoints    table.Derived[service.DestinationKey, []service.Endpoint]
	// IngressProxies are the zone ingresses of a mesh in this zone; those that serve every mesh under no mesh.
	IngressProxies table.Derived[string, []Proxy]
	// EgressProxies are the zone egresses, likewise.
	EgressProxies table.Derived[string, []Proxy]
	// EgressServices are the external services of a mesh, as its zone egresses accept connections for them, sorted by
	// key. ExternalUpstreams are the services as egresses dial them; nil where there is none, or where it refers to
	// certificates that never existed.
	EgressServices    table.Derived[string, []EgressService]
	ExternalUpstreams table.Derived[service.DestinationKey, *ExternalUpstream]
}

// New adds the stage to the tables, before their first commit.
func New(t *state.Tables, i *identity.Stage, routes *zoneroute.Stage, services *service.Stage) *Stage {
	s := &Stage{state: t, identity: i, routes: routes, services: services}
	s.ServiceSNIRoutes = table.NewDerived(t.DB, "SNI routes of a service", s.serviceSNIRoutes, slices.Equal)
	s.SNIRoutes = table.NewDerived(t.DB, "SNI routes of a mesh", s.sniRoutes, slices.Equal)
	s.RemoteEndpoints = table.NewDerived(t.DB, "ingresses of other zones", s.remoteIngresses, slices.Equal)
	s.CrossZoneSNIRoutes = table.NewDerived(t.DB, "cross-zone SNI routes of a mesh", s.crossZoneSNIRoutes, slices.Equal)
	s.Forwardable = table.NewDerived(t.DB, "forwardable endpoints", s.forwardable, slices.Equal)
	s.IngressProxies = table.NewDerived(t.DB, "zone ingresses", s.ingressProxies, slices.Equal)
	s.EgressProxies = table.NewDerived(t.DB, "zone egresses", s.egressProxies, slices.Equal)
	s.EgressServices = table.NewDerived(t.DB, "egress filter chains of a mesh", s.egressServices,
		state.DeepEqual[[]EgressService])
	s.ExternalUpstreams = table.NewDerived(
		t.DB,
		"external upstream",
		s.externalUpstream,
		state.DeepEqual[*ExternalUpstream],
	)
	return s
}
