package graph

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Row returns the row of a destination's service among the rows of its kind. It depends on the key only.
func (s *State) Row(key DestinationKey) state.ServiceKey {
	return state.ServiceKey{Mesh: key.Mesh, Name: s.StoredName(destinationKinds[key.Kind].info, key.Zone, key.Service)}
}

// KeyOf returns the key of a MeshService as a destination, without a port.
func (s *State) KeyOf(service *resource.Object[kind.MeshService]) DestinationKey {
	key := DestinationKey{Mesh: service.Mesh, Zone: s.ZoneOf(&service.Meta), Service: service.Name}
	if key.Zone != s.Zone {
		key.Service = kind.DisplayNameOf(&service.Meta)
	}
	return key
}

// ListsOf returns the endpoint lists of a service that its own zone computes, one for each port; none in any other
// zone.
func (s *State) ListsOf(service *resource.Object[kind.MeshService]) []DestinationKey {
	if s.Zone == "" || s.IsRemote(service) {
		return nil
	}
	var lists []DestinationKey
	for _, port := range service.Spec.Ports {
		lists = append(lists, s.KeyOf(service).At(port.Port))
	}
	return lists
}

// toldIdentities returns the SPIFFE IDs of a service's servers, as its zone reports them.
func toldIdentities(service *kind.MeshService) []string {
	ids := service.SpiffeIDs()
	slices.Sort(ids)
	return slices.Compact(ids)
}

// crossZoneWay returns the way to servers of remote zones.
func (s *State) crossZoneWay(r *table.Reader, mesh string) Way {
	if s.ByEgress.Get(r, mesh) {
		return s.EgressRoute.Get(r, mesh).way()
	}
	return ByIngress
}

// crossZoneProxies returns the zone proxies to dial for a remote zone: its ingresses, or the egresses of this zone,
// which forward to them.
func (s *State) crossZoneProxies(r *table.Reader, mesh, zone string) []Hop {
	if s.ByEgress.Get(r, mesh) {
		return s.EgressRoute.Get(r, mesh).Egresses
	}
	return s.ingressesOf(r, mesh, zone)
}

// ingressesOf returns the ingresses of a remote zone to dial, with every IP address of a host name. The zone decides
// which. An ingress stays in the list while no service of its zone is Available: it rejects connections without a
// server, and serves again before this zone learns of it.
func (s *State) ingressesOf(r *table.Reader, mesh, zone string) []Hop {
	row, ok := s.ZoneAddress(r, mesh, zone)
	if !ok {
		return nil
	}
	var ingresses []Hop
	for _, ingress := range row.Spec.Usable() {
		addresses := s.Resolve(r, ingress.Address)
		if len(addresses) == 0 {
			ingresses = append(ingresses, s.formerIngresses(r, ingress.Address, mesh, zone)...)
		}
		for _, address := range addresses {
			ingresses = append(ingresses, Hop{Address: address, Port: ingress.Port, Zone: zone})
		}
	}
	return ingresses
}
