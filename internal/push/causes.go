package push

import (
	"cmp"
	"slices"
	"strings"

	"weft/internal/envoy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
)

// Causes returns the resources from which a resource of a proxy, given by type and name, was generated. The list is
// empty where the Dataplane is the only source.
func (rows Rows) Causes(key state.ProxyKey, t xds.Type, name string) []kind.Cause {
	return append(rows.generating(key, t, name), rows.modifying(key, t, name)...)
}

// modifying returns the MeshProxyPatches with a modification that may change a resource of a proxy.
func (rows Rows) modifying(key state.ProxyKey, t xds.Type, name string) []kind.Cause {
	r, mesh := rows.reader(), key.Mesh
	if mesh == "" {
		mesh = rows.meshOf(r, name)
	}
	merged, ok := rows.state.Proxies.MergedWhole(r, proxy.WholeKey{Mesh: mesh, Proxy: key})[kind.MeshProxyPatches.Name]
	if !ok {
		return nil
	}
	destination := ""
	if origin := rows.originOf(r, key, t, name); origin.Destination != nil {
		destination = origin.Destination.String()
	}
	var causes []kind.Cause
	for i, origin := range merged.Origins.ItemsOf("appendModifications") {
		m := merged.Conf.(*kind.ProxyPatchConf).AppendModifications[i].One()
		if m == nil || !envoy.MayModify(m, t, name, destination) {
			continue
		}
		cause := kind.Cause{Kind: origin.Policy.Kind, Name: origin.Policy.Name}
		if key.Mesh == "" {
			cause.Mesh = mesh
		}
		causes = append(causes, cause)
	}
	return sortedCauses(causes)
}

// meshOf returns the mesh of the service whose traffic a resource of a zone proxy is about; empty: that of every mesh.
func (rows Rows) meshOf(r *table.Reader, name string) string {
	sni, crossZone := envoy.SNIOfCluster(name)
	if route, ok := rows.state.ZoneProxies.SNIRouteOf(r, sni, crossZone); ok {
		return route.Destination.Mesh
	}
	return envoy.MeshOf(name)
}

// generating returns the resources from which a resource was generated, before any modification.
func (rows Rows) generating(key state.ProxyKey, t xds.Type, name string) []kind.Cause {
	r := rows.reader()
	origin := rows.originOf(r, key, t, name)
	p := rows.state.Proxies.Proxy.Get(r, key)
	sni, crossZone := envoy.SNIOfCluster(name)
	sniRoute, ingressAcked := rows.state.ZoneProxies.SNIRouteOf(r, sni, crossZone)
	switch {
	case ingressAcked:
		destination := kind.Cause{Kind: sniRoute.Destination.Kind.String(),
			Name: rows.state.Services.Row(sniRoute.Destination).Name}
		if t == xds.Endpoint || crossZone {
			return []kind.Cause{destination}
		}
		policies := p.PoliciesPassed(sniRoute.Destination.Mesh)
		return append([]kind.Cause{destination}, rows.configuring(r, policies, sniRoute.Destination)...)
	case origin.Destination != nil:
		destination := kind.Cause{
			Kind: origin.Destination.Kind.String(),
			Name: rows.state.Services.Row(*origin.Destination).Name,
		}
		if t == xds.Endpoint {
			return []kind.Cause{destination}
		}
		policies := p.PoliciesTo(*origin.Destination)
		return append([]kind.Cause{destination}, rows.configuring(r, policies, *origin.Destination)...)
	case origin.Trust:
		return rows.trusted(r, key.Mesh, origin.TrustDomain)
	}
	if strings.HasPrefix(name, envoy.CapturePrefix) {
		return rows.forwarding(r, key)
	}
	return append(rows.permitting(r, key, name), rows.receiving(r, key)...)
}

// originOf returns the origin of a resource of a proxy. That of a listener at a virtual IP is known to the table alone.
func (rows Rows) originOf(r *table.Reader, key state.ProxyKey, t xds.Type, name string) envoy.Origin {
	p := rows.state.Proxies.Proxy.Get(r, key)
	if vip, port, ok := envoy.ParseVIPListener(name); ok && t == xds.Listener && p != nil {
		if to, ok := rows.state.Proxies.DestinationAt(r, p.Group, vip, port); ok {
			return envoy.Origin{Destination: &to}
		}
	}
	return envoy.OriginOf(t, name)
}

// forwarding returns the policies about connections of a proxy to addresses outside the mesh.
func (rows Rows) forwarding(r *table.Reader, key state.ProxyKey) []kind.Cause {
	var causes []kind.Cause
	for _, part := range rows.state.Proxies.MergedWhole(r, proxy.WholeOf(key))[kind.MeshPassthroughs.Name].Parts {
		causes = append(causes, kind.Cause{Kind: part.Policy.Kind, Name: part.Policy.Name})
	}
	return sortedCauses(causes)
}

// receiving returns the policies about the callers of a proxy. One resource may have the confs of each of them.
func (rows Rows) receiving(r *table.Reader, key state.ProxyKey) []kind.Cause {
	var causes []kind.Cause
	p := rows.state.Proxies.Proxy.Get(r, key)
	if p == nil {
		return nil
	}
	for _, at := range p.Places() {
		for _, callers := range rows.state.Proxies.MergedAt(r, at) {
			for i := range callers {
				for _, part := range callers[i].Parts {
					causes = append(causes, kind.Cause{Kind: part.Policy.Kind, Name: part.Policy.Name})
				}
			}
		}
	}
	return sortedCauses(causes)
}

// trusted returns the MeshTrusts of a trust domain, or of all trust domains where domain is empty.
func (rows Rows) trusted(r *table.Reader, mesh, domain string) []kind.Cause {
	var causes []kind.Cause
	for _, trust := range rows.state.Tables.TrustsByMesh.List(r, state.MeshKey(mesh)) {
		if domain == "" || trust.Spec.TrustDomain == domain {
			causes = append(causes, kind.Cause{Kind: kind.MeshTrusts.Name, Name: trust.Name})
		}
	}
	return causes
}

// configuring returns those of a set of policies that configure or route the traffic to a destination, by kind and
// name.
func (rows Rows) configuring(r *table.Reader, policies proxy.PolicySet, to service.DestinationKey) []kind.Cause {
	of := proxy.EffectiveKey{Policies: policies, Destination: to.WithLocality("")}
	var causes []kind.Cause
	for _, merged := range rows.state.Proxies.MergedConfs(r, of) {
		for _, part := range merged.Parts {
			causes = append(causes, kind.Cause{Kind: part.Policy.Kind, Name: part.Policy.Name})
		}
	}
	if policies.Routes() {
		if routing := rows.state.Proxies.RoutingOf(r, of); routing != nil {
			for _, part := range routing.Merged.Parts {
				causes = append(causes, kind.Cause{Kind: part.Policy.Kind, Name: part.Policy.Name})
			}
		}
	}
	return sortedCauses(causes)
}

// sortedCauses sorts causes, and drops duplicates.
func sortedCauses(causes []kind.Cause) []kind.Cause {
	slices.SortFunc(causes, func(a, b kind.Cause) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(causes)
}

// permitting returns the policies whose rules an extension has.
func (rows Rows) permitting(r *table.Reader, key state.ProxyKey, extension string) []kind.Cause {
	p := rows.state.Proxies.Proxy.Get(r, key)
	if p == nil {
		return nil
	}
	var causes []kind.Cause
	for _, section := range sectionsWith(p, extension) {
		for _, policy := range rows.state.Proxies.PermissionsOf(r, key.Mesh, key, section) {
			causes = append(causes, kind.Cause{Kind: kind.MeshTrafficPermissions.Name, Name: policy.Name})
		}
	}
	return causes
}

// sectionsWith returns the sections of a proxy, by the names that policies use, whose permissions an extension has.
func sectionsWith(p *proxy.Proxy, extension string) []string {
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
