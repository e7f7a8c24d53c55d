package inspect

import (
	"net"
	"strconv"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Service is the status of a service.
type Service struct {
	ServiceType string        `json:"serviceType"` // "internal"
	Status      Status        `json:"status"`
	Dataplanes  ServiceCounts `json:"dataplanes"`
	// AddressPort is the address of the service's first port: a host name or a virtual IP. It is empty without either.
	AddressPort string `json:"addressPort,omitempty"`
	// Unknown is why the status is unknown; absent: it is known.
	Unknown *Unknown `json:"unknown,omitempty"`
}

// ServiceCounts are the Dataplanes that provide a service. A Dataplane is online while its proxy is connected and
// serves all its inbounds of the service.
type ServiceCounts struct {
	Total   int `json:"total"`
	Online  int `json:"online"`
	Offline int `json:"offline"`
	// Unknown is the number of those whose zone is not connected to this global control plane.
	Unknown int `json:"unknown,omitempty"`
}

// Service returns the status of a service. It is online if all its proxies are, offline if none is, and partially
// degraded between. Without a proxy, and where all are unknown, it is not available: clients know no other value.
func (w *World) Service(o *resource.Object[kind.MeshService]) Service {
	r := table.Eval(w.Snapshot)
	counts := w.providers(o, func(dp *resource.Object[kind.Dataplane]) known { return w.known(r, dp.Mesh, dp.Name) })
	return Service{ServiceType: "internal", Status: counts.status(), Dataplanes: counts, AddressPort: w.address(o),
		Unknown: w.UnknownOf(&o.Meta)}
}

// providers counts the Dataplanes that a service selects, by their status.
func (w *World) providers(o *resource.Object[kind.MeshService],
	knownOf func(*resource.Object[kind.Dataplane]) known) ServiceCounts {
	r := table.Eval(w.Snapshot)
	var (
		counts ServiceCounts
		last   *resource.Object[kind.Dataplane] // inbounds of one Dataplane are adjacent
		k      known
		usable bool
	)
	for dp, in := range w.State.Services.SelectedInbounds(r, o) {
		if dp != last {
			counts.add(last, usable)
			last, k = dp, knownOf(dp)
			usable = k.connected
		}
		usable = usable && in.State == kind.Ready && !k.dead(&in)
	}
	counts.add(last, usable)
	if w.UnknownOf(&o.Meta) != nil { // the Dataplanes are those of its zone
		return ServiceCounts{Total: counts.Total, Unknown: counts.Total}
	}
	return counts
}

func (c *ServiceCounts) add(dp *resource.Object[kind.Dataplane], usable bool) {
	switch {
	case dp == nil:
		return
	case usable:
		c.Online++
	default:
		c.Offline++
	}
	c.Total++
}

func (c ServiceCounts) status() Status {
	switch {
	case c.Total == c.Unknown:
		return NotAvailable
	case c.Online == c.Total:
		return Online
	case c.Online == 0:
		return Offline
	}
	return PartiallyDegraded
}

// summary is status with [NotKnown] for a service all of whose Dataplanes are unknown.
func (c ServiceCounts) summary() Status {
	if c.Unknown > 0 && c.Unknown == c.Total {
		return NotKnown
	}
	return c.status()
}

func (w *World) address(o *resource.Object[kind.MeshService]) string {
	status, ok := w.State.Tables.ServiceStatuses.Find(table.Eval(w.Snapshot), o.Mesh, o.Name)
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
