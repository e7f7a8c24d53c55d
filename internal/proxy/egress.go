package proxy

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/kind"
	"weft/resource"
)

// ReadyName is the SNI with which the agent of a zone egress probes whether the egress listens with the proxy's
// certificate. A connection with this SNI gets a handshake, and 404 for every request. No service and no external host
// has this name. (RFC 2606)
const ReadyName = "ready.weft.invalid"

// EgressListener is the address at which a zone egress accepts the connections of its zone's proxies. (Mesh Scoped Zone
// Ingress and Zone Egress.)
type EgressListener struct {
	Address string
	Port    uint32
}

// EgressChain is the filter chain of one external service at one egress, with its allowed callers.
type EgressChain struct {
	zoneproxy.EgressService
	Section     string // name of the egress section in policies
	Permissions *match.Permissions
	// Source is the source of the certificate that the egress presents.
	Source identity.Source
	// TrustDomains are the domains that it trusts, sorted. It denies a caller with SPIFFE IDs of two of them.
	TrustDomains []string
	// Confs are the effective confs of the policies about its callers; see [ReceivedOf].
	Confs policy.Confs `json:",omitzero"`
	// Policies are those about the traffic to the external service. Their effective confs are
	// [Stage.ConfsOf] of the service.
	Policies PolicySet `json:",omitzero"`
}

// egressChains adds the filter chains of external services to a proxy with an egress section. Without the section the
// proxy has no right to the keys of external services, so it loses them at once. What it forwards to remote zones needs
// no key, and drains.
func (s *Stage) egressChains(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) {
	sections := s.egressSections(r, p.Key, dp.Spec.Networking.ZoneEgress)
	if len(sections) == 0 || p.Identity == nil {
		return
	}
	p.Egresses = egressListeners(sections)
	s.forwards(r, p.Key.Mesh, p)
	if dp.Spec.Networking.ZoneEgress == nil {
		return
	}
	section := cmp.Or(sections[0].Name, fmt.Sprint(sections[0].Port))
	p.Chains = s.chains(r, p.Key.Mesh, p.Key, section, p.Group.Source)
	p.EgressGroups = []EgressGroup{s.egressGroup(r, p.Key, p.Key.Mesh, p.Chains)}
}

// zoneEgressChains adds the filter chains of external services to the proxy of a ZoneEgress, for every mesh whose
// proxies accept its identity.
func (s *Stage) zoneEgressChains(r *table.Reader, section *kind.ZoneEgressSection, p *Proxy) {
	sections, presents := s.egressSections(r, p.Key, section), s.identity.Presentations(r)
	if len(sections) == 0 || len(presents) == 0 {
		return
	}
	p.Identity, p.Certificate, p.Further = presents[0].Identity, presents[0].Certificate, presents[1:]
	p.Group.Secured, p.Group.Source = true, p.Identity.Source
	p.Egresses = egressListeners(sections)
	for _, mesh := range s.state.MeshesOf(r, p.Key) {
		if from, ok := s.identity.PresentedTo(r, p.Key.Name, presents, mesh); ok {
			// A ZoneEgress is not a Dataplane, so only policies that target the whole mesh apply.
			chains := s.chains(r, mesh, p.Key, "", s.inMesh(r, mesh, from))
			p.Chains = append(p.Chains, chains...)
			s.forwards(r, mesh, p)
			p.EgressGroups = append(p.EgressGroups, s.egressGroup(r, p.Key, mesh, chains))
			p.patch(mesh, s.wholeProxyConfs(r, WholeKey{mesh, p.Key}).Patch)
		}
	}
}

func egressListeners(sections []kind.ZoneEgressSection) []EgressListener {
	var listeners []EgressListener
	for _, section := range sections {
		listeners = append(listeners, EgressListener{section.Address, section.Port})
	}
	slices.SortFunc(listeners, func(a, b EgressListener) int {
		return zoneproxy.CompareAddresses(a.Address, a.Port, b.Address, b.Port)
	})
	return listeners
}

// chains returns the filter chains of a mesh's external services at one section of an egress.
func (s *Stage) chains(
	r *table.Reader,
	mesh string,
	egress state.ProxyKey,
	section string,
	from identity.Source,
) []EgressChain {
	rules := match.PermitChains(s.PermissionsOf(r, mesh, egress, section))
	unreached := s.unreached(r, mesh)
	trusted := s.identity.TrustedDomains(r, mesh, from)
	policies := s.zonePolicies(r, mesh, egress, section)
	extended := map[*match.Permissions]bool{} // chains share them
	var chains []EgressChain
	for _, service := range s.zoneProxies.EgressServices.Get(r, mesh) {
		permissions := cmp.Or(rules.PermissionsOf(service.SNIs), unreached)
		if !extended[permissions] {
			extended[permissions] = true
			s.identity.ExtendRules(r, mesh, permissions)
		}
		confs := s.receivedAt(r, PlaceOf(egress, mesh, section, service.SNIs))
		chains = append(chains, EgressChain{service, section, permissions, from, trusted, confs, policies})
	}
	return chains
}

// unreached returns the permissions of an external service that no rule matches.
func (s *Stage) unreached(r *table.Reader, mesh string) *match.Permissions {
	m, ok := s.state.Meshes.Find(r, "", mesh)
	if !ok || m.Spec.Routing != nil && m.Spec.Routing.DefaultForbidMeshExternalServiceAccess {
		return &match.Permissions{}
	}
	return match.AllowAll(m.Key().String() + " routing.defaultForbidMeshExternalServiceAccess: false")
}

// egressSections returns the current section of a proxy, and the former ones that it serves while they drain, each
// listener once.
func (s *Stage) egressSections(r *table.Reader, key state.ProxyKey,
	current *kind.ZoneEgressSection) []kind.ZoneEgressSection {
	var sections []kind.ZoneEgressSection
	if current != nil {
		sections = append(sections, *current)
	}
	if serving, ok := s.state.ListenerStatus(r, key); ok {
		for _, served := range serving.Spec.Egresses {
			if current == nil || served.Listener() != current.Listener() {
				sections = append(sections, served.ZoneEgressSection)
			}
		}
	}
	return sections
}

// Guard returns the allowed callers of the filter chain.
func (c *EgressChain) Guard() Guard {
	return Guard{c.Key.Mesh, c.Key.String(), c.Protocol, c.Permissions, c.TrustDomains}
}
