package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// serviceKind reads the services of one kind. What tells the kinds apart for whoever reaches a service stands
// here, and nowhere else.
type serviceKind struct {
	// all are the services of a mesh, and labelled those that have labels.
	all      func(r *table.Reader, mesh string) []DestinationKey
	labelled func(r *table.Reader, mesh string, labels map[string]string) []DestinationKey
	// named is the one that is meant by a name; the zero key where there is none.
	named func(r *table.Reader, name ServiceKey) DestinationKey
	// ports and places are a service's, by its row: what it is dialled at, and under which addresses and names.
	ports  func(r *table.Reader, row ServiceKey) []kind.ServicePort
	places func(r *table.Reader, row ServiceKey) ([]kind.VIP, []kind.Address)
	// isMember says whether a proxy is behind a destination, or may be.
	isMember func(r *table.Reader, proxy ProxyKey, key DestinationKey) bool

	destination *table.Derived[DestinationKey, *Destination]
	endpoints   *table.Derived[DestinationKey, *Endpoints]
}

func (s *State) serviceKinds() []serviceKind {
	return []serviceKind{
		MeshService: {
			all:      listed(s.ServicesByMesh, s.keyOf),
			labelled: s.servicesLabelled,
			named:    s.serviceNamed,
			ports:    portsIn(s.Services),
			places: placesIn(s.ServiceStatuses, func(status *kind.MeshServiceStatus) ([]kind.VIP, []kind.Address) {
				return status.VIPs, status.Addresses
			}),
			isMember:    s.isServer,
			destination: s.Destination,
			endpoints:   s.Endpoints,
		},
		MultiZoneService: {
			all:      listed(s.MultiZoneServicesByMesh, multiZoneKeyOf),
			labelled: labelledIn(s.MultiZoneServicesByMesh, multiZoneKeyOf),
			named:    func(_ *table.Reader, name ServiceKey) DestinationKey { return multiZoneKey(name.Mesh, name.Name) },
			ports:    portsIn(s.MultiZoneServices),
			places: placesIn(s.MultiZoneServiceStatuses, func(status *kind.MeshMultiZoneServiceStatus) ([]kind.VIP, []kind.Address) {
				return status.VIPs, status.Addresses
			}),
			isMember:    s.isMultiZoneServer,
			destination: s.MultiZone,
			endpoints:   s.Legs,
		},
		ExternalService: {
			all:      listed(s.ExternalServicesByMesh, s.externalKeyOf),
			labelled: labelledIn(s.ExternalServicesByMesh, s.externalKeyOf),
			named:    s.externalNamed,
			ports:    s.externalPorts,
			places: placesIn(s.ExternalServiceStatuses, func(status *kind.MeshExternalServiceStatus) ([]kind.VIP, []kind.Address) {
				return status.VIPs(), status.Addresses
			}),
			isMember:    func(r *table.Reader, proxy ProxyKey, _ DestinationKey) bool { return s.isEgress(r, proxy) },
			destination: s.External,
			endpoints:   s.ExternalEndpoints,
		},
	}
}

func listed[S any](services *table.Index[*resource.Object[S]], keyOf func(*resource.Object[S]) DestinationKey) func(*table.Reader, string) []DestinationKey {
	return func(r *table.Reader, mesh string) []DestinationKey {
		return keysOf(services.List(r, MeshKey(mesh)), keyOf)
	}
}

func labelledIn[S any](services *table.Index[*resource.Object[S]], keyOf func(*resource.Object[S]) DestinationKey) func(*table.Reader, string, map[string]string) []DestinationKey {
	return func(r *table.Reader, mesh string, labels map[string]string) []DestinationKey {
		return keysOf(having(services.List(r, MeshKey(mesh)), labels), keyOf)
	}
}

// having are those of some resources that have labels.
func having[S any](services []*resource.Object[S], labels map[string]string) []*resource.Object[S] {
	return slices.DeleteFunc(slices.Clone(services), func(o *resource.Object[S]) bool { return !kind.Subset(labels, o.Labels) })
}

// keysOf are services as destinations, in the order of the services.
func keysOf[S any](services []*resource.Object[S], keyOf func(*resource.Object[S]) DestinationKey) []DestinationKey {
	keys := make([]DestinationKey, 0, len(services))
	for _, service := range services {
		keys = append(keys, keyOf(service))
	}
	return keys
}

func portsIn[S any](rows Rows[S]) func(*table.Reader, ServiceKey) []kind.ServicePort {
	return func(r *table.Reader, row ServiceKey) []kind.ServicePort {
		service, ok := rows.Find(r, row.Mesh, row.Name)
		if !ok {
			return nil
		}
		return kind.PortsOf(service)
	}
}

func placesIn[S any](rows Rows[S], of func(*S) ([]kind.VIP, []kind.Address)) func(*table.Reader, ServiceKey) ([]kind.VIP, []kind.Address) {
	return func(r *table.Reader, row ServiceKey) ([]kind.VIP, []kind.Address) {
		status, ok := rows.Find(r, row.Mesh, row.Name)
		if !ok {
			return nil, nil
		}
		return of(&status.Spec)
	}
}

// DestinationOf is one port of a service of any kind; nil where there is none.
func (s *State) DestinationOf(r *table.Reader, key DestinationKey) *Destination {
	return s.services[key.Kind].destination.Get(r, key)
}

// EndpointsOf are the endpoints of one of the [Destination.Lists] of a service of any kind.
func (s *State) EndpointsOf(r *table.Reader, key DestinationKey) *Endpoints {
	return s.services[key.Kind].endpoints.Get(r, key)
}

// EndpointLists are all published endpoints, of services of every kind.
func (s *State) EndpointLists() []*table.Derived[DestinationKey, *Endpoints] {
	var lists []*table.Derived[DestinationKey, *Endpoints]
	for i := range s.services {
		lists = append(lists, s.services[i].endpoints)
	}
	return lists
}

// IsMember says whether a proxy is behind a destination.
func (s *State) IsMember(r *table.Reader, proxy ProxyKey, key DestinationKey) bool {
	return s.services[key.Kind].isMember(r, proxy, key)
}

// portsOf are the ports of a service of any kind.
func (s *State) portsOf(r *table.Reader, key DestinationKey) []kind.ServicePort {
	return s.services[key.Kind].ports(r, s.Row(key))
}

// vipsOf are the virtual IPs of a service of any kind.
func (s *State) vipsOf(r *table.Reader, key DestinationKey) []string {
	vips, _ := s.services[key.Kind].places(r, s.Row(key))
	return addressesOf(vips)
}
