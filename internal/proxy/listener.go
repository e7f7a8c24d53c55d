package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/kind"
	"weft/resource"
)

// InboundListener is one (address, port) with the union of the inbounds that share it, including draining ones.
type InboundListener struct {
	Mesh    string
	Address string
	Port    uint32
	// Name is "8080", or "10.0.0.1_8080" where the proxy has that port at several addresses. It does not depend on the
	// inbounds that share the listener.
	Name string
	// Section is the inbounds' names, sorted and joined with "+".
	Section        string
	Protocol       kind.Protocol // of the first current inbound
	ServiceAddress string
	ServicePort    uint32
	// Bind is false where connections arrive through the capture listener.
	Bind bool
	// AlsoPlaintext is true where the listener accepts plaintext connections beside mutual TLS: some clients do not
	// know yet that the proxy has an identity, or a MeshTLS or the mtls of its mesh is permissive.
	AlsoPlaintext bool
	// Permissions are nil where the proxy is plaintext.
	Permissions *match.Permissions
	// Source is the source of the proxy's certificate.
	Source identity.Source
	// Probe configures the agent's probe of the application; nil: the agent's default.
	Probe *kind.ServiceProbe
	// TrustDomains are the domains that the proxy trusts, sorted. It denies a caller with SPIFFE IDs of two of them.
	TrustDomains []string
	// Confs are the effective confs of the policies about its callers; see [ReceivedOf].
	Confs policy.Confs `json:",omitzero"`
}

// Guard is the set of allowed callers at one place of a proxy.
type Guard struct {
	Mesh         string // the mesh of the callers
	Place        string // its name, unique in the proxy
	Protocol     kind.Protocol
	Permissions  *match.Permissions
	TrustDomains []string
}

// Trusts returns the trust domain of a SPIFFE ID, and whether the place trusts it. A place without trust domains trusts
// any: the control plane has not written them yet.
func (g *Guard) Trusts(spiffeID string) (domain string, trusted bool) {
	domain = identity.DomainOf(spiffeID)
	return domain, len(g.TrustDomains) == 0 || slices.Contains(g.TrustDomains, domain)
}

// Guard returns the allowed callers of the listener.
func (l *InboundListener) Guard() Guard {
	return Guard{l.Mesh, l.Name, l.Protocol, l.Permissions, l.TrustDomains}
}

// InboundSettings are the properties of an inbound listener that many proxies have in common. Listeners with equal ones
// share the parts of their configuration that depend on nothing else.
type InboundSettings struct {
	Mesh     string
	Name     string
	Protocol kind.Protocol
	Secured  bool // the proxy has an identity
	Confs    policy.Confs
}

// Settings returns the settings of the listener. secured states that its proxy has an identity.
func (l *InboundListener) Settings(secured bool) InboundSettings {
	return InboundSettings{l.Mesh, l.Name, l.Protocol, secured, l.Confs}
}

// deliverySource is an address of every Linux machine's loopback interface that no other program uses.
const deliverySource = "127.0.0.6"

// ServiceSource returns the address from which the proxy dials the application; empty: any. With redirection, a
// connection of the proxy to its own machine is either a call of one of its services, to be captured as any other call,
// or the delivery of a captured one. The redirect rules recognize the latter by its source. IPv6 has a single loopback
// address, so it has no such source.
func (l *InboundListener) ServiceSource() string {
	if l.Bind || l.ServiceAddress != l.Address || strings.Contains(l.Address, ":") {
		return ""
	}
	return deliverySource
}

// listeners returns the listeners of a proxy: its current inbounds, and those that it serves while they drain. Inbounds
// that share an address and port are one listener. It allows a caller that the rules of any of them allow and of none
// deny. (Adding inbounds in runtime.)
func (s *Stage) listeners(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) []InboundListener {
	shared, sections := map[string][]kind.Inbound{}, map[string]bool{}
	for _, in := range state.CurrentInbounds(s.state.NetworkingOf(r, dp)) {
		shared[in.Listener()] = append(shared[in.Listener()], in)
		sections[in.Section()] = true
	}
	alsoPlaintext := map[string]bool{}
	if serving, ok := s.state.ListenerStatuses.Find(r, dp.Mesh, dp.Name); ok {
		for _, served := range serving.Spec.Inbounds {
			at := served.Listener()
			if !sections[served.Section()] {
				shared[at] = append(shared[at], served.Inbound)
			}
			alsoPlaintext[at] = p.Identity != nil && (served.Serial == "" || !served.AlsoPlaintext.IsZero())
		}
	}
	mtls := s.identity.MTLS.Get(r, dp.Mesh)
	var listeners []InboundListener
	for at, inbounds := range shared {
		l := s.listener(r, dp, p, inbounds)
		l.AlsoPlaintext = alsoPlaintext[at] || p.Identity != nil && permissive(l.Confs, mtls)
		listeners = append(listeners, l)
	}
	slices.SortFunc(listeners, func(a, b InboundListener) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	nameListeners(listeners)
	return listeners
}

func nameListeners(listeners []InboundListener) {
	onPort := map[uint32]int{}
	for _, l := range listeners {
		onPort[l.Port]++
	}
	for i := range listeners {
		l := &listeners[i]
		l.Name = fmt.Sprint(l.Port)
		if onPort[l.Port] > 1 {
			l.Name = fmt.Sprintf("%s_%d", l.Address, l.Port)
		}
	}
}

func (s *Stage) listener(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy,
	inbounds []kind.Inbound) InboundListener {
	var names []string
	for _, in := range inbounds {
		names = append(names, in.Name)
	}
	slices.Sort(names)
	first := inbounds[0]
	l := InboundListener{
		Mesh:           dp.Mesh,
		Address:        first.Address,
		Port:           first.Port,
		Section:        strings.Join(slices.Compact(names), "+"),
		Protocol:       first.Protocol,
		ServiceAddress: first.ServiceAddress,
		ServicePort:    first.ServicePort,
		Bind:           p.Capture == nil,
		Probe:          first.ServiceProbe,
	}
	l.Confs = s.receivedAt(r, PlaceOf(p.Key, dp.Mesh, l.Section, nil))
	if p.Identity != nil {
		l.Permissions = s.permissions(r, p.Key, l.Section)
		l.Source, l.TrustDomains = p.Group.Source, s.identity.TrustedDomains(r, dp.Mesh, p.Identity.Source)
	}
	return l
}

// permissions returns the joined rules of a section of a proxy.
func (s *Stage) permissions(r *table.Reader, key state.ProxyKey, section string) *match.Permissions {
	joined := match.Permit(s.PermissionsOf(r, key.Mesh, key, section))
	s.identity.ExtendRules(r, key.Mesh, joined)
	return joined
}

// IngressListener is the address at which a zone ingress accepts the connections of remote zones. (Mesh Scoped Zone
// Ingress and Zone Egress.)
type IngressListener struct {
	Address string
	Port    uint32
	Section string `json:",omitempty"` // name of the section in policies; empty for a ZoneIngress
	// Confs are the effective confs of the policies about its section. A ZoneIngress has none: it belongs to no mesh.
	Confs policy.Confs `json:",omitzero"`
}

// ingressSection returns the name of the ingress section of a proxy in policies; empty for a ZoneIngress, and where the
// section was removed.
func ingressSection(key state.ProxyKey, section *kind.ZoneIngressSection) string {
	if section == nil || key.Type != kind.DataplaneProxy {
		return ""
	}
	return cmp.Or(section.Name, fmt.Sprint(section.Port))
}

// ingressListeners returns the current listener of a proxy, and the former ones that it serves while they drain.
func (s *Stage) ingressListeners(
	r *table.Reader,
	key state.ProxyKey,
	section *kind.ZoneIngressSection,
) []IngressListener {
	var listeners []IngressListener
	of := IngressListener{Section: ingressSection(key, section)}
	if of.Section != "" {
		of.Confs = s.receivedAt(r, PlaceOf(key, key.Mesh, of.Section, nil))
	}
	add := func(address string, port uint32) {
		l := of
		l.Address, l.Port = address, port
		listeners = append(listeners, l)
	}
	if section != nil {
		add(section.Address, section.Port)
	}
	if serving, ok := s.state.ListenerStatus(r, key); ok {
		for _, served := range serving.Spec.Ingresses {
			add(served.Address, served.Port)
		}
	}
	slices.SortFunc(listeners, func(a, b IngressListener) int {
		return zoneproxy.CompareAddresses(a.Address, a.Port, b.Address, b.Port)
	})
	return slices.Compact(listeners)
}
