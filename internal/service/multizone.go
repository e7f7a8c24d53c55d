package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneroute"
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
func (s *Stage) SelectedServices(r *table.Reader, service *resource.Object[kind.MeshMultiZoneService],
	port kind.ServicePort) []SelectedService {
	if service.Spec.Selector.MeshService == nil {
		return nil
	}
	var all []SelectedService
	for _, selected := range s.Labeled.Get(r,
		QueryLabels(MeshService, service.Mesh, service.Spec.Selector.MeshService.MatchLabels)) {
		t := SelectedService{Service: selected.WithPort(port.Port)}
		t.destination = s.Destination.Get(r, t.Service)
		var has kind.Protocol
		if t.destination != nil {
			has = t.destination.Protocol
		}
		t.Excluded = cmp.Or(s.excludedNamespace(r, service, t.Service), ExclusionReason(port, has))
		all = append(all, t)
	}
	return all
}

// excludedNamespace is [ExcludedNamespace] of the service of a port. It reads the labels of the service alone.
func (s *Stage) excludedNamespace(r *table.Reader, service *resource.Object[kind.MeshMultiZoneService],
	key DestinationKey) string {
	if service.Spec.Selector.OfEveryNamespace() {
		return ""
	}
	d := s.Targeted.Get(r, key)
	if d == nil {
		return ""
	}
	return ExcludedNamespace(service, d.Labels[kind.NamespaceLabel])
}

// ExcludedNamespace returns why a MeshService of a namespace is excluded from a MeshMultiZoneService that selects it;
// empty: it is not. Without a list of namespaces, none counts; the row of an earlier release has no list yet, so all of
// them count.
func ExcludedNamespace(service *resource.Object[kind.MeshMultiZoneService], namespace string) string {
	selector := &service.Spec.Selector
	if namespace == "" || selector.OfEveryNamespace() || slices.Contains(selector.Namespaces, namespace) ||
		len(selector.Namespaces) == 0 && !service.Vouched.Complete {
		return ""
	}
	return fmt.Sprintf("its namespace %s is not among selector.namespaces (%s)", namespace,
		cmp.Or(strings.Join(selector.Namespaces, ", "), "none"))
}

// MemberNamespaces returns the namespaces of the MeshServices that the labels of a MeshMultiZoneService select, that of
// the oldest one first.
func (s *Stage) MemberNamespaces(r *table.Reader, service *resource.Object[kind.MeshMultiZoneService]) []string {
	if service.Spec.Selector.OfEveryNamespace() {
		return nil
	}
	keys := s.Labeled.Get(r, QueryLabels(MeshService, service.Mesh, service.Spec.Selector.MeshService.MatchLabels))
	return s.namespacesOf(r, keys)
}

// namespacesOf returns the namespaces of services, that of the oldest one first.
func (s *Stage) namespacesOf(r *table.Reader, keys []DestinationKey) []string {
	keys = slices.Clone(keys)
	created := map[DestinationKey]int64{}
	namespace := map[DestinationKey]string{}
	for _, key := range keys {
		if o := s.rowOf(r, key); o != nil {
			created[key], namespace[key] = o.Envelope().Created.UnixNano(), o.Envelope().Label(kind.NamespaceLabel)
		}
	}
	slices.SortFunc(keys, func(a, b DestinationKey) int {
		return cmp.Or(cmp.Compare(created[a], created[b]), CompareDestinations(a, b))
	})
	var namespaces []string
	for _, key := range keys {
		if of := namespace[key]; of != "" && !slices.Contains(namespaces, of) {
			namespaces = append(namespaces, of)
		}
	}
	return namespaces
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
func (s *Stage) selectedServices(r *table.Reader, key DestinationKey) (kind.ServicePort, []SelectedService) {
	service, ok := s.state.MultiZoneServices.Find(r, key.Mesh, key.Service)
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
func (s *Stage) multiZone(r *table.Reader, key DestinationKey) *Destination {
	port, selected := s.selectedServices(r, key)
	if port.Port == 0 {
		return nil
	}
	d := &Destination{Key: key, Protocol: cmp.Or(port.AppProtocol, kind.TCP), VIPs: s.vipsOf(r, key),
		ClientZone: s.state.Zone}
	ids, snis := map[string][]string{}, map[string][]string{}
	tcpInbound := false
	for _, t := range selected {
		zone := t.Service.Zone
		tcpInbound = tcpInbound || t.destination.TCPInbound
		ids[zone] = append(ids[zone], t.destination.Identities...)
		if sni := t.destination.SNI; sni != "" {
			snis[zone] = append(snis[zone], sni)
		}
	}
	for zone, names := range ids {
		slices.Sort(names)
		servers := Servers{TCPInbound: tcpInbound}
		if zone != s.state.Zone {
			servers = Servers{Zone: zone, Way: s.routes.Way(r, key.Mesh), SNI: port.SNI(),
				ServiceSNIs: slices.Sorted(slices.Values(snis[zone]))}
		}
		s.identify(r, key.Mesh, &servers, slices.Compact(names))
		switch {
		case zone == s.state.Zone:
			d.Local = &servers
		case servers.Way == zoneroute.NoEgress || servers.UnreachableReason(true) == "":
			d.Zones = append(d.Zones, servers)
		}
	}
	slices.SortFunc(d.Zones, func(a, b Servers) int { return cmp.Compare(a.Zone, b.Zone) })
	return d
}

// localityEndpoints returns the endpoints of one locality.
func (s *Stage) localityEndpoints(r *table.Reader, key DestinationKey) *Endpoints {
	endpoints := &Endpoints{Destination: key}
	if key.Locality == LocalLocality {
		_, selected := s.selectedServices(r, key.WithLocality(""))
		for _, t := range selected {
			if t.Service.Zone == s.state.Zone {
				endpoints.Endpoints = append(endpoints.Endpoints, s.Endpoints.Get(r, t.Service).Endpoints...)
			}
		}
		endpoints.Endpoints = InOrder(endpoints.Endpoints)
		return endpoints
	}
	if s.routes.ByEgress.Get(r, key.Mesh) {
		endpoints.Endpoints = ThroughHops(
			s.routes.EgressRoute.Get(r, key.Mesh).Egresses,
		) // they choose the zone by the SNI
	} else {
		endpoints.Endpoints = s.IngressesOfMembers(r, key)
	}
	return endpoints
}

// isMultiZoneServer returns whether a Dataplane is a backend of a MeshMultiZoneService.
func (s *Stage) isMultiZoneServer(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool {
	_, selected := s.selectedServices(r, key.WithLocality(""))
	return slices.ContainsFunc(selected, func(t SelectedService) bool { return s.isServer(r, proxy, t.Service) })
}

// availableIn returns the zones that have a server for one of the services, this zone included.
func (s *Stage) availableIn(r *table.Reader, selected []SelectedService) map[string]bool {
	available := map[string]bool{}
	for _, t := range selected {
		row := s.Row(t.Service)
		service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
		if ok && service.Spec.State == "Available" {
			available[t.Service.Zone] = true
		}
	}
	return available
}

// IngressesOfMembers returns the ingresses of the remote zones with a selected service of a MeshMultiZoneService's
// port. A zone whose services have no server is excluded while another zone has one, also where that is the own zone:
// a retry in the excluded zone would fail, and one in the other zone may succeed.
func (s *Stage) IngressesOfMembers(r *table.Reader, key DestinationKey) []Endpoint {
	return s.ingressesOf(r, key, nil)
}

// ingressesOf is [Stage.IngressesOfMembers] of some zones; nil: of all.
func (s *Stage) ingressesOf(r *table.Reader, key DestinationKey, zones []string) []Endpoint {
	d := s.MultiZone.Get(r, key.WithLocality(""))
	if d == nil {
		return nil
	}
	_, selected := s.selectedServices(r, key.WithLocality(""))
	available := s.availableIn(r, selected)
	var ingresses []zoneroute.Hop
	seen := map[string]bool{}
	for i := range d.Zones {
		zone := d.Zones[i].Zone
		if len(available) > 0 && !available[zone] || zones != nil && !slices.Contains(zones, zone) {
			continue
		}
		for _, ingress := range s.routes.Ingresses(r, key.Mesh, zone) {
			// An address of two zones would be one host in Envoy.
			if at := kind.HostPort(ingress.Address, ingress.Port); !seen[at] {
				seen[at] = true
				ingresses = append(ingresses, ingress)
			}
		}
	}
	return ThroughHops(ingresses)
}

// IsSelected returns whether a MeshService's port belongs to a MeshMultiZoneService's port.
func (s *Stage) IsSelected(r *table.Reader, member, in DestinationKey) bool {
	_, selected := s.selectedServices(r, in)
	return slices.ContainsFunc(selected, func(t SelectedService) bool { return t.Service == member })
}

// MultiZoneKey returns the key of a MeshMultiZoneService as a destination, without a port.
func MultiZoneKey(mesh, name string) DestinationKey {
	return DestinationKey{Kind: MultiZoneService, Mesh: mesh, Service: name}
}

// MultiZoneKeyOf is [MultiZoneKey] of a row.
func MultiZoneKeyOf(service *resource.Object[kind.MeshMultiZoneService]) DestinationKey {
	return MultiZoneKey(service.Mesh, service.Name)
}

// multiZoneNamed returns the service with a row's name. In a zone on Kubernetes a reference has the system namespace,
// which the name of global's service lacks.
func (s *Stage) multiZoneNamed(r *table.Reader, name state.ServiceKey) DestinationKey {
	if _, ok := s.state.MultiZoneServices.Find(r, name.Mesh, name.Name); !ok {
		return MultiZoneKey(name.Mesh, withoutNamespace(name.Name))
	}
	return MultiZoneKey(name.Mesh, name.Name)
}

// withoutNamespace returns NAME of NAME.NAMESPACE.
func withoutNamespace(name string) string {
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		return name[:at]
	}
	return name
}
