package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// away is the passage of the same name to the other zones.
func (p Passage) away() Passage {
	p.Abroad = true
	if p.Destination.Kind == MultiZoneService {
		p.Destination = p.Destination.On(ZonesLeg)
	}
	return p
}

// passagesAbroad are what the zone egresses of a mesh pass on to other zones, sorted, whether clients are told to go by them
// or not, so that an egress has nothing to learn when a mesh begins to.
func (s *State) passagesAbroad(r *table.Reader, mesh string) []Passage {
	var all []Passage
	for _, service := range s.Names.Get(r, mesh) {
		if service.Kind == MultiZoneService || service.Kind == MeshService && service.Zone != s.Zone {
			for _, passage := range s.ServicePassages.Get(r, service) {
				all = append(all, passage.away())
			}
		}
	}
	return eachName(all)
}

// BehindPassage returns the endpoints to which a zone proxy forwards an SNI. A zone proxy forwards nothing to its own
// machine, whatever an agent or another zone states as the address of a server or an ingress.
func (s *State) BehindPassage(r *table.Reader, p Passage) []Endpoint {
	endpoints := s.Passable.Get(r, p.Destination)
	if p.Abroad {
		endpoints = s.Beyond.Get(r, p.Destination)
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

// PassageOf answers the destination to which a server name leads: in this zone, or abroad.
func (s *State) PassageOf(r *table.Reader, sni string, abroad bool) (Passage, bool) {
	var named []DestinationKey
	for _, service := range s.ServicesBySNI.List(r, sni) {
		if s.Foreign(service) == abroad {
			named = append(named, s.keyOf(service))
		}
	}
	for _, service := range s.MultiZoneServicesBySNI.List(r, sni) {
		named = append(named, multiZoneKeyOf(service))
	}
	for _, service := range named {
		passages := s.servicePassages(r, service)
		if i := slices.IndexFunc(passages, func(p Passage) bool { return p.SNI == sni }); i >= 0 && abroad {
			return passages[i].away(), true
		} else if i >= 0 {
			return passages[i], true
		}
	}
	return Passage{}, false
}
