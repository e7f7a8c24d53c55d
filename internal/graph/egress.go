package graph

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
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

// EgressService is an external service as zone egresses accept connections for it.
type EgressService struct {
	Key      DestinationKey
	SNIs     []string // the SNIs that clients send
	Protocol kind.Protocol
}

// EgressChain is the filter chain of one external service at one egress, with its allowed callers.
type EgressChain struct {
	EgressService
	Section     string // name of the egress section in policies
	Permissions *match.Permissions
	// Source is the source of the certificate that the egress presents.
	Source identity.Source
	// TrustDomains are the domains that it trusts, sorted. It denies a caller with SPIFFE IDs of two of them.
	TrustDomains []string
}

// Guard returns the allowed callers of the filter chain.
func (c *EgressChain) Guard() Guard {
	return Guard{c.Key.Mesh, c.Key.String(), c.Protocol, c.Permissions, c.TrustDomains}
}

// ExternalUpstream is an external service as zone egresses dial it.
type ExternalUpstream struct {
	Key       DestinationKey // on its [ExternalLocality]
	Protocol  kind.Protocol
	Endpoints []kind.ExternalEndpoint // sorted by priority, which begins at 0 without gaps
	TLS       *kind.ExternalTLS       // nil: no TLS
	// CACert, ClientCert and ClientKey belong to TLS, in PEM; empty: the system's own authorities, and no certificate.
	CACert, ClientCert, ClientKey []byte
}

// egressChains adds the filter chains of external services to a proxy with an egress section. Without the section the
// proxy has no right to the keys of external services, so it loses them at once. What it forwards to remote zones needs
// no key, and drains.
func (s *State) egressChains(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) {
	sections := s.egressSections(r, p.Key, dp.Spec.Networking.ZoneEgress)
	if len(sections) == 0 || p.Identity == nil {
		return
	}
	p.Egresses, p.Forwards = egressListeners(sections), s.MeshesOf(r, p.Key)
	if dp.Spec.Networking.ZoneEgress == nil {
		return
	}
	p.IsEgress = p.Forwards
	section := cmp.Or(sections[0].Name, fmt.Sprint(sections[0].Port))
	p.Chains = s.chains(r, p.Key.Mesh, p.Key, section, p.Identity.Source)
}

// zoneEgressChains adds the filter chains of external services to the proxy of a ZoneEgress, for every mesh whose
// proxies accept its identity.
func (s *State) zoneEgressChains(r *table.Reader, section *kind.ZoneEgressSection, p *Proxy) {
	sections, presents := s.egressSections(r, p.Key, section), s.Presentations(r)
	if len(sections) == 0 || len(presents) == 0 {
		return
	}
	p.Identity, p.Certificate, p.Further = presents[0].Identity, presents[0].Certificate, presents[1:]
	p.Group.Secured, p.Group.Source = true, p.Identity.Source
	p.Egresses = egressListeners(sections)
	for _, mesh := range s.MeshesOf(r, p.Key) {
		if from, ok := s.PresentedTo(r, p.Key.Name, presents, mesh); ok {
			p.IsEgress, p.Forwards = append(p.IsEgress, mesh), append(p.Forwards, mesh)
			// A ZoneEgress is not a Dataplane, so only policies that target the whole mesh apply.
			p.Chains = append(p.Chains, s.chains(r, mesh, p.Key, "", from)...)
		}
	}
}

func egressListeners(sections []kind.ZoneEgressSection) []EgressListener {
	var listeners []EgressListener
	for _, section := range sections {
		listeners = append(listeners, EgressListener{section.Address, section.Port})
	}
	slices.SortFunc(listeners, func(a, b EgressListener) int {
		return compareAddresses(a.Address, a.Port, b.Address, b.Port)
	})
	return listeners
}

// chains returns the filter chains of a mesh's external services at one section of an egress.
func (s *State) chains(
	r *table.Reader,
	mesh string,
	egress state.ProxyKey,
	section string,
	from identity.Source,
) []EgressChain {
	rules := match.PermitChains(s.PermissionsOf(r, mesh, egress, section))
	unreached := s.unreached(r, mesh)
	trusted := s.TrustedDomains(r, mesh, from)
	extended := map[*match.Permissions]bool{} // chains share them
	var chains []EgressChain
	for _, service := range s.EgressServices.Get(r, mesh) {
		permissions := cmp.Or(rules.Of(service.SNIs), unreached)
		if !extended[permissions] {
			extended[permissions] = true
			s.ExtendRules(r, mesh, permissions)
		}
		chains = append(chains, EgressChain{service, section, permissions, from, trusted})
	}
	return chains
}

// unreached returns the permissions of an external service that no rule matches.
func (s *State) unreached(r *table.Reader, mesh string) *match.Permissions {
	m, ok := s.Meshes.Find(r, "", mesh)
	if !ok || m.Spec.Routing != nil && m.Spec.Routing.DefaultForbidMeshExternalServiceAccess {
		return &match.Permissions{}
	}
	return match.Everybody(m.Key().String() + " routing.defaultForbidMeshExternalServiceAccess: false")
}

// egressSections returns the current section of a proxy, and the former ones that it serves while they drain, each
// listener once.
func (s *State) egressSections(r *table.Reader, key state.ProxyKey,
	current *kind.ZoneEgressSection) []kind.ZoneEgressSection {
	var sections []kind.ZoneEgressSection
	if current != nil {
		sections = append(sections, *current)
	}
	if serving, ok := s.ListenerStatus(r, key); ok {
		for _, served := range serving.Spec.Egresses {
			if current == nil || served.Listener() != current.Listener() {
				sections = append(sections, served.ZoneEgressSection)
			}
		}
	}
	return sections
}

// drainingEgresses returns the "address:port" of egress listeners that are served and no longer configured. A listener
// that the zone's proxies still dial is excluded.
func (s *State) drainingEgresses(r *table.Reader, key state.ProxyKey, section *kind.ZoneEgressSection,
	serving *kind.DataplaneListenerStatus) []string {
	var gone []string
	for i := range serving.Egresses {
		former := &serving.Egresses[i]
		isDialed := func(a kind.ZoneProxyAddress) bool { return a.Address == former.Address && a.Port == former.Port }
		if (section == nil || former.Listener() != section.Listener()) &&
			!slices.ContainsFunc(s.egressAddresses(r, key), isDialed) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}

// egressServices returns the external services of a mesh that can be dialed. An SNI belongs to one of them: the first
// one by key.
func (s *State) egressServices(r *table.Reader, mesh string) []EgressService {
	var services []EgressService
	for _, service := range s.ExternalServicesByMesh.List(r, state.MeshKey(mesh)) {
		if _, ok := s.dialSettings(r, service); !ok {
			continue
		}
		port := service.Spec.Match.Port
		services = append(services, EgressService{
			Key: s.ExternalKeyOf(service).At(port), SNIs: sni.All(sni.Of(service, port)), Protocol: protocolOf(service),
		})
	}
	slices.SortFunc(services, func(a, b EgressService) int { return CompareDestinations(a.Key, b.Key) })
	taken := map[string]bool{}
	for i := range services {
		services[i].SNIs = slices.DeleteFunc(services[i].SNIs, func(name string) bool { return taken[name] })
		for _, name := range services[i].SNIs {
			taken[name] = true
		}
	}
	return slices.DeleteFunc(services, func(service EgressService) bool { return len(service.SNIs) == 0 })
}

func protocolOf(service *resource.Object[kind.MeshExternalService]) kind.Protocol {
	return cmp.Or(service.Spec.Match.Protocol, kind.TCP)
}

// dialSettings returns the endpoints and certificates with which a service is dialed: its own, or, where it refers to
// certificates, those of the last time when all of them existed; false: they never did.
func (s *State) dialSettings(r *table.Reader,
	service *resource.Object[kind.MeshExternalService]) (*kind.ExternalMaterial, bool) {
	if !service.Spec.NamesCertificates() {
		return &kind.ExternalMaterial{Endpoints: service.Spec.Endpoints, TLS: service.Spec.TLS}, true
	}
	row, ok := s.ExternalMaterials.Find(r, service.Mesh, service.Name)
	if !ok {
		return nil, false
	}
	return &row.Spec, true
}

func (s *State) externalUpstream(r *table.Reader, key DestinationKey) *ExternalUpstream {
	row := s.Row(key)
	service, ok := s.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok || service.Spec.Match.Port != key.Port {
		return nil
	}
	as, ok := s.dialSettings(r, service)
	if !ok {
		return nil
	}
	out := &ExternalUpstream{
		Key: key, Protocol: protocolOf(service), Endpoints: byPriority(s.externalOnly(as.Endpoints)),
		CACert: as.CACert, ClientCert: as.ClientCert, ClientKey: as.ClientKey,
	}
	if as.TLS != nil && as.TLS.Enabled {
		out.TLS = as.TLS
	}
	return out
}

// externalOnly returns the endpoints whose address may be outside the mesh, whatever is stored.
func (s *State) externalOnly(endpoints []kind.ExternalEndpoint) []kind.ExternalEndpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e kind.ExternalEndpoint) bool {
		return kind.LocalEndpoint(e.Address, s.LocalNetworks) != ""
	})
}

// byPriority sorts endpoints and renumbers their priorities from 0 without gaps.
func byPriority(endpoints []kind.ExternalEndpoint) []kind.ExternalEndpoint {
	sorted := slices.Clone(endpoints)
	slices.SortFunc(sorted, func(a, b kind.ExternalEndpoint) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), compareAddresses(a.Address, a.Port, b.Address, b.Port))
	})
	sorted = slices.Compact(sorted)
	next, last := uint32(0), uint32(0)
	for i := range sorted {
		if i > 0 && sorted[i].Priority != last {
			next++
		}
		last, sorted[i].Priority = sorted[i].Priority, next
	}
	return sorted
}
