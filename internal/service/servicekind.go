package service

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// serviceKind has the functions for the services of one kind. All differences between the kinds for their clients are
// here.
type serviceKind struct {
	// all returns the services of a mesh, and labeled those that have labels.
	all     func(r *table.Reader, mesh string) []DestinationKey
	labeled func(r *table.Reader, mesh string, labels map[string]string) []DestinationKey
	// named returns the service with a name; the zero key where there is none.
	named func(r *table.Reader, name state.ServiceKey) DestinationKey
	// ports returns a service's ports, by its row.
	ports func(r *table.Reader, row state.ServiceKey) []kind.ServicePort
	places
	// isMember returns whether a proxy is a backend of a destination, or may be.
	isMember func(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool

	destination table.Derived[DestinationKey, *Destination]
	endpoints   table.Derived[DestinationKey, *Endpoints]
}

// places returns the addresses and host names of the services of a kind.
type places struct {
	of func(r *table.Reader, row state.ServiceKey) kind.Places
	// vipOwners returns the rows of the services with a virtual IP, and claimants those that request a host name, by
	// its [state.HostnameKey].
	vipOwners, claimants func(r *table.Reader, key string) []state.ServiceKey
}

func (s *Stage) serviceKinds() []serviceKind {
	return []serviceKind{
		MeshService: {
			all:         listed(s.state.ServicesByMesh, s.KeyOf),
			labeled:     s.servicesLabelled,
			named:       s.serviceNamed,
			ports:       portsIn(s.state.Services),
			places:      s.placesOf[MeshService],
			isMember:    s.isServer,
			destination: s.Destination,
			endpoints:   s.Endpoints,
		},
		MultiZoneService: {
			all:         listed(s.state.MultiZoneServicesByMesh, MultiZoneKeyOf),
			labeled:     labeledIn(s.state.MultiZoneServicesByMesh, MultiZoneKeyOf),
			named:       s.multiZoneNamed,
			ports:       portsIn(s.state.MultiZoneServices),
			places:      s.placesOf[MultiZoneService],
			isMember:    s.isMultiZoneServer,
			destination: s.MultiZone,
			endpoints:   s.LocalityEndpoints,
		},
		ExternalService: {
			all:     listed(s.state.ExternalServicesByMesh, s.ExternalKeyOf),
			labeled: labeledIn(s.state.ExternalServicesByMesh, s.ExternalKeyOf),
			named:   s.externalNamed,
			ports:   s.externalPorts,
			places:  s.placesOf[ExternalService],
			isMember: func(r *table.Reader, proxy state.ProxyKey, _ DestinationKey) bool {
				return s.routes.IsEgress(r, proxy)
			},
			destination: s.External,
			endpoints:   s.ExternalEndpoints,
		},
	}
}

func listed[S any](services table.Index[*resource.Object[S]],
	keyOf func(*resource.Object[S]) DestinationKey) func(*table.Reader, string) []DestinationKey {
	return func(r *table.Reader, mesh string) []DestinationKey {
		return keysOf(services.List(r, state.MeshKey(mesh)), keyOf)
	}
}

func labeledIn[S any](services table.Index[*resource.Object[S]],
	keyOf func(*resource.Object[S]) DestinationKey) func(*table.Reader, string, map[string]string) []DestinationKey {
	return func(r *table.Reader, mesh string, labels map[string]string) []DestinationKey {
		return keysOf(withLabels(services.List(r, state.MeshKey(mesh)), labels), keyOf)
	}
}

// withLabels returns the resources that have labels.
func withLabels[S any](services []*resource.Object[S], labels map[string]string) []*resource.Object[S] {
	return slices.DeleteFunc(slices.Clone(services), func(o *resource.Object[S]) bool {
		return !kind.Subset(labels, o.Labels)
	})
}

// keysOf returns services as destinations, in the order of the services.
func keysOf[S any](services []*resource.Object[S], keyOf func(*resource.Object[S]) DestinationKey) []DestinationKey {
	keys := make([]DestinationKey, 0, len(services))
	for _, service := range services {
		keys = append(keys, keyOf(service))
	}
	return keys
}

func portsIn[S any](rows state.Rows[S]) func(*table.Reader, state.ServiceKey) []kind.ServicePort {
	return func(r *table.Reader, row state.ServiceKey) []kind.ServicePort {
		service, ok := rows.Find(r, row.Mesh, row.Name)
		if !ok {
			return nil
		}
		return kind.PortsOf(service)
	}
}

// placesIn adds the places in the statuses of a kind's services.
func placesIn[S any](t *state.Tables, services string, rows state.Rows[S], of func(*S) kind.Places) places {
	vips := table.NewIndex(rows, func(o *resource.Object[S]) []string { return addressesOf(of(&o.Spec).VIPs) })
	names := table.NewIndex(rows, func(o *resource.Object[S]) []string {
		return hostnameKeys(o.Mesh, of(&o.Spec).HostnameGenerators)
	})
	derived := table.NewDerived(t.DB, "places of a "+services, func(r *table.Reader, row state.ServiceKey) kind.Places {
		status, ok := rows.Find(r, row.Mesh, row.Name)
		if !ok {
			return kind.Places{}
		}
		return of(&status.Spec)
	}, state.DeepEqual[kind.Places])
	return places{of: derived.Get, vipOwners: rowsIn(vips), claimants: rowsIn(names)}
}

func rowsIn[S any](index table.Index[*resource.Object[S]]) func(*table.Reader, string) []state.ServiceKey {
	return func(r *table.Reader, key string) []state.ServiceKey {
		var rows []state.ServiceKey
		for _, o := range index.List(r, key) {
			rows = append(rows, state.ServiceKey{Mesh: o.Mesh, Name: o.Name})
		}
		return rows
	}
}

// VIPOwners returns the services of every kind that have a virtual IP.
func (s *Stage) VIPOwners(r *table.Reader, vip string) []resource.Key {
	var owners []resource.Key
	for of := range s.kinds {
		owners = append(owners, keysOfRows(DestinationKind(of), s.kinds[of].vipOwners(r, vip))...)
	}
	return owners
}

// HostnameOwners returns the services of every kind that request a host name, by its [state.HostnameKey].
func (s *Stage) HostnameOwners(r *table.Reader, key string) []resource.Key {
	var claimants []resource.Key
	for of := range s.kinds {
		claimants = append(claimants, keysOfRows(DestinationKind(of), s.kinds[of].claimants(r, key))...)
	}
	return claimants
}

func keysOfRows(of DestinationKind, rows []state.ServiceKey) []resource.Key {
	var keys []resource.Key
	for _, row := range rows {
		keys = append(keys, resource.Key{Kind: of.String(), Mesh: row.Mesh, Name: row.Name})
	}
	return keys
}

// DestinationOf returns one port of a service of any kind; nil where there is none.
func (s *Stage) DestinationOf(r *table.Reader, key DestinationKey) *Destination {
	return s.kinds[key.Kind].destination.Get(r, key)
}

// EndpointsOf returns the endpoints of one of the [Destination.Lists] of a service of any kind.
func (s *Stage) EndpointsOf(r *table.Reader, key DestinationKey) *Endpoints {
	return s.kinds[key.Kind].endpoints.Get(r, key)
}

// EndpointLists returns the tables of all published endpoints, of services of every kind.
func (s *Stage) EndpointLists() []table.Derived[DestinationKey, *Endpoints] {
	var lists []table.Derived[DestinationKey, *Endpoints]
	for i := range s.kinds {
		lists = append(lists, s.kinds[i].endpoints)
	}
	return lists
}

// IsMember returns whether a proxy is a backend of a destination.
func (s *Stage) IsMember(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool {
	return s.kinds[key.Kind].isMember(r, proxy, key)
}

// PortsOf returns the ports of a service of any kind.
func (s *Stage) PortsOf(r *table.Reader, key DestinationKey) []kind.ServicePort {
	return s.kinds[key.Kind].ports(r, s.Row(key))
}

// places returns the addresses and host names of a service of any kind.
func (s *Stage) places(r *table.Reader, key DestinationKey) kind.Places {
	return s.kinds[key.Kind].places.of(r, s.Row(key))
}

// vipsOf returns the virtual IPs of a service of any kind.
func (s *Stage) vipsOf(r *table.Reader, key DestinationKey) []string {
	return addressesOf(s.places(r, key).VIPs)
}

func hostnameKeys(mesh string, generators []kind.HostnameGeneratorStatus) []string {
	var keys []string
	for _, g := range generators {
		if g.Hostname != "" {
			keys = append(keys, state.HostnameKey(mesh, g.Hostname))
		}
	}
	return keys
}

// members are the values of ServiceMembers.
func (s *Stage) members(r *table.Reader, key state.ServiceKey) []*Member {
	service, ok := s.state.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	return slices.Collect(s.Members(r, service))
}
