package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// away is the passage of the same name to the other zones.
func (p SNIRoute) away() SNIRoute {
	p.CrossZone = true
	if p.Destination.Kind == MultiZoneService {
		p.Destination = p.Destination.On(RemoteLocality)
	}
	return p
}

// crossZoneSNIRoutes are what the zone egresses of a mesh pass on to other zones, sorted, whether clients are told to go by them
// or not, so that an egress has nothing to learn when a mesh begins to.
func (s *State) crossZoneSNIRoutes(r *table.Reader, mesh string) []SNIRoute {
	var all []SNIRoute
	for _, service := range s.Destinations.Get(r, mesh) {
		if service.Kind == MultiZoneService || service.Kind == MeshService && service.Zone != s.Zone {
			for _, passage := range s.ServiceSNIRoutes.Get(r, service) {
				all = append(all, passage.away())
			}
		}
	}
	return eachName(all)
}

// SNIRouteBackends returns the endpoints to which a zone proxy forwards an SNI. A zone proxy forwards nothing to its own
// machine, whatever an agent or another zone states as the address of a server or an ingress.
func (s *State) SNIRouteBackends(r *table.Reader, p SNIRoute) []Endpoint {
	endpoints := s.Forwardable.Get(r, p.Destination)
	if p.CrossZone {
		endpoints = s.RemoteEndpoints.Get(r, p.Destination)
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool {
		return kind.LocalEndpoint(e.Address, s.LocalNetworks) != ""
	})
}

// beyond are the ingresses of other zones that lead to a destination.
func (s *State) beyond(r *table.Reader, key DestinationKey) []Endpoint {
	if key.Kind == MultiZoneService {
		return s.ingressesOfMembers(r, key)
	}
	return (&Endpoints{Endpoints: s.ingressesOf(r, key.Mesh, key.Zone)}).inOrder().Endpoints
}

// ingressesOfMembers are the ingresses of the other zones that take part in a MeshMultiZoneService's port.
func (s *State) ingressesOfMembers(r *table.Reader, key DestinationKey) []Endpoint {
	d := s.MultiZone.Get(r, key.On(""))
	if d == nil {
		return nil
	}
	_, taking := s.taking(r, key.On(""))
	available := s.availableIn(r, taking)
	ingresses := &Endpoints{}
	seen := map[string]bool{}
	for i := range d.Zones {
		zone := d.Zones[i].Zone
		if len(available) > 0 && !available[zone] {
			continue
		}
		for _, e := range s.ingressesOf(r, key.Mesh, zone) {
			// What stands in two zones would be one host for Envoy, of either.
			if at := joined(e.Address, e.Port); !seen[at] {
				seen[at] = true
				ingresses.Endpoints = append(ingresses.Endpoints, e)
			}
		}
	}
	return ingresses.inOrder().Endpoints
}

// SNIRouteOf answers the destination to which a server name leads: in this zone, or abroad.
func (s *State) SNIRouteOf(r *table.Reader, sni string, abroad bool) (SNIRoute, bool) {
	var named []DestinationKey
	for _, service := range s.ServicesBySNI.List(r, sni) {
		if s.IsRemote(service) == abroad {
			named = append(named, s.keyOf(service))
		}
	}
	for _, service := range s.MultiZoneServicesBySNI.List(r, sni) {
		named = append(named, multiZoneKeyOf(service))
	}
	for _, service := range named {
		passages := s.serviceSNIRoutes(r, service)
		if i := slices.IndexFunc(passages, func(p SNIRoute) bool { return p.SNI == sni }); i >= 0 && abroad {
			return passages[i].away(), true
		} else if i >= 0 {
			return passages[i], true
		}
	}
	return SNIRoute{}, false
}
