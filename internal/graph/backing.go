package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// EndpointStatus tells whether a member of a service is an endpoint of one of its ports, and if not, why.
type EndpointStatus string

// The statuses of a member for a port.
const (
	EndpointPublished   EndpointStatus = "endpoint"
	AnotherPort         EndpointStatus = "another port" // the service's port does not target the inbound
	NotReady            EndpointStatus = "NotReady"     // stated by its owner
	Unserved            EndpointStatus = "not ready"    // its proxy, its listener or its application does not run
	Unhealthy           EndpointStatus = "unhealthy"    // its application fails the probe, or its proxy drains
	EndpointRetained    EndpointStatus = "retained"     // a former member, retained until new ones serve
	EndpointNotAdmitted EndpointStatus = "not admitted" // its mesh does not admit its Dataplane
)

// Status returns the status of the member for a port of its service.
func (m *Member) Status(port kind.ServicePort) EndpointStatus {
	switch {
	case !Targets(port, &m.Inbound):
		return AnotherPort
	case m.Inbound.State != kind.Ready:
		return NotReady
	case !m.Ready:
		return Unserved
	case !m.Healthy:
		return Unhealthy
	}
	return EndpointPublished
}

// Backing lists the backends and the callers of a service, as the API shows it.
type Backing struct {
	Servers []Server `json:"servers"`
	// Callers are the Dataplanes with an outbound for it. Transparent is the number of proxies that reach it at its
	// virtual IP.
	Callers     []string `json:"callers"`
	Transparent int      `json:"transparent"`
}

// Server is one inbound of a port of a service.
type Server struct {
	Port      uint32         `json:"port"` // of the service
	Dataplane string         `json:"dataplane"`
	Address   string         `json:"address"` // "10.0.0.1:8080"
	Status    EndpointStatus `json:"status"`
}

// Backing returns the backends and the callers of a service; nil where there is no such service. Its cost follows the
// number of proxies in the mesh.
func (s *State) Backing(r *table.Reader, key ServiceKey) *Backing {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	b := &Backing{Servers: s.servers(r, service), Callers: []string{}}
	s.callers(r, s.keyOf(service), b)
	return b
}

// servers returns the members of a service by its ports, and the retained former ones.
func (s *State) servers(r *table.Reader, service *resource.Object[kind.MeshService]) []Server {
	servers := []Server{}
	members := s.Members(r, service)
	notAdmitted := s.UnreachableOutbounds(r, service)
	for _, port := range service.Spec.Ports {
		for i := range notAdmitted {
			if m := &notAdmitted[i]; Targets(port, &m.Inbound) {
				servers = append(servers, Server{port.Port, m.Dataplane.Name, m.Inbound.Listener(),
					EndpointNotAdmitted})
			}
		}
		for i := range members {
			if m := &members[i]; m.Status(port) != AnotherPort {
				servers = append(servers, Server{port.Port, m.Dataplane.Name, m.Inbound.Listener(), m.Status(port)})
			}
		}
		for _, e := range s.retainedEndpoints(r, s.keyOf(service).At(port.Port)) {
			servers = append(servers, Server{port.Port, e.Proxy.Name, hostPort(e.Address, e.Port), EndpointRetained})
		}
	}
	return servers
}

func (s *State) callers(r *table.Reader, key DestinationKey, b *Backing) {
	for _, dp := range s.DataplanesBySelector.List(r, MeshKey(key.Mesh)) {
		proxy := s.Proxy.Get(r, ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
		names := func(o ExplicitOutbound) bool { return o.Destination.Of() == key }
		reaches := func(d DestinationKey) bool { return d.Of() == key }
		switch {
		case slices.ContainsFunc(proxy.Outbounds, names):
			b.Callers = append(b.Callers, dp.Name)
		case proxy.Group.Transparent && slices.ContainsFunc(s.Reached.Get(r, proxy.Group), reaches):
			b.Transparent++
		}
	}
}
