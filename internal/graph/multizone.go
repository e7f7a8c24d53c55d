package graph

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// SelectedService is a MeshService that a MeshMultiZoneService selects, for one of its ports.
type SelectedService struct {
	Service DestinationKey // the MeshService's port
	// Excluded is why it is excluded from the port; empty: it is not.
	Excluded string

	destination *Destination
}

// SelectedServices returns the MeshServices that a MeshMultiZoneService selects, for one of its ports. (SNI in the
// resource definition: the written ports decide.)
func (s *State) SelectedServices(r *table.Reader, service *resource.Object[kind.MeshMultiZoneService],
	port kind.ServicePort) []SelectedService {
	if service.Spec.Selector.MeshService == nil {
		return nil
	}
	var all []SelectedService
	for _, selected := range s.Labeled.Get(r,
		labelsOf(MeshService, service.Mesh, service.Spec.Selector.MeshService.MatchLabels)) {
		t := SelectedService{Service: selected.At(port.Port)}
		t.destination = s.Destination.Get(r, t.Service)
		var has kind.Protocol
		if t.destination != nil {
			has = t.destination.Protocol
		}
		t.Excluded = ExclusionReason(port, has)
		all = append(all, t)
	}
	return all
}

// ExclusionReason returns why a MeshService is excluded from a port of a MeshMultiZoneService; empty: it is not. has is
// the protocol of its port with that number, empty without one. (SNI in the resource definition.)
func ExclusionReason(port kind.ServicePort, has kind.Protocol) string {
	wanted := cmp.Or(port.AppProtocol, kind.TCP)
	switch {
	case has == "":
		return fmt.Sprintf("it has no port %d", port.Port)
	case wanted != has:
		return fmt.Sprintf("its port %d is %s, not %s", port.Port, has, wanted)
	}
	return ""
}

// selectedServices returns a port and its selected services without the excluded ones; none where there is no such
// port.
func (s *State) selectedServices(r *table.Reader, key DestinationKey) (kind.ServicePort, []SelectedService) {
	service, ok := s.MultiZoneServices.Find(r, key.Mesh, key.Service)
	if !ok {
		return kind.ServicePort{}, nil
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, key.Port)
	if !ok {
		return port, nil
	}
	return port, slices.DeleteFunc(s.SelectedServices(r, service, port), func(t SelectedService) bool {
		return t.Excluded != ""
	})
}

// multiZone returns one port of a MeshMultiZoneService: the servers of this zone's members, and those of each remote
// zone, whose ingresses route by the SNI of the MeshMultiZoneService.
func (s *State) multiZone(r *table.Reader, key DestinationKey) *Destination {
	port, selected := s.selectedServices(r, key)
	if port.Port == 0 {
		return nil
	}
	d := &Destination{Key: key, Protocol: cmp.Or(port.AppProtocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	ids := map[string][]string{}
	tcpInbound := false
	for _, t := range selected {
		zone := t.Service.Zone
		tcpInbound = tcpInbound || t.destination.TCPInbound
		ids[zone] = append(ids[zone], t.destination.Identities...)
	}
	for zone, names := range ids {
		slices.Sort(names)
		servers := Servers{TCPInbound: tcpInbound}
		if zone != s.Zone {
			servers = Servers{Zone: zone, Way: s.crossZoneWay(r, key.Mesh), SNI: port.SNI()}
		}
		s.identify(r, key.Mesh, &servers, slices.Compact(names))
		switch {
		case zone == s.Zone:
			d.Local = &servers
		case servers.Way == NoEgress || servers.UnreachableReason(true) == "":
			d.Zones = append(d.Zones, servers)
		}
	}
	slices.SortFunc(d.Zones, func(a, b Servers) int { return cmp.Compare(a.Zone, b.Zone) })
	return d
}

// localityEndpoints returns the endpoints of one locality.
func (s *State) localityEndpoints(r *table.Reader, key DestinationKey) *Endpoints {
	endpoints := &Endpoints{Destination: key}
	if key.Locality == LocalLocality {
		_, selected := s.selectedServices(r, key.On(""))
		for _, t := range selected {
			if t.Service.Zone == s.Zone {
				endpoints.Endpoints = append(endpoints.Endpoints, s.Endpoints.Get(r, t.Service).Endpoints...)
			}
		}
		endpoints.Endpoints = inOrder(endpoints.Endpoints)
		return endpoints
	}
	if s.ByEgress.Get(r, key.Mesh) {
		endpoints.Endpoints = throughHops(s.EgressRoute.Get(r, key.Mesh).Egresses) // they choose the zone by the SNI
	} else {
		endpoints.Endpoints = s.ingressesOfMembers(r, key)
	}
	return endpoints
}

// isMultiZoneServer returns whether a Dataplane is a backend of a MeshMultiZoneService.
func (s *State) isMultiZoneServer(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool {
	_, selected := s.selectedServices(r, key.On(""))
	return slices.ContainsFunc(selected, func(t SelectedService) bool { return s.isServer(r, proxy, t.Service) })
}

// availableIn returns the remote zones that have a server for one of the services.
func (s *State) availableIn(r *table.Reader, selected []SelectedService) map[string]bool {
	available := map[string]bool{}
	for _, t := range selected {
		row := s.Row(t.Service)
		service, ok := s.Services.Find(r, row.Mesh, row.Name)
		if ok && t.Service.Zone != s.Zone && service.Spec.State == "Available" {
			available[t.Service.Zone] = true
		}
	}
	return available
}
