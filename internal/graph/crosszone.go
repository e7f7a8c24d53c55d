package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// toRemoteZones returns the route of the same SNI to the remote zones.
func (p SNIRoute) toRemoteZones() SNIRoute {
	p.CrossZone = true
	if p.Destination.Kind == MultiZoneService {
		p.Destination = p.Destination.On(RemoteLocality)
	}
	return p
}

// crossZoneSNIRoutes returns the routes on which the zone egresses of a mesh forward to remote zones, sorted. They
// exist whether clients use the egresses or not, so that an egress needs no update when a mesh begins to use it.
func (s *State) crossZoneSNIRoutes(r *table.Reader, mesh string) []SNIRoute {
	var all []SNIRoute
	for _, service := range s.Destinations.Get(r, mesh) {
		if service.Kind == MultiZoneService || service.Kind == MeshService && service.Zone != s.Zone {
			for _, route := range s.ServiceSNIRoutes.Get(r, service) {
				all = append(all, route.toRemoteZones())
			}
		}
	}
	return uniqueSNIs(all)
}

// SNIRouteBackends returns the endpoints to which a zone proxy forwards an SNI. A zone proxy forwards nothing to its
// own machine, whatever an agent or another zone states as the address of a server or an ingress.
func (s *State) SNIRouteBackends(r *table.Reader, p SNIRoute) []Endpoint {
	endpoints := s.Forwardable.Get(r, p.Destination)
	if p.CrossZone {
		endpoints = s.RemoteEndpoints.Get(r, p.Destination)
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool {
		return kind.LocalEndpoint(e.Address, s.LocalNetworks) != ""
	})
}

// remoteIngresses returns the ingresses of remote zones that forward to a destination.
func (s *State) remoteIngresses(r *table.Reader, key DestinationKey) []Endpoint {
	if key.Kind == MultiZoneService {
		return s.ingressesOfMembers(r, key)
	}
	return throughHops(s.ingressesOf(r, key.Mesh, key.Zone))
}

// ingressesOfMembers returns the ingresses of the remote zones with a selected service of a MeshMultiZoneService's
// port.
func (s *State) ingressesOfMembers(r *table.Reader, key DestinationKey) []Endpoint {
	d := s.MultiZone.Get(r, key.On(""))
	if d == nil {
		return nil
	}
	_, selected := s.selectedServices(r, key.On(""))
	available := s.availableIn(r, selected)
	var ingresses []Hop
	seen := map[string]bool{}
	for i := range d.Zones {
		zone := d.Zones[i].Zone
		if len(available) > 0 && !available[zone] {
			continue
		}
		for _, ingress := range s.ingressesOf(r, key.Mesh, zone) {
			// An address of two zones would be one host in Envoy.
			if at := kind.HostPort(ingress.Address, ingress.Port); !seen[at] {
				seen[at] = true
				ingresses = append(ingresses, ingress)
			}
		}
	}
	return throughHops(ingresses)
}

// SNIRouteOf returns the route of an SNI: in this zone, or to a remote one.
func (s *State) SNIRouteOf(r *table.Reader, sni string, remote bool) (SNIRoute, bool) {
	var named []DestinationKey
	for _, service := range s.ServicesBySNI.List(r, sni) {
		if s.IsRemote(service) == remote {
			named = append(named, s.KeyOf(service))
		}
	}
	for _, service := range s.MultiZoneServicesBySNI.List(r, sni) {
		named = append(named, multiZoneKeyOf(service))
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
