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

// Passage is a server name by which zone ingresses pass connections on, and the destination that it leads to.
// (SNI in the resource definition.)
type Passage struct {
	SNI         string
	Destination DestinationKey
}

// ComparePassages orders passages.
func ComparePassages(a, b Passage) int {
	return cmp.Or(strings.Compare(a.SNI, b.SNI), CompareDestinations(a.Destination, b.Destination))
}

// isOwn says whether a resource belongs to this zone. One without the label was written before there were
// others.
func (s *State) isOwn(meta *resource.Meta) bool {
	zone := meta.Label(kind.ZoneLabel)
	return zone == "" || zone == s.Zone
}

// ingressListeners are the current one of a proxy, and former ones that it serves still while they are
// withdrawn.
func (s *State) ingressListeners(r *table.Reader, key ProxyKey, section *kind.ZoneIngressSection) []IngressListener {
	var listeners []IngressListener
	if section != nil {
		listeners = append(listeners, IngressListener{section.Address, section.Port})
	}
	if serving, ok := s.Servings.Find(r, key.Mesh, key.Name); ok {
		for _, served := range serving.Spec.Ingresses {
			listeners = append(listeners, IngressListener{served.Address, served.Port})
		}
	}
	slices.SortFunc(listeners, func(a, b IngressListener) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(listeners)
}

// servicePassages are the server names of a service's ports, in no order. Only this zone's own services are
// behind its ingresses.
func (s *State) servicePassages(r *table.Reader, key ServiceKey) []Passage {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok || !s.isOwn(&service.Meta) {
		return nil
	}
	var passages []Passage
	for _, port := range service.Spec.Ports {
		for _, sni := range port.SNIs {
			passages = append(passages, Passage{sni.Value, s.keyOf(service).At(port.Port)})
		}
	}
	return passages
}

// passages are what the zone ingresses of a mesh pass on, sorted.
func (s *State) passages(r *table.Reader, mesh string) []Passage {
	var all []Passage
	for _, service := range s.Names.Get(r, mesh) {
		if service.Kind == MeshService && service.Zone == s.Zone {
			all = append(all, s.ServicePassages.Get(r, s.Row(service))...)
		}
	}
	slices.SortFunc(all, ComparePassages)
	return slices.CompactFunc(all, func(a, b Passage) bool { return a.SNI == b.SNI })
}

// passable are the endpoints of a destination that other zones may reach: those that serve mutual TLS. A
// plain server is reached from its own zone alone, since nobody would know who calls.
func (s *State) passable(r *table.Reader, key DestinationKey) []Endpoint {
	return slices.DeleteFunc(slices.Clone(s.Endpoints.Get(r, key).Endpoints), func(e Endpoint) bool {
		serving, ok := s.Servings.Find(r, e.Proxy.Mesh, e.Proxy.Name)
		return !ok || !slices.ContainsFunc(serving.Spec.Inbounds, func(in kind.ServedInbound) bool {
			return in.Address == e.Address && in.Port == e.Port && in.Serial != ""
		})
	})
}

// PassageOf answers the destination to which a server name leads in this zone.
func (s *State) PassageOf(r *table.Reader, sni string) (Passage, bool) {
	for _, service := range s.ServicesBySNI.List(r, sni) {
		for _, passage := range s.servicePassages(r, ServiceKey{service.Mesh, service.Name}) {
			if passage.SNI == sni {
				return passage, true
			}
		}
	}
	return Passage{}, false
}
