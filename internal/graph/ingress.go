package graph

import (
	"cmp"
	"slices"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// IngressListener is where a zone ingress takes the connections of other zones.
// (Mesh Scoped Zone Ingress and Zone Egress.)
type IngressListener struct {
	Address string
	Port    uint32
}

// SNIRoute is a server name by which zone proxies pass connections on, and the destination that it leads to.
// (SNI in the resource definition.)
type SNIRoute struct {
	SNI         string
	Destination DestinationKey
	CrossZone   bool // to other zones
}

// CompareSNIRoutes orders passages.
func CompareSNIRoutes(a, b SNIRoute) int {
	return cmp.Or(strings.Compare(a.SNI, b.SNI), CompareDestinations(a.Destination, b.Destination))
}

// isOwn says whether a resource belongs to this zone.
func (s *State) isOwn(meta *resource.Meta) bool { return s.ZoneOf(meta) == s.Zone }

// ingressListeners are the current one of a proxy, and former ones that it serves still while they are
// withdrawn.
func (s *State) ingressListeners(r *table.Reader, key ProxyKey, section *kind.ZoneIngressSection) []IngressListener {
	var listeners []IngressListener
	if section != nil {
		listeners = append(listeners, IngressListener{section.Address, section.Port})
	}
	if serving, ok := s.ListenerStatus(r, key); ok {
		for _, served := range serving.Spec.Ingresses {
			listeners = append(listeners, IngressListener{served.Address, served.Port})
		}
	}
	slices.SortFunc(listeners, func(a, b IngressListener) int { return compareAddresses(a.Address, a.Port, b.Address, b.Port) })
	return slices.Compact(listeners)
}

func compareAddresses(a string, aPort uint32, b string, bPort uint32) int {
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(aPort, bPort))
}

// zoneProxy is the proxy of a ZoneIngress or a ZoneEgress, which serves every mesh and belongs to none; nil where
// there is no such one in this zone.
func (s *State) zoneProxy(r *table.Reader, key ProxyKey) *Proxy {
	n, ok := s.Networking(r, key)
	if !ok {
		return nil
	}
	p := &Proxy{Key: key, Zone: s.Zone, Group: ProxyGroup{Reach: nothing}}
	if p.Ingresses = s.ingressListeners(r, key, n.ZoneIngress); len(p.Ingresses) > 0 {
		p.Passes = s.meshesOf(r, key)
	}
	if key.Type == kind.EgressProxy {
		s.leadAllOut(r, n.ZoneEgress, p)
	}
	return p
}

// Networking returns the networking of a Dataplane, with an IP address in the place of a host name, or of a ZoneIngress or
// ZoneEgress of this zone.
func (s *State) Networking(r *table.Reader, key ProxyKey) (*kind.Networking, bool) {
	switch key.Type {
	case kind.IngressProxy:
		if z, ok := s.ZoneIngresses.Find(r, "", key.Name); ok && s.isOwn(&z.Meta) {
			return z.Spec.Dataplane(), true
		}
	case kind.EgressProxy:
		if z, ok := s.ZoneEgresses.Find(r, "", key.Name); ok && s.isOwn(&z.Meta) {
			return z.Spec.Dataplane(), true
		}
	default:
		if dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name); ok {
			return s.NetworkingOf(r, dp), true
		}
	}
	return nil, false
}

// withdrawingIngresses are "address:port" of ingress listeners that are served and no longer wanted, but for those
// that other zones are still told to dial.
func (s *State) withdrawingIngresses(r *table.Reader, key ProxyKey, section *kind.ZoneIngressSection, serving *kind.DataplaneListenerStatus) []string {
	moved := section != nil && slices.ContainsFunc(serving.Ingresses, func(z kind.ZoneIngressSection) bool { return z.Listener() == section.Listener() })
	var gone []string
	for i := range serving.Ingresses {
		former := &serving.Ingresses[i]
		if section != nil && former.Listener() == section.Listener() {
			continue
		}
		if moved && former.SameAddress(section) || !s.dialled(r, key, former) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}

// dialled says whether other zones are told to dial a proxy where a section says.
func (s *State) dialled(r *table.Reader, key ProxyKey, section *kind.ZoneIngressSection) bool {
	for _, entry := range s.ingressAddresses(r, key) {
		if entry.Address == section.AdvertisedAddress && entry.Port == section.AdvertisedPort {
			return true
		}
	}
	return false
}

// MeshNames are all meshes, sorted.
func (s *State) MeshNames(r *table.Reader) []string { return s.meshesOf(r, ProxyKey{}) }

// meshesOf are the meshes to whose services a zone ingress leads: its own, or, where it has none, all.
func (s *State) meshesOf(r *table.Reader, key ProxyKey) []string {
	if key.Mesh != "" {
		return []string{key.Mesh}
	}
	var meshes []string
	for _, mesh := range s.MeshesByScope.List(r, MeshKey("")) {
		meshes = append(meshes, mesh.Name)
	}
	slices.Sort(meshes)
	return meshes
}

// serviceSNIRoutes are the server names of a service's ports, in no order. Behind this zone's ingresses are its own
// services, and what is here of those of many zones.
func (s *State) serviceSNIRoutes(r *table.Reader, key DestinationKey) []SNIRoute {
	var passages []SNIRoute
	for _, port := range s.portsOf(r, key) {
		to := key.At(port.Port)
		if key.Kind == MultiZoneService {
			to = to.On(LocalLocality)
		}
		for _, sni := range port.SNIs {
			passages = append(passages, SNIRoute{SNI: sni.Value, Destination: to})
		}
	}
	return passages
}

// sniRoutes are what the zone ingresses of a mesh pass on, sorted.
func (s *State) sniRoutes(r *table.Reader, mesh string) []SNIRoute {
	all := s.heldPassages(r, mesh)
	for _, service := range s.Destinations.Get(r, mesh) {
		if service.Kind == MultiZoneService || service.Kind == MeshService && service.Zone == s.Zone {
			all = append(all, s.ServiceSNIRoutes.Get(r, service)...)
		}
	}
	return eachName(all)
}

// eachName sorts passages, and leaves a server name one.
func eachName(passages []SNIRoute) []SNIRoute {
	slices.SortFunc(passages, CompareSNIRoutes)
	return slices.CompactFunc(passages, func(a, b SNIRoute) bool { return a.SNI == b.SNI })
}

// forwardable are the servers of a destination that other zones may reach: those that serve mutual TLS, of which
// some are former ones. A plain server is reached from its own zone alone, since nobody would know who calls.
func (s *State) forwardable(r *table.Reader, key DestinationKey) []Endpoint {
	servers := &Endpoints{Endpoints: slices.Concat(s.EndpointsOf(r, key).Endpoints, s.heldPassable(r, key))}
	return slices.DeleteFunc(servers.inOrder().Endpoints, func(e Endpoint) bool {
		serving, ok := s.ListenerStatuses.Find(r, e.Proxy.Mesh, e.Proxy.Name)
		return !ok || !slices.ContainsFunc(serving.Spec.Inbounds, func(in kind.ServedInbound) bool {
			return in.Address == e.Address && in.Port == e.Port && in.Serial != ""
		})
	})
}
