package push

import (
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
)

// Causes returns the resources from which a resource of a proxy, given by type and name, was generated. The list is
// empty where the Dataplane is the only source.
func (h *Hub) Causes(key graph.ProxyKey, t xds.Type, name string) []kind.Cause {
	r, origin := h.reader(), envoy.OriginOf(t, name)
	sni, crossZone := envoy.ServerName(name)
	sniRoute, ingressAcked := h.state.SNIRouteOf(r, sni, crossZone)
	switch {
	case ingressAcked:
		return []kind.Cause{{Kind: sniRoute.Destination.Kind.String(), Name: h.state.Row(sniRoute.Destination).Name}}
	case origin.Destination != nil:
		return []kind.Cause{{Kind: origin.Destination.Kind.String(), Name: h.state.Row(*origin.Destination).Name}}
	case origin.Trust:
		return h.trusted(r, key.Mesh, origin.TrustDomain)
	case t == xds.Extension:
		return h.permitting(r, key, name)
	}
	return nil
}

// trusted returns the MeshTrusts of a trust domain, or of all trust domains where domain is empty.
func (h *Hub) trusted(r *table.Reader, mesh, domain string) []kind.Cause {
	var causes []kind.Cause
	for _, trust := range h.state.TrustsByMesh.List(r, graph.MeshKey(mesh)) {
		if domain == "" || trust.Spec.TrustDomain == domain {
			causes = append(causes, kind.Cause{Kind: kind.MeshTrusts.Name, Name: trust.Name})
		}
	}
	return causes
}

// permitting returns the policies whose rules an extension has.
func (h *Hub) permitting(r *table.Reader, key graph.ProxyKey, extension string) []kind.Cause {
	p := h.state.Proxy.Get(r, key)
	if p == nil {
		return nil
	}
	var causes []kind.Cause
	for _, section := range sectionsWith(p, extension) {
		for _, policy := range h.state.PermissionsOf(r, key.Mesh, key, section) {
			causes = append(causes, kind.Cause{Kind: kind.MeshTrafficPermissions.Name, Name: policy.Name})
		}
	}
	return causes
}

// sectionsWith returns the sections of a proxy, by the names that policies use, whose permissions an extension has.
func sectionsWith(p *graph.Proxy, extension string) []string {
	var sections []string
	for i := range p.Listeners {
		if envoy.HasPermissions(p.Listeners[i].Guard(), extension) {
			sections = append(sections, p.Listeners[i].Section)
		}
	}
	for i := range p.Chains {
		if envoy.HasPermissions(p.Chains[i].Guard(), extension) {
			sections = append(sections, p.Chains[i].Section)
		}
	}
	return sections
}
