package service

import (
	"cmp"
	"slices"

	"weft/internal/state"
	"weft/internal/zoneroute"
)

// Endpoint is one server of a destination, or a zone proxy that forwards to its servers.
type Endpoint struct {
	Address string
	Port    uint32
	// Zone is set on an ingress of another zone.
	Zone string
	// Proxy is set for a proxy of this zone: a server, or an egress.
	Proxy state.ProxyKey
	// Plaintext is true while the proxy has an identity and does not serve mutual TLS yet.
	Plaintext bool
	// Egress is true for an egress of this zone in a list that has servers of this zone too.
	Egress bool `json:",omitempty"`
	// Group is the index of its group among [Endpoints.Groups].
	Group int `json:",omitempty"`
}

// Endpoints are the published endpoints of a destination, sorted by group, zone, address and port.
type Endpoints struct {
	Destination DestinationKey
	Endpoints   []Endpoint
	// Groups share the traffic by their weights; nil: each endpoint has the same share.
	Groups []EndpointGroup `json:",omitempty"`
	// Overprovisioning is the factor, in percent, from the share of healthy endpoints to the share of the traffic that
	// stays with them; 0: the default of the locality.
	Overprovisioning uint32 `json:",omitempty"`
}

// EndpointGroup is a group of endpoints. Its traffic is shared evenly.
type EndpointGroup struct {
	Name   string // "LABEL=VALUE"; empty for the endpoints of no other group
	Weight uint32
}

// InOrder sorts endpoints in place, and removes duplicate addresses of a zone: several inbounds may share one.
func InOrder(endpoints []Endpoint) []Endpoint {
	slices.SortFunc(endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return slices.CompactFunc(endpoints, func(a, b Endpoint) bool {
		return a.Zone == b.Zone && a.Address == b.Address && a.Port == b.Port
	})
}

// ThroughHops returns zone proxies as the endpoints of the destinations to which they forward, in order.
func ThroughHops(hops []zoneroute.Hop) []Endpoint {
	var endpoints []Endpoint
	for _, hop := range hops {
		endpoints = append(endpoints, Endpoint{Address: hop.Address, Port: hop.Port, Zone: hop.Zone, Proxy: hop.Proxy})
	}
	return InOrder(endpoints)
}

func equalEndpoints(a, b *Endpoints) bool { return slices.Equal(a.Endpoints, b.Endpoints) }

// Has returns whether an endpoint is one of them.
func (e *Endpoints) Has(endpoint Endpoint) bool { return slices.Contains(e.Endpoints, endpoint) }
