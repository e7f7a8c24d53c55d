package zoneproxy

import (
	"slices"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

// toRemoteZones returns the route of the same SNI to the remote zones.
func (p SNIRoute) toRemoteZones() SNIRoute {
	p.CrossZone = true
	if p.Destination.Kind == service.MultiZoneService {
		p.Destination = p.Destination.WithLocality(service.RemoteLocality)
	}
	return p
}

// crossZoneSNIRoutes returns the routes on which the zone egresses of a mesh forward to remote zones, sorted. They
// exist whether clients use the egresses or not, so that an egress needs no update when a mesh begins to use it.
func (s *Stage) crossZoneSNIRoutes(r *table.Reader, mesh string) []SNIRoute {
	var all []SNIRoute
	for _, key := range s.services.Destinations.Get(r, mesh) {
		if key.Kind == service.MultiZoneService || key.Kind == service.MeshService && key.Zone != s.state.Zone {
			for _, route := range s.ServiceSNIRoutes.Get(r, key) {
				all = append(all, route.toRemoteZones())
			}
		}
	}
	return uniqueSNIs(all)
}

// SNIRouteBackends returns the endpoints to which a zone proxy forwards an SNI. A zone proxy forwards nothing to its
// own machine, whatever an agent or another zone states as the address of a server or an ingress.
func (s *Stage) SNIRouteBackends(r *table.Reader, p SNIRoute) []service.Endpoint {
	endpoints := s.Forwardable.Get(r, p.Destination)
	if p.CrossZone {
		endpoints = s.RemoteEndpoints.Get(r, p.Destination)
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e service.Endpoint) bool {
		return kind.LocalEndpoint(e.Address, s.state.LocalNetworks) != ""
	})
}

// remoteIngresses returns the ingresses of remote zones that forward to a destination.
func (s *Stage) remoteIngresses(r *table.Reader, key service.DestinationKey) []service.Endpoint {
	if key.Kind == service.MultiZoneService {
		return s.services.IngressesOfMembers(r, key)
	}
	return service.ThroughHops(s.routes.Ingresses(r, key.Mesh, key.Zone))
}

// SNIRouteOf returns the route of an SNI: in this zone, or to a remote one.
func (s *Stage) SNIRouteOf(r *table.Reader, sni string, remote bool) (SNIRoute, bool) {
	var named []service.DestinationKey
	for _, service := range s.state.ServicesBySNI.List(r, sni) {
		if s.state.IsRemote(service) == remote {
			named = append(named, s.services.KeyOf(service))
		}
	}
	for _, multiZone := range s.state.MultiZoneServicesBySNI.List(r, sni) {
		named = append(named, service.MultiZoneKeyOf(multiZone))
	}
	for _, service := range named {
		routes := s.serviceSNIRoutes(r, service)
		if i := slices.IndexFunc(routes, func(p SNIRoute) bool { return p.SNI == sni }); i >= 0 && remote {
			return routes[i].toRemoteZones(), true
		} else if i >= 0 {
			return routes[i], true
		}
	}
	return SNIRoute{}, false
}
