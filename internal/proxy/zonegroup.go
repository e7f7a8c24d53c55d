package proxy

import (
	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// AppliedByZoneProxies reports whether zone proxies apply the to items of a kind, and its confs about whole proxies.
// Retries, timeouts, balancing and routes are those of the clients' proxies, which would otherwise multiply.
func AppliedByZoneProxies(of string) bool {
	k, ok := kind.ByName(of).(kind.Policy)
	return ok && k.AtZoneProxies()
}

// ZoneGroup identifies the zone ingresses, or the zone egresses, with equal clusters for the services of a mesh to
// which they forward connections. Those of an egress, for remote zones, have no policies.
type ZoneGroup struct {
	Mesh     string
	Policies PolicySet // the policies of the mesh about the traffic that they forward
	// Patch are the modifications of these clusters; the zero value: none. See [PatchOf].
	Patch   policy.Confs
	Machine kind.IPFamilies // as [Group.Machine] has it
}

// String returns the mesh, the policies and the modifications, such as "default (MeshCircuitBreaker default/zones)".
func (g ZoneGroup) String() string {
	text := g.Mesh
	if g.Policies != (PolicySet{}) {
		text += " (" + g.Policies.String() + ")"
	}
	if g.Patch != (policy.Confs{}) {
		text += " " + g.Patch.String()
	}
	if g.Machine != "" {
		text += " of machines with " + string(g.Machine)
	}
	return text
}

// zonePolicies returns the policies of a mesh about the traffic that a section of a zone proxy forwards. A ZoneIngress
// and a ZoneEgress are not Dataplanes, so only policies that target the whole mesh apply.
func (s *Stage) zonePolicies(r *table.Reader, mesh string, key state.ProxyKey, section string) PolicySet {
	var keys []resource.Key
	for _, name := range s.OutboundKinds.Get(r, mesh) {
		if !AppliedByZoneProxies(name) {
			continue
		}
		for _, selected := range s.Selections.Get(r, SelectionKey{PoliciesKey{name, mesh}, key}) {
			if selected.Outbound && selected.AppliesTo(section) {
				keys = append(keys, selected.Key)
			}
		}
	}
	return PolicySetOf(keys)
}

// passes returns the groups of a zone ingress, one for each mesh, sorted.
func (s *Stage) passes(r *table.Reader, key state.ProxyKey, section *kind.ZoneIngressSection) []ZoneGroup {
	var groups []ZoneGroup
	for _, mesh := range s.state.MeshesOf(r, key) {
		groups = append(groups, ZoneGroup{mesh, s.zonePolicies(r, mesh, key, ingressSection(key, section)),
			s.forwardingPatch(r, mesh, key, "ingress"), s.machine(r, key)})
	}
	return groups
}

// EgressGroup identifies the zone egresses with equal clusters for the external services of a mesh.
type EgressGroup struct {
	ZoneGroup
	// Of is the only egress of the group, where policies have confs about the callers of its filter chains; else zero.
	Of state.ProxyKey
}

// String returns the mesh and the policies, and the only egress of the group.
func (g EgressGroup) String() string {
	if g.Of == (state.ProxyKey{}) {
		return g.ZoneGroup.String()
	}
	return g.ZoneGroup.String() + " of " + g.Of.String()
}

// forwards adds the group of a zone egress that forwards connections of a mesh to remote zones.
func (s *Stage) forwards(r *table.Reader, mesh string, p *Proxy) {
	p.Forwards = append(p.Forwards, ZoneGroup{Mesh: mesh, Patch: s.forwardingPatch(r, mesh, p.Key, "egress"),
		Machine: p.Group.Machine})
}

// egressGroup returns the group of a zone egress with filter chains of a mesh.
func (s *Stage) egressGroup(r *table.Reader, key state.ProxyKey, mesh string, chains []EgressChain) EgressGroup {
	group := EgressGroup{ZoneGroup: ZoneGroup{Mesh: mesh, Patch: s.forwardingPatch(r, mesh, key, "egress"),
		Machine: s.machine(r, key)}}
	for i := range chains {
		group.Policies = chains[i].Policies
		if chains[i].Confs != (policy.Confs{}) {
			group.Of = key
		}
	}
	return group
}

// PoliciesTo returns the policies of a proxy about the traffic of a cluster: those of the filter chain of an external
// service on its [service.ExternalLocality], else those of a client. A nil proxy has none.
func (p *Proxy) PoliciesTo(to service.DestinationKey) PolicySet {
	if p == nil {
		return PolicySet{}
	}
	for i := range p.Chains {
		if to.Locality == service.ExternalLocality && p.Chains[i].Key == to.WithLocality("") {
			return p.Chains[i].Policies
		}
	}
	return p.Group.Policies
}

// PoliciesPassed returns the policies about what a zone ingress forwards to the services of a mesh. A nil proxy has
// none.
func (p *Proxy) PoliciesPassed(mesh string) PolicySet {
	if p == nil {
		return PolicySet{}
	}
	for _, group := range p.Passes {
		if group.Mesh == mesh {
			return group.Policies
		}
	}
	return PolicySet{}
}
