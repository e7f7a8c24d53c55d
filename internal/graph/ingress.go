package graph

import (
	"cmp"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// IngressListener is the address at which a zone ingress accepts the connections of remote zones. (Mesh Scoped Zone
// Ingress and Zone Egress.)
type IngressListener struct {
	Address string
	Port    uint32
}

// SNIRoute is an SNI that zone proxies forward, and its destination. (SNI in the resource definition.)
type SNIRoute struct {
	SNI         string
	Destination DestinationKey
	CrossZone   bool // to remote zones
}

// CompareSNIRoutes compares two SNI routes.
func CompareSNIRoutes(a, b SNIRoute) int {
	return cmp.Or(strings.Compare(a.SNI, b.SNI), CompareDestinations(a.Destination, b.Destination))
}

// ingressListeners returns the current listener of a proxy, and the former ones that it serves while they drain.
func (s *State) ingressListeners(
	r *table.Reader,
	key state.ProxyKey,
	section *kind.ZoneIngressSection,
) []IngressListener {
	var listeners []IngressListener
	if section != nil {
		listeners = append(listeners, IngressListener{section.Address, section.Port})
	}
	if serving, ok := s.ListenerStatus(r, key); ok {
		for _, served := range serving.Spec.Ingresses {
			listeners = append(listeners, IngressListener{served.Address, served.Port})
		}
	}
	slices.SortFunc(listeners, func(a, b IngressListener) int {
		return compareAddresses(a.Address, a.Port, b.Address, b.Port)
	})
	return slices.Compact(listeners)
}

func compareAddresses(a string, aPort uint32, b string, bPort uint32) int {
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(aPort, bPort))
}

// zoneProxy returns the proxy of a ZoneIngress or a ZoneEgress, which serves every mesh and belongs to none; nil where
// this zone has no such resource.
func (s *State) zoneProxy(r *table.Reader, key state.ProxyKey) *Proxy {
	n, ok := s.Networking(r, key)
	if !ok {
		return nil
	}
	p := &Proxy{Key: key, Zone: s.Zone, Group: ProxyGroup{Reach: nothing}}
	if p.Ingresses = s.ingressListeners(r, key, n.ZoneIngress); len(p.Ingresses) > 0 {
		p.Passes = s.MeshesOf(r, key)
	}
	if key.Type == kind.EgressProxy {
		s.zoneEgressChains(r, n.ZoneEgress, p)
	}
	return p
}

// Networking returns the networking of a Dataplane, with an IP address in the place of a host name, or of a ZoneIngress
// or ZoneEgress of this zone.
func (s *State) Networking(r *table.Reader, key state.ProxyKey) (*kind.Networking, bool) {
	switch key.Type {
	case kind.IngressProxy:
		if z, ok := s.ZoneIngresses.Find(r, "", key.Name); ok && s.IsOwn(&z.Meta) {
			return z.Spec.Dataplane(), true
		}
	case kind.EgressProxy:
		if z, ok := s.ZoneEgresses.Find(r, "", key.Name); ok && s.IsOwn(&z.Meta) {
			return z.Spec.Dataplane(), true
		}
	default:
		if dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name); ok {
			return s.NetworkingOf(r, dp), true
		}
	}
	return nil, false
}

// drainingIngresses returns the "address:port" of ingress listeners that are served and no longer configured. A
// listener that remote zones still dial is excluded.
func (s *State) drainingIngresses(r *table.Reader, key state.ProxyKey, section *kind.ZoneIngressSection,
	serving *kind.DataplaneListenerStatus) []string {
	moved := section != nil && slices.ContainsFunc(serving.Ingresses, func(z kind.ZoneIngressSection) bool {
		return z.Listener() == section.Listener()
	})
	var gone []string
	for i := range serving.Ingresses {
		former := &serving.Ingresses[i]
		if section != nil && former.Listener() == section.Listener() {
			continue
		}
		if moved && former.SameAddress(section) || !s.isAdvertised(r, key, former) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}

// isAdvertised returns whether remote zones dial a proxy at the advertised address of a section.
func (s *State) isAdvertised(r *table.Reader, key state.ProxyKey, section *kind.ZoneIngressSection) bool {
	for _, entry := range s.ingressAddresses(r, key) {
		if entry.Address == section.AdvertisedAddress && entry.Port == section.AdvertisedPort {
			return true
		}
	}
	return false
}

// serviceSNIRoutes returns the SNI routes of a service's ports, in no order. This zone's ingresses forward to its own
// services, and to the local members of MeshMultiZoneServices.
func (s *State) serviceSNIRoutes(r *table.Reader, key DestinationKey) []SNIRoute {
	var routes []SNIRoute
	for _, port := range s.portsOf(r, key) {
		to := key.At(port.Port)
		if key.Kind == MultiZoneService {
			to = to.On(LocalLocality)
		}
		for _, sni := range port.SNIs {
			routes = append(routes, SNIRoute{SNI: sni.Value, Destination: to})
		}
	}
	return routes
}

// sniRoutes returns the SNI routes of the zone ingresses of a mesh, sorted.
func (s *State) sniRoutes(r *table.Reader, mesh string) []SNIRoute {
	all := s.retainedSNIRoutes(r, mesh)
	for _, service := range s.Destinations.Get(r, mesh) {
		if service.Kind == MultiZoneService || service.Kind == MeshService && service.Zone == s.Zone {
			all = append(all, s.ServiceSNIRoutes.Get(r, service)...)
		}
	}
	return uniqueSNIs(all)
}

// uniqueSNIs sorts SNI routes, and keeps one route for each SNI.
func uniqueSNIs(routes []SNIRoute) []SNIRoute {
	slices.SortFunc(routes, CompareSNIRoutes)
	return slices.CompactFunc(routes, func(a, b SNIRoute) bool { return a.SNI == b.SNI })
}

// forwardable returns the servers of a destination that remote zones may reach: servers with mutual TLS, also former
// ones. A plaintext server is reached from its own zone only, since it cannot authenticate its callers.
func (s *State) forwardable(r *table.Reader, key DestinationKey) []Endpoint {
	servers := inOrder(slices.Concat(s.EndpointsOf(r, key).Endpoints, s.retainedForwardable(r, key)))
	return slices.DeleteFunc(servers, func(e Endpoint) bool {
		serving, ok := s.ListenerStatuses.Find(r, e.Proxy.Mesh, e.Proxy.Name)
		return !ok || !slices.ContainsFunc(serving.Spec.Inbounds, func(in kind.ServedInbound) bool {
			return in.Address == e.Address && in.Port == e.Port && in.Serial != ""
		})
	})
}
