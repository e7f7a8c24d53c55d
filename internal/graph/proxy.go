package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func (s *State) proxy(r *table.Reader, key state.ProxyKey) *Proxy {
	if key.Type != kind.DataplaneProxy {
		return s.zoneProxy(r, key)
	}
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	p := &Proxy{Key: key, Zone: s.Zone, NotAdmitted: s.NotAdmittedReason(r, key), Identity: s.Identity.Get(r, key)}
	p.Certificate = s.NextCertificate(r, key, p.Identity)
	n := &dp.Spec.Networking
	var unvouched []string
	p.Sections, unvouched = dp.Vouched.By(kind.SectionFacts(n))
	p.Sections.Token = append(p.Sections.Token, unvouched...)
	p.Outbounds = s.explicit(r, key.Mesh, n.Outbound)
	p.Group = ProxyGroup{Mesh: key.Mesh, Secured: p.Identity != nil}
	if p.Identity != nil {
		p.Group.Source = p.Identity.Source
	}
	if t := n.TransparentProxying; t != nil {
		p.Capture = &Capture{
			InboundPort:  cmp.Or(t.RedirectPortInbound, 15006),
			OutboundPort: cmp.Or(t.RedirectPortOutbound, 15001),
			IPFamilies:   cmp.Or(t.IPFamilyMode, "DualStack"),
		}
		p.Group.Transparent = true
		p.Group.IPFamilies = p.Capture.IPFamilies
	}
	p.Group.Policies = s.outboundPolicies(r, key)
	p.Group.Reach = s.reach(r, key.Mesh, n.TransparentProxying, p.Outbounds)
	p.Listeners = s.listeners(r, dp, p)
	if p.Ingresses = s.ingressListeners(r, key, n.ZoneIngress); len(p.Ingresses) > 0 {
		p.Passes = s.MeshesOf(r, key)
	}
	s.egressChains(r, dp, p)
	return p
}

// listeners returns the listeners of a proxy: its current inbounds, and those that it serves while they drain. Inbounds
// that share an address and port are one listener. It allows a caller that the rules of any of them allow and of none
// deny. (Adding inbounds in runtime.)
func (s *State) listeners(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) []InboundListener {
	shared, sections := map[string][]kind.Inbound{}, map[string]bool{}
	for _, in := range state.CurrentInbounds(s.NetworkingOf(r, dp)) {
		shared[in.Listener()] = append(shared[in.Listener()], in)
		sections[in.Section()] = true
	}
	alsoPlaintext := map[string]bool{}
	if serving, ok := s.ListenerStatuses.Find(r, dp.Mesh, dp.Name); ok {
		for _, served := range serving.Spec.Inbounds {
			at := served.Listener()
			if !sections[served.Section()] {
				shared[at] = append(shared[at], served.Inbound)
			}
			alsoPlaintext[at] = p.Identity != nil && (served.Serial == "" || !served.AlsoPlaintext.IsZero())
		}
	}
	mtls := s.MTLS.Get(r, dp.Mesh)
	var listeners []InboundListener
	for at, inbounds := range shared {
		l := s.listener(r, dp, p, inbounds)
		l.AlsoPlaintext = alsoPlaintext[at] || p.Identity != nil && mtls.Permissive
		l.ModeMayChange = p.Identity != nil && mtls.Enabled
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

func (s *State) listener(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy,
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
	if p.Identity != nil {
		l.Permissions = s.permissions(r, p.Key, l.Section)
		l.Source, l.TrustDomains = p.Identity.Source, s.TrustedDomains(r, dp.Mesh, p.Identity.Source)
	}
	return l
}

// draining returns the listeners that are served and no longer configured, and the removed inbounds of configured
// listeners, by [kind.Inbound.Section]. Listeners that clients still use are excluded: retained endpoints, and the
// former address of an inbound that does not serve at its new address yet.
func (s *State) draining(r *table.Reader, key state.ProxyKey) []string {
	serving, ok := s.ListenerStatus(r, key)
	if !ok {
		return nil
	}
	n, ok := s.Networking(r, key)
	if !ok {
		return nil
	}
	wanted := map[string]bool{}
	for _, in := range state.CurrentInbounds(n) {
		wanted[in.Listener()], wanted[in.Section()] = true, true
	}
	retained := map[string]bool{}
	for _, endpoint := range s.retainedOf(r, key) {
		retained[endpoint.Listener()] = true
	}
	for _, in := range state.CurrentInbounds(n) {
		if served := servedInbound(n, &serving.Spec, &in); served != nil {
			retained[served.Listener()] = retained[served.Listener()] || !wanted[served.Listener()]
		}
	}
	var gone []string
	for _, in := range serving.Spec.Inbounds {
		what := in.Listener()
		if wanted[what] {
			what = in.Section()
		}
		if !wanted[what] && !retained[in.Listener()] && !slices.Contains(gone, what) {
			gone = append(gone, what)
		}
	}
	gone = append(gone, s.drainingIngresses(r, key, n.ZoneIngress, &serving.Spec)...)
	return append(gone, s.drainingEgresses(r, key, n.ZoneEgress, &serving.Spec)...)
}

// Unserved returns whether an agent reports on a proxy, and its listener status lacks an inbound or a section of its
// resource.
func (s *State) Unserved(r *table.Reader, key state.ProxyKey) bool {
	serving, ok := s.ListenerStatus(r, key)
	n, there := s.Networking(r, key)
	if !ok || !there || serving.Spec.Run == "" {
		return false
	}
	has := map[string]bool{}
	for _, in := range serving.Spec.Inbounds {
		has[in.Section()] = true
	}
	for _, listener := range append(servedIngresses(&serving.Spec), servedEgresses(&serving.Spec)...) {
		has[listener] = true
	}
	return slices.ContainsFunc(state.CurrentInbounds(n), func(in kind.Inbound) bool { return !has[in.Section()] }) ||
		n.ZoneIngress != nil && !has[n.ZoneIngress.Listener()] || n.ZoneEgress != nil && !has[n.ZoneEgress.Listener()]
}

// At returns the proxy that listens on an address and port of a mesh.
func (s *State) At(r *table.Reader, mesh, address string, port uint32) (state.ProxyKey, bool) {
	for _, dp := range s.DataplanesByListener.List(r, state.ListenerKey(mesh, address, port)) {
		return state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, true
	}
	for _, name := range s.ResolvedNamesByAddress.List(r, address) {
		for _, dp := range s.DataplanesByListener.List(r, state.ListenerKey(mesh, name.Name, port)) {
			return state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, true
		}
	}
	return state.ProxyKey{}, false
}
