package identity

import (
	"slices"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// membership returns the membership rules of a mesh; nil: every Dataplane may join. It is a derived value of its own,
// so that the other fields of a Mesh recompute no Dataplane.
func (s *Stage) membership(r *table.Reader, mesh string) *kind.Membership {
	o, ok := s.state.Meshes.Find(r, "", mesh)
	if !ok || o.Spec.DataplaneProxyMembership == nil {
		return nil
	}
	m := o.Spec.DataplaneProxyMembership
	if len(m.Allowed)+len(m.Blocked) == 0 {
		return nil
	}
	return m
}

// notAdmitted returns why a mesh with rules does not admit a Dataplane; empty: it does, or there is none.
func (s *Stage) notAdmitted(r *table.Reader, key state.ProxyKey) string {
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return ""
	}
	return s.Membership.Get(r, key.Mesh).NotAdmittedReason(dp, s.state.ZoneOf(&dp.Meta), s.Exempt.Get(r, key.Mesh))
}

// NotAdmittedReason returns why the mesh does not admit a proxy, as a text for operators; empty: it does, or the proxy
// has no mesh. In a mesh without rules it costs one lookup of the Mesh. (Mesh Membership.)
func (s *Stage) NotAdmittedReason(r *table.Reader, key state.ProxyKey) string {
	if key.Type != kind.DataplaneProxy || s.Membership.Get(r, key.Mesh) == nil {
		return ""
	}
	return s.NotAdmitted.Get(r, key)
}

// Admits returns whether a mesh admits one of its Dataplanes.
func (s *Stage) Admits(r *table.Reader, dp *resource.Object[kind.Dataplane]) bool {
	return s.NotAdmittedReason(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}) == ""
}

// evictedSANs returns the SANs of the evicted proxies of a mesh, sorted. It omits a SAN that is not of the zone that
// reports it: a zone evicts its own proxies only.
func (s *Stage) evictedSANs(r *table.Reader, mesh string) []string {
	var names []string
	for _, row := range s.state.EvictedProxiesByMesh.List(r, state.MeshKey(mesh)) {
		zone := s.state.ZoneOf(&row.Meta)
		for _, proxy := range row.Spec.Proxies {
			if _, own := pki.InstanceOf(mesh, zone, proxy.Name); own {
				names = append(names, proxy.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
