package graph

import (
	"cmp"
	"slices"

	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Hop is a zone proxy that the proxies of this zone dial: an egress of this zone, or an ingress of a remote one. Its
// connections lead out of the zone by their SNI.
type Hop struct {
	Address string
	Port    uint32
	Zone    string         // of an ingress
	Proxy   state.ProxyKey // of an egress
}

// EgressRoute is the route of the proxies of a mesh out of their zone.
type EgressRoute struct {
	// Egresses are the zone egresses of this zone that proxies dial. Without any, destinations of egresses are
	// unreachable: another route would bypass their permissions.
	Egresses []Hop
	// Identities are the SPIFFE IDs that proxies accept of egresses, sorted. They include egresses that are not dialed
	// yet, so that proxies accept an egress before they dial it.
	Identities []string
}

func (s *State) egressRoute(r *table.Reader, mesh string) *EgressRoute {
	return &EgressRoute{Egresses: s.egressesOf(r, mesh), Identities: s.egressIdentities(r, mesh)}
}

// byEgress returns whether traffic to remote zones goes through egresses. It is a derived value of its own, so that the
// other fields of a Mesh recompute no service of a remote zone.
func (s *State) byEgress(r *table.Reader, mesh string) bool {
	m, ok := s.Meshes.Find(r, "", mesh)
	return ok && m.Spec.Routing != nil && m.Spec.Routing.ZoneEgress
}

// way returns the way through zone egresses.
func (out *EgressRoute) way() Way {
	if len(out.Egresses) == 0 {
		return NoEgress
	}
	return ByEgress
}

// EgressesFor returns the zone egresses of this zone as the proxies of a mesh may use them, by name. A healthy entry
// serves the mesh: a ready egress that cannot prove itself to the mesh, or that the mesh has evicted, is not healthy
// here.
func (s *State) EgressesFor(r *table.Reader, mesh string) *kind.MeshEgressAddress {
	row, ok := s.EgressAddresses.Find(r, mesh, s.Zone)
	if !ok {
		return &kind.MeshEgressAddress{}
	}
	entries := slices.Clone(row.Spec.Egresses)
	for i := range entries {
		e := &entries[i]
		serves := !e.Legacy || s.ServesMesh(r, e.Name, mesh)
		e.Healthy = e.Healthy && serves && s.NotAdmittedReason(r, egressProxy(mesh, e)) == ""
	}
	return &kind.MeshEgressAddress{Egresses: entries}
}

// egressesOf returns the zone egresses of this zone that the proxies of a mesh dial.
func (s *State) egressesOf(r *table.Reader, mesh string) []Hop {
	var egresses []Hop
	for _, egress := range s.EgressesFor(r, mesh).Usable() {
		egresses = append(egresses, Hop{Address: egress.Address, Port: egress.Port,
			Proxy: egressProxy(mesh, &egress)})
	}
	return egresses
}

// EgressAt returns the zone egress that a mesh's proxies dial at an address.
func (s *State) EgressAt(r *table.Reader, mesh, address string, port uint32) (state.ProxyKey, bool) {
	for _, e := range s.EgressRoute.Get(r, mesh).Egresses {
		if e.Address == address && e.Port == port {
			return e.Proxy, true
		}
	}
	return state.ProxyKey{}, false
}

// egressProxy returns the proxy of an egress that serves a mesh.
func egressProxy(mesh string, egress *kind.ZoneProxyAddress) state.ProxyKey {
	if egress.Legacy {
		return state.ProxyKey{Type: kind.EgressProxy, Name: egress.Name}
	}
	return state.ProxyKey{Mesh: mesh, Name: egress.Name}
}

func (s *State) egressIdentities(r *table.Reader, mesh string) []string {
	var ids []string
	for _, dp := range s.EgressesByMesh.List(r, state.MeshKey(mesh)) {
		if s.IsOwn(&dp.Meta) && s.Admits(r, dp) {
			ids = append(ids, s.Presented.Get(r, state.ProxyKey{Mesh: mesh, Name: dp.Name})...)
		}
	}
	for _, name := range s.EgressNames(r, mesh) {
		ids = append(ids, name.SpiffeID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// isEgress returns whether a proxy is one of the dialed zone egresses, in any mesh.
func (s *State) isEgress(r *table.Reader, proxy state.ProxyKey) bool {
	return slices.ContainsFunc(s.MeshesOf(r, proxy), func(mesh string) bool {
		return slices.ContainsFunc(s.EgressRoute.Get(r, mesh).Egresses, func(e Hop) bool {
			return e.Proxy == proxy
		})
	})
}

// ExternalKeyOf returns the key of a MeshExternalService as a destination, without a port.
func (s *State) ExternalKeyOf(service *resource.Object[kind.MeshExternalService]) DestinationKey {
	key := DestinationKey{Kind: ExternalService, Mesh: service.Mesh, Zone: s.ZoneOf(&service.Meta),
		Service: service.Name}
	if service.Label(kind.OriginLabel) == kind.OriginGlobal {
		key.Zone = ""
	}
	if key.Zone != s.Zone {
		key.Service = kind.DisplayNameOf(&service.Meta)
	}
	return key
}

// externalNamed returns the service with a row's name or, where there is none, with the name that global gave it.
func (s *State) externalNamed(r *table.Reader, name state.ServiceKey) DestinationKey {
	for _, row := range []string{name.Name, s.StoredName(&kind.MeshExternalServices.Info, "", name.Name)} {
		if service, ok := s.ExternalServices.Find(r, name.Mesh, row); ok {
			return s.ExternalKeyOf(service)
		}
	}
	return DestinationKey{}
}

// externalPorts returns the port that clients dial.
func (s *State) externalPorts(r *table.Reader, row state.ServiceKey) []kind.ServicePort {
	service, ok := s.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	return []kind.ServicePort{{Port: service.Spec.Match.Port, AppProtocol: service.Spec.Match.Protocol}}
}

// external returns a MeshExternalService as its clients reach it: its servers are the zone egresses, which route by its
// SNI. They accept SNIs of every format, so clients use the wanted one at once.
func (s *State) external(r *table.Reader, key DestinationKey) *Destination {
	row := s.Row(key)
	service, ok := s.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok || service.Spec.Match.Port != key.Port {
		return nil
	}
	out := s.EgressRoute.Get(r, key.Mesh)
	d := &Destination{Key: key, Protocol: cmp.Or(service.Spec.Match.Protocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	d.Servers.Way, d.SNI = out.way(), s.SNIFormat(r).Name(sni.Of(service, key.Port))
	s.identify(r, key.Mesh, &d.Servers, out.Identities)
	return d
}

func (s *State) externalEndpoints(r *table.Reader, key DestinationKey) *Endpoints {
	return &Endpoints{Destination: key, Endpoints: throughHops(s.EgressRoute.Get(r, key.Mesh).Egresses)}
}
