package inspect

import (
	"slices"

	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// EndpointStatus is whether a member of a service is an endpoint of one of its ports, and if not, why.
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
	EndpointUnvouched   EndpointStatus = "unvouched"    // what the service reads of it has no voucher
)

// StatusOf returns the status of a member for a port of its service.
func StatusOf(m *service.Member, port kind.ServicePort) EndpointStatus {
	switch {
	case !service.Targets(port, &m.Inbound):
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
	// CallersTotal is the number of callers of all pages, and CallersNext the offset of the next page. They are absent
	// where no page is requested; the last page has no next.
	CallersTotal int    `json:"callersTotal,omitempty"`
	CallersNext  string `json:"callersNext,omitempty"`
}

// Server is one inbound of a port of a service.
type Server struct {
	Port      uint32         `json:"port"` // of the service
	Dataplane string         `json:"dataplane"`
	Address   string         `json:"address"` // "10.0.0.1:8080"
	Status    EndpointStatus `json:"status"`
}

// BackingOf returns the backends and the callers of a service; nil where there is no such service. Its cost follows the
// number of the service's members, and of the groups of Dataplanes that state the same outbounds.
func (rs *Reports) BackingOf(key state.ServiceKey, page CallersPage) *Backing {
	service, ok := rs.State.Tables.Services.Find(rs.r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	b := &Backing{Servers: rs.servers(service)}
	rs.addCallers(b, rs.State.Services.KeyOf(service), page)
	return b
}

// servers returns the members of a service by its ports, and the retained former ones.
func (rs *Reports) servers(meshService *resource.Object[kind.MeshService]) []Server {
	servers := []Server{}
	members := slices.Collect(rs.State.Services.Members(rs.r, meshService))
	notAdmitted := rs.State.Services.UnreachableOutbounds(rs.r, meshService)
	unvouched := rs.State.Services.UnvouchedInbounds(rs.r, meshService)
	for _, port := range meshService.Spec.Ports {
		for i := range notAdmitted {
			if m := &notAdmitted[i]; service.Targets(port, &m.Inbound) {
				servers = append(servers, Server{port.Port, m.Dataplane.Name, m.Inbound.Listener(),
					EndpointNotAdmitted})
			}
		}
		for i := range unvouched {
			if m := &unvouched[i]; service.Targets(port, &m.Inbound) {
				servers = append(servers, Server{port.Port, m.Dataplane.Name, m.Inbound.Listener(), EndpointUnvouched})
			}
		}
		for _, m := range members {
			if StatusOf(m, port) != AnotherPort {
				servers = append(servers, Server{port.Port, m.Dataplane.Name, m.Inbound.Listener(), StatusOf(m, port)})
			}
		}
		key := rs.State.Services.KeyOf(meshService).WithPort(port.Port)
		for _, e := range rs.State.Services.RetainedEndpointsOf(rs.r, key) {
			servers = append(
				servers,
				Server{port.Port, e.Proxy.Name, kind.HostPort(e.Address, e.Port), EndpointRetained},
			)
		}
	}
	return servers
}
