package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// IsRemote says whether a MeshService is another zone's. Its selector is about that zone's Dataplanes, which
// are not here, and what the zone tells of it is all that is known. On global every one is.
func (s *State) IsRemote(service *resource.Object[kind.MeshService]) bool {
	return s.InOtherZone(&service.Meta)
}

// InOtherZone says whether a resource is another zone's. What global owns is every zone's.
func (s *State) InOtherZone(meta *resource.Meta) bool { return s.ZoneOf(meta) != s.Zone }

// stored is the name that a zone's resource has in this table.
func (s *State) stored(info *resource.Info, zone, name string) string {
	if zone == s.Zone {
		return name
	}
	return kind.SyncedName(info, name, kind.Owner{Zone: zone})
}

// Row is where the service of a destination stands, in the rows of its kind. It follows from the key alone.
func (s *State) Row(key DestinationKey) ServiceKey {
	return ServiceKey{key.Mesh, s.stored(destinationKinds[key.Kind].info, key.Zone, key.Service)}
}

// keyOf names a MeshService as a destination, without a port.
func (s *State) keyOf(service *resource.Object[kind.MeshService]) DestinationKey {
	key := DestinationKey{Mesh: service.Mesh, Zone: s.ZoneOf(&service.Meta), Service: service.Name}
	if key.Zone != s.Zone {
		key.Service = kind.DisplayNameOf(&service.Meta)
	}
	return key
}

// ListsOf are the lists of endpoints of a service that its own zone makes, one for each port; none in any other zone.
func (s *State) ListsOf(service *resource.Object[kind.MeshService]) []DestinationKey {
	if s.Zone == "" || s.IsRemote(service) {
		return nil
	}
	var lists []DestinationKey
	for _, port := range service.Spec.Ports {
		lists = append(lists, s.keyOf(service).At(port.Port))
	}
	return lists
}

// toldIdentities are the SPIFFE IDs of a service's servers, as its zone tells them.
func toldIdentities(service *kind.MeshService) []string {
	ids := spiffeIDs(service)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// wayAbroad is how servers of other zones are reached.
func (s *State) wayAbroad(r *table.Reader, mesh string) Way {
	if s.ByEgress.Get(r, mesh) {
		return s.EgressRoute.Get(r, mesh).by()
	}
	return ByIngress
}

// doorsTo are the zone proxies that are to be dialled for another zone: its ingresses, or the egresses of this one,
// which pass on to them.
func (s *State) doorsTo(r *table.Reader, mesh, zone string) []Endpoint {
	if s.ByEgress.Get(r, mesh) {
		return slices.Clone(s.EgressRoute.Get(r, mesh).Egresses)
	}
	return s.ingressesOf(r, mesh, zone)
}

// ingressesOf returns the ingresses of another zone that are to be dialled, a host name by each of its addresses. The zone says which; that none of its
// services is Available is no reason against them: an ingress without a server refuses at once, and one
// that has a server again is used again before the news of it is here.
func (s *State) ingressesOf(r *table.Reader, mesh, zone string) []Endpoint {
	row, ok := s.ZoneAddresses.Find(r, mesh, s.zoneAddressName(zone))
	if !ok {
		return nil
	}
	var endpoints []Endpoint
	for _, ingress := range row.Spec.Usable() {
		addresses := s.resolve(r, ingress.Address)
		if len(addresses) == 0 {
			endpoints = append(endpoints, s.formerIngresses(r, ingress.Address, mesh, zone)...)
		}
		for _, address := range addresses {
			endpoints = append(endpoints, Endpoint{Address: address, Port: ingress.Port, Zone: zone})
		}
	}
	return endpoints
}
