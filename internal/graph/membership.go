package graph

import (
	"slices"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// membership stands between a Mesh and its Dataplanes, so that its other fields wake nobody; nil where everybody
// may join.
func (s *State) membership(r *table.Reader, mesh string) *kind.Membership {
	o, ok := s.Meshes.Find(r, "", mesh)
	if !ok || o.Spec.DataplaneProxyMembership == nil {
		return nil
	}
	m := o.Spec.DataplaneProxyMembership
	if len(m.Allowed)+len(m.Blocked) == 0 {
		return nil
	}
	return m
}

// notAdmitted is why a mesh with rules does not admit a Dataplane; empty: it does, or there is none.
func (s *State) notAdmitted(r *table.Reader, key ProxyKey) string {
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return ""
	}
	return s.Membership.Get(r, key.Mesh).NotAdmittedReason(dp, s.ZoneOf(&dp.Meta))
}

// NotAdmittedReason is why the mesh does not admit a proxy, in words for whoever runs it; empty: it does, or the proxy is of
// no mesh. In a mesh without rules it costs one look at the Mesh. (Mesh Membership.)
func (s *State) NotAdmittedReason(r *table.Reader, key ProxyKey) string {
	if key.Type != kind.DataplaneProxy || s.Membership.Get(r, key.Mesh) == nil {
		return ""
	}
	return s.NotAdmitted.Get(r, key)
}

// Admits says whether a mesh admits one of its Dataplanes.
func (s *State) Admits(r *table.Reader, dp *resource.Object[kind.Dataplane]) bool {
	return s.NotAdmittedReason(r, ProxyKey{Mesh: dp.Mesh, Name: dp.Name}) == ""
}

// UnreachableOutbounds are the inbounds that a service's selector matches and that are not behind it, because the mesh does not
// admit their Dataplanes.
func (s *State) UnreachableOutbounds(r *table.Reader, service *resource.Object[kind.MeshService]) []Member {
	var barred []Member
	for dp, in := range s.Selected(r, service) {
		if !s.Admits(r, dp) {
			barred = append(barred, Member{Dataplane: dp, Inbound: in})
		}
	}
	return barred
}

// evictedSANs leaves out names that are not of the zone that tells them: a zone denies its own proxies and no others.
func (s *State) evictedSANs(r *table.Reader, mesh string) []string {
	var names []string
	for _, row := range s.EvictedProxiesByMesh.List(r, MeshKey(mesh)) {
		zone := s.ZoneOf(&row.Meta)
		for _, proxy := range row.Spec.Proxies {
			if _, own := identity.InstanceOf(mesh, zone, proxy.Name); own {
				names = append(names, proxy.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
