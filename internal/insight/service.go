package insight

import (
	"net"
	"strconv"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Service is how a service is.
type Service struct {
	ServiceType string        `json:"serviceType"` // "internal"
	Status      Status        `json:"status"`
	Dataplanes  ServiceCounts `json:"dataplanes"`
	// AddressPort is where clients reach its first port: a host name or a virtual IP; empty where it has
	// none.
	AddressPort string `json:"addressPort,omitempty"`
}

// ServiceCounts are the Dataplanes that provide a service. One is online while its proxy is connected and
// all its inbounds of the service may be used.
type ServiceCounts struct {
	Total   int `json:"total"`
	Online  int `json:"online"`
	Offline int `json:"offline"`
}

// Service looks at a service. It is online where all its proxies are, offline where none is, and partially
// degraded between; not available without any.
func (w *World) Service(o *resource.Object[kind.MeshService]) Service {
	r := table.Eval(w.Snapshot)
	s := Service{ServiceType: "internal", AddressPort: w.address(r, o)}
	members := w.State.Members(r, o.Mesh, &o.Spec.Selector)
	for len(members) > 0 {
		dp := members[0].Dataplane
		k := w.known(r, dp.Mesh, dp.Name)
		usable := w.connected(k)
		// The inbounds of one Dataplane stand together.
		for len(members) > 0 && members[0].Dataplane == dp {
			in := &members[0].Inbound
			usable = usable && in.State == kind.Ready && !k.dead(in)
			members = members[1:]
		}
		s.Dataplanes.add(usable)
	}
	s.Status = s.Dataplanes.status()
	return s
}

func (c *ServiceCounts) add(usable bool) {
	c.Total++
	if usable {
		c.Online++
	} else {
		c.Offline++
	}
}

func (c *ServiceCounts) status() Status {
	switch {
	case c.Total == 0:
		return NotAvailable
	case c.Online == c.Total:
		return Online
	case c.Online == 0:
		return Offline
	}
	return PartiallyDegraded
}

func (w *World) address(r *table.Reader, o *resource.Object[kind.MeshService]) string {
	status, ok := w.State.ServiceStatuses.Find(r, o.Mesh, o.Name)
	if !ok || len(o.Spec.Ports) == 0 {
		return ""
	}
	host := ""
	switch {
	case len(status.Spec.Addresses) > 0:
		host = status.Spec.Addresses[0].Hostname
	case len(status.Spec.VIPs) > 0:
		host = status.Spec.VIPs[0].IP
	default:
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(o.Spec.Ports[0].Port)))
}
