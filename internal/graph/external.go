package graph

import (
	"cmp"
	"slices"

	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// WayOut is how the proxies of a mesh leave their zone.
type WayOut struct {
	// Egresses are the zone egresses of this zone that are to be dialled. Without any, what goes through them
	// reaches nothing: another way would leave out their permissions.
	Egresses []Endpoint
	// Identities are the names under which egresses are to be taken, sorted. Those that are not dialled yet are
	// among them, so that whoever is has been accepted before.
	Identities []string
}

func (s *State) wayOut(r *table.Reader, mesh string) *WayOut {
	return &WayOut{Egresses: s.egressesOf(r, mesh), Identities: s.egressIdentities(r, mesh)}
}

// byEgress says whether what goes to other zones goes through egresses. It stands between a Mesh and the services of
// other zones, which have nothing to do with egresses where it is false.
func (s *State) byEgress(r *table.Reader, mesh string) bool {
	m, ok := s.Meshes.Find(r, "", mesh)
	return ok && m.Spec.Routing != nil && m.Spec.Routing.ZoneEgress
}

// by is the way through zone egresses.
func (out *WayOut) by() Way {
	if len(out.Egresses) == 0 {
		return NoEgress
	}
	return ByEgress
}

// egressesOf are the zone egresses of this zone that are to be dialled for a mesh.
func (s *State) egressesOf(r *table.Reader, mesh string) []Endpoint {
	row, ok := s.EgressAddresses.Find(r, mesh, s.Zone)
	if !ok {
		return nil
	}
	var egresses []Endpoint
	for _, egress := range row.Spec.Usable() {
		if egress.Legacy && !s.serves(r, egress.Name, mesh) {
			continue
		}
		if proxy := egressProxy(mesh, &egress); s.Refusal(r, proxy) == "" {
			egresses = append(egresses, Endpoint{Address: egress.Address, Port: egress.Port, Proxy: proxy})
		}
	}
	return (&Endpoints{Endpoints: egresses}).inOrder().Endpoints
}

// EgressAt answers the zone egress that a mesh's proxies dial at an address.
func (s *State) EgressAt(r *table.Reader, mesh, address string, port uint32) (ProxyKey, bool) {
	for _, e := range s.WayOut.Get(r, mesh).Egresses {
		if e.Address == address && e.Port == port {
			return e.Proxy, true
		}
	}
	return ProxyKey{}, false
}

// egressProxy is the proxy of an egress that serves a mesh.
func egressProxy(mesh string, egress *kind.ZoneProxyAddress) ProxyKey {
	if egress.Legacy {
		return ProxyKey{Type: kind.EgressProxy, Name: egress.Name}
	}
	return ProxyKey{Mesh: mesh, Name: egress.Name}
}

func (s *State) egressIdentities(r *table.Reader, mesh string) []string {
	var ids []string
	for _, dp := range s.EgressesByMesh.List(r, MeshKey(mesh)) {
		if s.isOwn(&dp.Meta) && s.Admits(r, dp) {
			ids = append(ids, s.Presented.Get(r, ProxyKey{Mesh: mesh, Name: dp.Name})...)
		}
	}
	for _, name := range s.egressNames(r, mesh) {
		ids = append(ids, name.SpiffeID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// isEgress says whether a proxy is one of the zone egresses that are dialled, in whatever mesh.
func (s *State) isEgress(r *table.Reader, proxy ProxyKey) bool {
	return slices.ContainsFunc(s.meshesOf(r, proxy), func(mesh string) bool {
		return slices.ContainsFunc(s.WayOut.Get(r, mesh).Egresses, func(e Endpoint) bool { return e.Proxy == proxy })
	})
}

// externalKeyOf names a MeshExternalService as a destination, without a port.
func (s *State) externalKeyOf(service *resource.Object[kind.MeshExternalService]) DestinationKey {
	key := DestinationKey{Kind: ExternalService, Mesh: service.Mesh, Zone: s.ZoneOf(&service.Meta), Service: service.Name}
	if service.Label(kind.OriginLabel) == kind.OriginGlobal {
		key.Zone = ""
	}
	if key.Zone != s.Zone {
		key.Service = kind.DisplayNameOf(&service.Meta)
	}
	return key
}

// externalNamed finds a service by the name of its row or, where there is none, by the one that global gave it.
func (s *State) externalNamed(r *table.Reader, name ServiceKey) DestinationKey {
	for _, row := range []string{name.Name, s.stored(&kind.MeshExternalServices.Info, "", name.Name)} {
		if service, ok := s.ExternalServices.Find(r, name.Mesh, row); ok {
			return s.externalKeyOf(service)
		}
	}
	return DestinationKey{}
}

// externalPorts is what clients dial.
func (s *State) externalPorts(r *table.Reader, row ServiceKey) []kind.ServicePort {
	service, ok := s.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	return []kind.ServicePort{{Port: service.Spec.Match.Port, AppProtocol: service.Spec.Match.Protocol}}
}

// external is a MeshExternalService as its clients see it: its servers are the zone egresses, which know it by its
// server name. They answer to names of every format, so that clients use the wanted one at once.
func (s *State) external(r *table.Reader, key DestinationKey) *Destination {
	row := s.Row(key)
	service, ok := s.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok || service.Spec.Match.Port != key.Port {
		return nil
	}
	out := s.WayOut.Get(r, key.Mesh)
	d := &Destination{Key: key, Protocol: cmp.Or(service.Spec.Match.Protocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	d.Servers.Way, d.SNI = out.by(), s.SNIFormat(r).Name(sni.Of(service, key.Port))
	s.identify(r, key.Mesh, &d.Servers, out.Identities)
	return d
}

func (s *State) externalEndpoints(r *table.Reader, key DestinationKey) *Endpoints {
	return &Endpoints{Destination: key, Endpoints: s.WayOut.Get(r, key.Mesh).Egresses}
}
