package graph

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/match"
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ReadyName is the server name by which the agent beside a zone egress finds out whether this listens with the
// proxy's leaf. What asks for it gets a handshake, and no answer to what it asks then but that it is not found. No service has it, nor a host outside. (RFC 2606)
const ReadyName = "ready.weft.invalid"

// EgressListener is where a zone egress takes the connections of its zone's proxies.
// (Mesh Scoped Zone Ingress and Zone Egress.)
type EgressListener struct {
	Address string
	Port    uint32
}

// EgressService is an external service as zone egresses take connections for it.
type EgressService struct {
	Key      DestinationKey
	SNIs     []string // by which clients name it
	Protocol kind.Protocol
}

// EgressChain is what one egress takes connections for, and from whom.
type EgressChain struct {
	EgressService
	Section     string // how policies call the egress
	Permissions *match.Permissions
	// Source is where the egress has the leaf from that it presents.
	Source Source
	// TrustDomains that it believes, sorted; a caller with names in two of them is refused.
	TrustDomains []string
}

// Guard answers who may come in.
func (c *EgressChain) Guard() Guard {
	return Guard{c.Key.Mesh, c.Key.String(), c.Protocol, c.Permissions, c.TrustDomains}
}

// ExternalUpstream is an external service as zone egresses dial it.
type ExternalUpstream struct {
	Key       DestinationKey // on its [ExternalLocality]
	Protocol  kind.Protocol
	Endpoints []kind.ExternalEndpoint // sorted by priority, which begins at 0 and leaves none out
	TLS       *kind.ExternalTLS       // nil: without
	// Of the TLS, in PEM; empty: the system's own authorities, and no certificate.
	CACert, ClientCert, ClientKey []byte
}

func egressKeys(dp *resource.Object[kind.Dataplane]) []string {
	if dp.Spec.Networking.ZoneEgress == nil {
		return nil
	}
	return []string{MeshKey(dp.Mesh)}
}

// namedSecrets are the Secrets that an external service names.
func namedSecrets(service *resource.Object[kind.MeshExternalService]) []string {
	if !service.Spec.NamesCertificates() {
		return nil
	}
	v := service.Spec.TLS.Verification
	var keys []string
	for _, source := range []*kind.DataSource{v.CACert, v.ClientCert, v.ClientKey} {
		if source != nil && source.SecretRef != nil {
			keys = append(keys, RowKey(service.Mesh, source.SecretRef.Name))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// egressChains makes a proxy that has an egress section lead out of its zone. Without the section it has no right to the
// keys of external services, so it loses them at once. What it forwards to other zones needs no key, and drains.
func (s *State) egressChains(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) {
	sections := s.egressSections(r, p.Key, dp.Spec.Networking.ZoneEgress)
	if len(sections) == 0 || p.Identity == nil {
		return
	}
	p.Egresses, p.Forwards = egressListeners(sections), s.meshesOf(r, p.Key)
	if dp.Spec.Networking.ZoneEgress == nil {
		return
	}
	p.IsEgress = p.Forwards
	section := cmp.Or(sections[0].Name, fmt.Sprint(sections[0].Port))
	p.Chains = s.chains(r, &dp.Meta, section, p.Identity.Source)
}

// leadAllOut makes the proxy of a ZoneEgress lead out of its zone, for every mesh whose proxies it can prove to who
// it is.
func (s *State) leadAllOut(r *table.Reader, section *kind.ZoneEgressSection, p *Proxy) {
	sections, presents := s.egressSections(r, p.Key, section), s.presentations(r)
	if len(sections) == 0 || len(presents) == 0 {
		return
	}
	p.Identity, p.Certificate, p.Further = presents[0].Identity, presents[0].Certificate, presents[1:]
	p.Group.Secured, p.Group.Source = true, p.Identity.Source
	p.Egresses = egressListeners(sections)
	for _, mesh := range s.meshesOf(r, p.Key) {
		if from, ok := s.shownTo(r, p.Key.Name, presents, mesh); ok {
			p.IsEgress, p.Forwards = append(p.IsEgress, mesh), append(p.Forwards, mesh)
			// It is no Dataplane of the mesh, so that what targets it is what targets all.
			p.Chains = append(p.Chains, s.chains(r, &resource.Meta{Mesh: mesh}, "", from)...)
		}
	}
}

func egressListeners(sections []kind.ZoneEgressSection) []EgressListener {
	var listeners []EgressListener
	for _, section := range sections {
		listeners = append(listeners, EgressListener{section.Address, section.Port})
	}
	slices.SortFunc(listeners, func(a, b EgressListener) int { return compareAddresses(a.Address, a.Port, b.Address, b.Port) })
	return listeners
}

// chains are those of the external services of a proxy's mesh.
func (s *State) chains(r *table.Reader, proxy *resource.Meta, section string, from Source) []EgressChain {
	rules := match.PermitChains(s.PermissionByMesh.List(r, MeshKey(proxy.Mesh)), proxy, section)
	unreached := s.unreached(r, proxy.Mesh)
	believed := s.believed(r, proxy.Mesh, from)
	extended := map[*match.Permissions]bool{} // chains share them
	var chains []EgressChain
	for _, exit := range s.EgressServices.Get(r, proxy.Mesh) {
		permissions := cmp.Or(rules.Of(exit.SNIs), unreached)
		if !extended[permissions] {
			extended[permissions] = true
			s.holdAlso(r, proxy.Mesh, permissions)
		}
		chains = append(chains, EgressChain{exit, section, permissions, from, believed})
	}
	return chains
}

// unreached are the permissions of an external service that no rule reaches.
func (s *State) unreached(r *table.Reader, mesh string) *match.Permissions {
	m, ok := s.Meshes.Find(r, "", mesh)
	if !ok || m.Spec.Routing != nil && m.Spec.Routing.DefaultForbidMeshExternalServiceAccess {
		return &match.Permissions{}
	}
	return match.Everybody(m.Key().String() + " routing.defaultForbidMeshExternalServiceAccess: false")
}

// egressSections are the current one of a proxy, and former ones that it serves still while they are withdrawn, each
// listener once.
func (s *State) egressSections(r *table.Reader, key ProxyKey, current *kind.ZoneEgressSection) []kind.ZoneEgressSection {
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

// withdrawingEgresses are "address:port" of egress listeners that are served and no longer wanted, but for those that
// the zone's proxies are still told to dial.
func (s *State) withdrawingEgresses(r *table.Reader, key ProxyKey, section *kind.ZoneEgressSection, serving *kind.DataplaneListenerStatus) []string {
	var gone []string
	for i := range serving.Egresses {
		former := &serving.Egresses[i]
		dialled := func(a kind.ZoneProxyAddress) bool { return a.Address == former.Address && a.Port == former.Port }
		if (section == nil || former.Listener() != section.Listener()) && !slices.ContainsFunc(s.egressAddresses(r, key), dialled) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}

// egressServices are the external services of a mesh that can be dialled. A server name leads to one of them, whatever names
// another could be given that makes the same.
func (s *State) egressServices(r *table.Reader, mesh string) []EgressService {
	var exits []EgressService
	for _, service := range s.ExternalServicesByMesh.List(r, MeshKey(mesh)) {
		if _, ok := s.dialledAs(r, service); !ok {
			continue
		}
		port := service.Spec.Match.Port
		exits = append(exits, EgressService{
			Key: s.externalKeyOf(service).At(port), SNIs: sni.All(sni.Of(service, port)), Protocol: protocolOf(service),
		})
	}
	slices.SortFunc(exits, func(a, b EgressService) int { return CompareDestinations(a.Key, b.Key) })
	taken := map[string]bool{}
	for i := range exits {
		exits[i].SNIs = slices.DeleteFunc(exits[i].SNIs, func(name string) bool { return taken[name] })
		for _, name := range exits[i].SNIs {
			taken[name] = true
		}
	}
	return slices.DeleteFunc(exits, func(exit EgressService) bool { return len(exit.SNIs) == 0 })
}

func protocolOf(service *resource.Object[kind.MeshExternalService]) kind.Protocol {
	return cmp.Or(service.Spec.Match.Protocol, kind.TCP)
}

// dialledAs is how a service is dialled: as it says, or where it names certificates, as it did when all of them were
// there; false: they never were.
func (s *State) dialledAs(r *table.Reader, service *resource.Object[kind.MeshExternalService]) (*kind.ExternalMaterial, bool) {
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
	as, ok := s.dialledAs(r, service)
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

// externalOnly are the endpoints that may be outside the mesh by what they are called, whatever is stored.
func (s *State) externalOnly(endpoints []kind.ExternalEndpoint) []kind.ExternalEndpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e kind.ExternalEndpoint) bool {
		return kind.LocalEndpoint(e.Address, s.LocalNetworks) != ""
	})
}

// byPriority sorts endpoints and counts their priorities through.
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
