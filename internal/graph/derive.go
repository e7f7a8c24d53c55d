package graph

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// derive makes the stages, each of which reads rows and the ones before it.
func (s *State) derive() {
	s.Identity = table.NewDerived(s.DB, "identity", s.identity, same[*Identity])
	s.Trust = table.NewDerived(s.DB, "trust", s.trust, same[*Trust])
	s.Names = table.NewDerived(s.DB, "services of a mesh", s.names, slices.Equal)
	s.Tagged = table.NewDerived(s.DB, "services of a tag", s.tagged, slices.Equal)
	s.Ports = table.NewDerived(s.DB, "service ports", s.ports, slices.Equal)
	s.ServiceIdentities = table.NewDerived(s.DB, "service identities", s.serviceIdentities, slices.Equal)
	s.Destination = table.NewDerived(s.DB, "destination", s.destination, same[*Destination])
	s.Endpoints = table.NewDerived(s.DB, "endpoints", s.endpoints, equalEndpoints)
	s.Reached = table.NewDerived(s.DB, "reached", s.reached, slices.Equal)
	s.Proxy = table.NewDerived(s.DB, "proxy", s.proxy, same[*Proxy])
	s.Withdrawing = table.NewDerived(s.DB, "withdrawing", s.withdrawing, slices.Equal)
}

func same[V any](a, b V) bool { return reflect.DeepEqual(a, b) }

func equalEndpoints(a, b *Endpoints) bool { return slices.Equal(a.Endpoints, b.Endpoints) }

// identity chooses the MeshIdentity of a Dataplane: of those that select it the one with most labels,
// then the first by name. A selected Dataplane never becomes plain because its SPIFFE ID can't be
// rendered: it has an identity that nobody can present, and the reason stands in Problem.
func (s *State) identity(r *table.Reader, key ProxyKey) *Identity {
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	var chosen *resource.Object[kind.MeshIdentity]
	most := -1
	for _, candidate := range s.IdentitiesByMesh.List(r, MeshKey(key.Mesh)) {
		selector := candidate.Spec.Selector
		if selector == nil || selector.Dataplane == nil || !selector.Dataplane.Matches(dp.Labels) {
			continue
		}
		if labels := len(selector.Dataplane.MatchLabels); labels > most {
			chosen, most = candidate, labels
		}
	}
	if chosen == nil {
		return nil
	}
	id, domain, err := identity.SpiffeID(&chosen.Spec, key.Mesh, s.Zone, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		return &Identity{MeshIdentity: chosen.Name, Problem: err.Error()}
	}
	return &Identity{MeshIdentity: chosen.Name, SpiffeID: id, TrustDomain: domain}
}

func (s *State) trust(r *table.Reader, mesh string) *Trust {
	roots := map[string][]string{}
	for _, t := range s.TrustsByMesh.List(r, MeshKey(mesh)) {
		for _, bundle := range t.Spec.CABundles {
			if bundle.PEM != nil {
				roots[t.Spec.TrustDomain] = append(roots[t.Spec.TrustDomain], strings.TrimSpace(bundle.PEM.Value)+"\n")
			}
		}
	}
	trust := &Trust{Mesh: mesh}
	for domain, pems := range roots {
		slices.Sort(pems)
		trust.Domains = append(trust.Domains, TrustDomain{domain, slices.Compact(pems)})
	}
	slices.SortFunc(trust.Domains, func(a, b TrustDomain) int { return cmp.Compare(a.Name, b.Name) })
	return trust
}

// candidates are the Dataplanes that a selector may match, by its narrowest index key.
func (s *State) candidates(r *table.Reader, mesh string, selector *kind.ServiceSelector) []*resource.Object[kind.Dataplane] {
	switch {
	case selector.DataplaneRef != nil:
		if dp, ok := s.Dataplanes.Find(r, mesh, selector.DataplaneRef.Name); ok {
			return []*resource.Object[kind.Dataplane]{dp}
		}
		return nil
	case selector.DataplaneLabels != nil:
		key := MeshKey(mesh)
		if label, value, ok := narrowest(selector.DataplaneLabels.MatchLabels, kind.WorkloadLabel); ok {
			key = LabelKey(mesh, label, value)
		}
		return s.DataplanesBySelector.List(r, key)
	case len(selector.DataplaneTags) > 0:
		tag, value, _ := narrowest(selector.DataplaneTags, kind.ServiceTag)
		return s.DataplanesBySelector.List(r, TagKey(mesh, tag, value))
	}
	return nil
}

// narrowest chooses the pair to look up: the one that usually names a single workload, else the first.
func narrowest(pairs map[string]string, preferred string) (key, value string, ok bool) {
	if v, there := pairs[preferred]; there {
		return preferred, v, true
	}
	for k, v := range pairs {
		if !ok || k < key {
			key, value, ok = k, v, true
		}
	}
	return key, value, ok
}

// Member is one inbound that a selector matches, with the defaults filled in.
type Member struct {
	Dataplane *resource.Object[kind.Dataplane]
	Inbound   kind.Inbound
	Serving   bool // its proxy serves it
	Healthy   bool // its owner, its probe and its agent say that it may be used
}

// Members are the inbounds that a selector matches. Ignored ones are no part of any match.
// (Adding inbounds in runtime.)
func (s *State) Members(r *table.Reader, mesh string, selector *kind.ServiceSelector) []Member {
	var members []Member
	for _, dp := range s.candidates(r, mesh, selector) {
		if selector.DataplaneLabels != nil && !selector.DataplaneLabels.Matches(dp.Labels) {
			continue
		}
		n := &dp.Spec.Networking
		for _, in := range n.Inbound {
			in = n.Effective(in)
			if in.State != kind.Ignored && kind.Subset(selector.DataplaneTags, in.Tags) {
				members = append(members, s.member(r, dp, in))
			}
		}
	}
	return members
}

func (s *State) member(r *table.Reader, dp *resource.Object[kind.Dataplane], in kind.Inbound) Member {
	m := Member{Dataplane: dp, Inbound: in}
	serving, ok := s.Servings.Find(r, dp.Mesh, dp.Name)
	if !ok {
		return m
	}
	for i := range serving.Spec.Inbounds {
		if served := &serving.Spec.Inbounds[i]; served.Address == in.Address && served.Port == in.Port {
			m.Serving = true
			m.Healthy = in.State == kind.Ready && !served.Unhealthy && !serving.Spec.Draining
		}
	}
	return m
}

// serviceIdentities are the names of a service's members, and of the former ones that are held.
func (s *State) serviceIdentities(r *table.Reader, key ServiceKey) []string {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	var servers []ProxyKey
	for _, m := range s.Members(r, key.Mesh, &service.Spec.Selector) {
		servers = append(servers, ProxyKey{m.Dataplane.Mesh, m.Dataplane.Name})
	}
	for _, port := range service.Spec.Ports {
		for _, e := range s.held(r, s.destinationKey(key.Mesh, key.Name, port.Port)) {
			servers = append(servers, e.Proxy)
		}
	}
	var ids []string
	for _, server := range servers {
		if id := s.Identity.Get(r, server); id != nil && id.SpiffeID != "" {
			ids = append(ids, id.SpiffeID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *State) destination(r *table.Reader, key DestinationKey) *Destination {
	service, ok := s.Services.Find(r, key.Mesh, key.Service)
	if !ok {
		return nil
	}
	port, ok := portOf(&service.Spec, key.Port)
	if !ok {
		return nil
	}
	d := &Destination{
		Key:        key,
		Protocol:   port.AppProtocol,
		Identities: s.ServiceIdentities.Get(r, ServiceKey{key.Mesh, key.Service}),
	}
	if d.Protocol == "" {
		d.Protocol = kind.TCP
	}
	if status, ok := s.ServiceStatuses.Find(r, key.Mesh, key.Service); ok {
		for _, vip := range status.Spec.VIPs {
			d.VIPs = append(d.VIPs, vip.IP)
		}
	}
	return d
}

func portOf(service *kind.MeshService, number uint32) (kind.ServicePort, bool) {
	i := slices.IndexFunc(service.Ports, func(p kind.ServicePort) bool { return p.Port == number })
	if i < 0 {
		return kind.ServicePort{}, false
	}
	return service.Ports[i], true
}

// targets says whether a service's port leads to an inbound.
func targets(port kind.ServicePort, in *kind.Inbound) bool {
	switch {
	case port.TargetPort == nil:
		return in.Port == port.Port
	case port.TargetPort.Name != "":
		return in.Name == port.TargetPort.Name
	default:
		return in.Port == port.TargetPort.Number
	}
}

// endpoints are the Ready members whose proxies serve them. What its owner, its probe or its agent takes
// out leaves at once.
func (s *State) endpoints(r *table.Reader, key DestinationKey) *Endpoints {
	published := &Endpoints{Destination: key}
	service, ok := s.Services.Find(r, key.Mesh, key.Service)
	if !ok {
		return published
	}
	port, ok := portOf(&service.Spec, key.Port)
	if !ok {
		return published
	}
	for _, m := range s.Members(r, key.Mesh, &service.Spec.Selector) {
		if !m.Serving || !m.Healthy || !targets(port, &m.Inbound) {
			continue
		}
		published.Endpoints = append(published.Endpoints, Endpoint{
			Address: m.Inbound.Address,
			Port:    m.Inbound.Port,
			Proxy:   ProxyKey{m.Dataplane.Mesh, m.Dataplane.Name},
		})
	}
	published.Endpoints = append(published.Endpoints, s.held(r, key)...)
	slices.SortFunc(published.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	published.Endpoints = slices.CompactFunc(published.Endpoints, func(a, b Endpoint) bool {
		return a.Address == b.Address && a.Port == b.Port
	})
	return published
}

// selection is one entry of a class's reach.
type selection struct {
	Name   string            `json:"n,omitempty"`
	Labels map[string]string `json:"l,omitempty"`
	Port   uint32            `json:"p,omitempty"`
}

// everything is the reach of a proxy that sees all services of its mesh.
const everything = "*"

// canonical writes selections so that equal sets are equal strings.
func canonical(selections []selection) string {
	written := make([]string, 0, len(selections))
	for _, sel := range selections {
		raw, _ := json.Marshal(sel) // maps are written in the order of their keys
		written = append(written, string(raw))
	}
	slices.Sort(written)
	return "[" + strings.Join(slices.Compact(written), ",") + "]"
}

func (s *State) names(r *table.Reader, mesh string) []string {
	return namesOf(s.ServicesByMesh.List(r, MeshKey(mesh)))
}

func (s *State) tagged(r *table.Reader, tagKey string) []string {
	return namesOf(s.ServicesByTag.List(r, tagKey))
}

func namesOf(services []*resource.Object[kind.MeshService]) []string {
	var names []string
	for _, service := range services {
		names = append(names, service.Name)
	}
	return names
}

// ports are the numbers of a service's ports, in their order; none where there is no such service.
func (s *State) ports(r *table.Reader, key ServiceKey) []uint32 {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	var ports []uint32
	for _, p := range service.Spec.Ports {
		ports = append(ports, p.Port)
	}
	return ports
}

func (s *State) reached(r *table.Reader, class Class) []DestinationKey {
	selections := []selection{{Labels: map[string]string{}}} // everything
	if class.Reach != everything {
		if err := json.Unmarshal([]byte(class.Reach), &selections); err != nil {
			panic("graph: a class's reach is written by canonical: " + err.Error())
		}
	}
	var keys []DestinationKey
	for _, sel := range selections {
		for _, name := range s.selected(r, class.Mesh, sel) {
			for _, port := range s.Ports.Get(r, ServiceKey{class.Mesh, name}) {
				if sel.Port == 0 || sel.Port == port {
					keys = append(keys, s.destinationKey(class.Mesh, name, port))
				}
			}
		}
	}
	slices.SortFunc(keys, CompareDestinations)
	return slices.Compact(keys)
}

// selected are the services of a selection: the named one, or all that have the labels.
func (s *State) selected(r *table.Reader, mesh string, sel selection) []string {
	switch {
	case sel.Name != "":
		return []string{sel.Name}
	case len(sel.Labels) == 0:
		return s.Names.Get(r, mesh)
	}
	return namesOf(slices.DeleteFunc(s.ServicesByMesh.List(r, MeshKey(mesh)), func(o *resource.Object[kind.MeshService]) bool {
		return !kind.Subset(sel.Labels, o.Labels)
	}))
}

// CompareDestinations orders destinations.
func CompareDestinations(a, b DestinationKey) int {
	return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Port, b.Port))
}

func (s *State) proxy(r *table.Reader, key ProxyKey) *Proxy {
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	p := &Proxy{Key: key, Zone: s.Zone, Identity: s.Identity.Get(r, key)}
	n := &dp.Spec.Networking
	p.Outbounds = s.explicit(r, key.Mesh, n.Outbound)
	p.Class = Class{Mesh: key.Mesh, Secured: p.Identity != nil}
	if t := n.TransparentProxying; t != nil {
		p.Capture = &Capture{
			InboundPort:  cmp.Or(t.RedirectPortInbound, 15006),
			OutboundPort: cmp.Or(t.RedirectPortOutbound, 15001),
			IPFamilies:   cmp.Or(t.IPFamilyMode, "DualStack"),
		}
		p.Class.Transparent = true
		p.Class.IPFamilies = p.Capture.IPFamilies
	}
	p.Class.Reach = s.reach(r, key.Mesh, n.TransparentProxying, p.Outbounds)
	p.Listeners = s.listeners(r, dp, p)
	return p
}

// explicit are the outbounds whose destination exists; the others listen once it does.
func (s *State) explicit(r *table.Reader, mesh string, outbounds []kind.Outbound) []ExplicitOutbound {
	var explicit []ExplicitOutbound
	for i := range outbounds {
		key, ok := s.named(r, mesh, &outbounds[i])
		if !ok {
			continue
		}
		explicit = append(explicit, ExplicitOutbound{
			Address:     cmp.Or(outbounds[i].Address, "127.0.0.1"),
			Port:        outbounds[i].Port,
			Destination: key,
			Protocol:    s.Destination.Get(r, key).Protocol,
		})
	}
	return explicit
}

// named is the destination that an outbound means: of the services that it names the first by name that
// has the port, which is a service's first one where a tag names it.
func (s *State) named(r *table.Reader, mesh string, out *kind.Outbound) (DestinationKey, bool) {
	var names []string
	var wanted uint32
	if ref := out.BackendRef; ref != nil {
		names, wanted = s.selected(r, mesh, selection{Name: ref.Name, Labels: ref.Labels}), ref.Port
	} else {
		names = s.Tagged.Get(r, TagKey(mesh, kind.ServiceTag, out.Tags[kind.ServiceTag]))
	}
	for _, name := range names {
		for _, port := range s.Ports.Get(r, ServiceKey{mesh, name}) {
			if wanted == 0 || wanted == port {
				return s.destinationKey(mesh, name, port), true
			}
		}
	}
	return DestinationKey{}, false
}

func (s *State) reach(r *table.Reader, mesh string, t *kind.TransparentProxying, explicit []ExplicitOutbound) string {
	if t != nil && t.ReachableBackends == nil && t.ReachableServices == nil {
		return everything
	}
	var selections []selection
	for _, out := range explicit {
		selections = append(selections, selection{Name: out.Destination.Service, Port: out.Destination.Port})
	}
	if t != nil && t.ReachableBackends != nil {
		for _, ref := range t.ReachableBackends.Refs {
			selections = append(selections, selection{ref.Name, ref.Labels, ref.Port})
		}
	}
	if t != nil {
		for _, tag := range t.ReachableServices {
			for _, name := range s.Tagged.Get(r, TagKey(mesh, kind.ServiceTag, tag)) {
				selections = append(selections, selection{Name: name})
			}
		}
	}
	return canonical(selections)
}

// listeners are what a proxy listens on: its current inbounds, and those that it serves still while
// they are withdrawn. Inbounds that share an address and port are one listener.
func (s *State) listeners(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy) []InboundListener {
	shared := map[string][]kind.Inbound{}
	for _, in := range current(&dp.Spec.Networking) {
		shared[in.Listener()] = append(shared[in.Listener()], in)
	}
	if serving, ok := s.Servings.Find(r, dp.Mesh, dp.Name); ok {
		for _, served := range serving.Spec.Inbounds {
			if at := served.Listener(); len(shared[at]) == 0 {
				shared[at] = []kind.Inbound{served.Inbound}
			}
		}
	}
	var listeners []InboundListener
	for _, inbounds := range shared {
		listeners = append(listeners, s.listener(r, dp, p, inbounds))
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

// current are the inbounds that have a listener, with the defaults filled in.
func current(n *kind.Networking) []kind.Inbound {
	var inbounds []kind.Inbound
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored {
			inbounds = append(inbounds, in)
		}
	}
	return inbounds
}

func (s *State) listener(r *table.Reader, dp *resource.Object[kind.Dataplane], p *Proxy, inbounds []kind.Inbound) InboundListener {
	var names []string
	for _, in := range inbounds {
		names = append(names, in.Name)
	}
	slices.Sort(names)
	first := inbounds[0]
	l := InboundListener{
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
		l.Permissions = match.Permit(s.PermissionByMesh.List(r, MeshKey(dp.Mesh)), &dp.Meta, l.Section)
		for _, domain := range s.Trust.Get(r, dp.Mesh).Domains {
			l.TrustDomains = append(l.TrustDomains, domain.Name)
		}
	}
	return l
}

// withdrawing are "address:port" of listeners that are served and no longer wanted, but for those that
// are held: clients are still sent there.
func (s *State) withdrawing(r *table.Reader, key ProxyKey) []string {
	serving, ok := s.Servings.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	wanted := map[string]bool{}
	for _, in := range current(&dp.Spec.Networking) {
		wanted[in.Listener()] = true
	}
	var gone []string
	for _, row := range s.HeldByProxy.List(r, RowKey(key.Mesh, key.Name)) {
		for i := range row.Spec.Endpoints {
			wanted[row.Spec.Endpoints[i].Listener()] = true
		}
	}
	for _, in := range serving.Spec.Inbounds {
		if at := in.Listener(); !wanted[at] {
			gone = append(gone, at)
		}
	}
	return gone
}

// At answers the proxy that listens on an address and port of a mesh.
func (s *State) At(r *table.Reader, mesh, address string, port uint32) (ProxyKey, bool) {
	for _, dp := range s.DataplanesByListener.List(r, ListenerKey(mesh, address, port)) {
		return ProxyKey{dp.Mesh, dp.Name}, true
	}
	return ProxyKey{}, false
}
