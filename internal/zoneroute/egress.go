package zoneroute

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// Hop is a zone proxy that the proxies of this zone dial: an egress of this zone, or an ingress of a remote one. It
// forwards connections by their SNI.
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

func (s *Stage) egressRoute(r *table.Reader, mesh string) *EgressRoute {
	return &EgressRoute{Egresses: s.egressesOf(r, mesh), Identities: s.egressIdentities(r, mesh)}
}

// byEgress returns whether traffic to remote zones goes through egresses. It is a derived value of its own, so that the
// other fields of a Mesh recompute no service of a remote zone.
func (s *Stage) byEgress(r *table.Reader, mesh string) bool {
	m, ok := s.state.Meshes.Find(r, "", mesh)
	return ok && m.Spec.Routing != nil && m.Spec.Routing.ZoneEgress
}

// Way returns the way through zone egresses.
func (out *EgressRoute) Way() Way {
	if len(out.Egresses) == 0 {
		return NoEgress
	}
	return ByEgress
}

// EgressesFor returns the zone egresses of this zone as the proxies of a mesh may use them, by name. A healthy entry
// serves the mesh: a ready egress that cannot prove itself to the mesh, or that the mesh has evicted, is not healthy
// here, and does not drain.
func (s *Stage) EgressesFor(r *table.Reader, mesh string) *kind.MeshEgressAddress {
	row, ok := s.state.EgressAddresses.Find(r, mesh, s.state.Zone)
	if !ok {
		return &kind.MeshEgressAddress{}
	}
	entries := slices.Clone(row.Spec.Egresses)
	for i := range entries {
		e := &entries[i]
		serves := !e.Legacy || s.identity.ServesMesh(r, e.Name, mesh)
		serves = serves && s.identity.NotAdmittedReason(r, egressProxy(mesh, e)) == ""
		e.Healthy, e.Draining = e.Healthy && serves, e.Draining && serves
	}
	return &kind.MeshEgressAddress{Egresses: entries}
}

// egressesOf returns the zone egresses of this zone that the proxies of a mesh dial.
func (s *Stage) egressesOf(r *table.Reader, mesh string) []Hop {
	var egresses []Hop
	for _, egress := range s.EgressesFor(r, mesh).Usable() {
		egresses = append(egresses, Hop{Address: egress.Address, Port: egress.Port,
			Proxy: egressProxy(mesh, &egress)})
	}
	return egresses
}

// EgressAt returns the zone egress that a mesh's proxies dial at an address.
func (s *Stage) EgressAt(r *table.Reader, mesh, address string, port uint32) (state.ProxyKey, bool) {
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

func (s *Stage) egressIdentities(r *table.Reader, mesh string) []string {
	var ids []string
	for _, dp := range s.state.EgressesByMesh.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&dp.Meta) && s.identity.Admits(r, dp) {
			ids = append(ids, s.identity.Presented.Get(r, state.ProxyKey{Mesh: mesh, Name: dp.Name})...)
		}
	}
	for _, name := range s.identity.EgressNames(r, mesh) {
		ids = append(ids, name.SpiffeID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// IsEgress returns whether a proxy is one of the dialed zone egresses, in any mesh.
func (s *Stage) IsEgress(r *table.Reader, proxy state.ProxyKey) bool {
	return slices.ContainsFunc(s.state.MeshesOf(r, proxy), func(mesh string) bool {
		return slices.ContainsFunc(s.EgressRoute.Get(r, mesh).Egresses, func(e Hop) bool {
			return e.Proxy == proxy
		})
	})
}
