package service

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Member is one inbound that a selector matches, with the defaults filled in.
type Member struct {
	Dataplane *resource.Object[kind.Dataplane]
	Inbound   kind.Inbound
	// At is the listener to dial: that of the inbound, or its former one until its proxy serves the new one.
	At        kind.Inbound
	Ready     bool // its proxy serves it
	Plaintext bool // and without TLS
	Healthy   bool // its owner, its probe and its agent allow its use
}

// Members returns the inbounds of a service, with their listener status: those of the Dataplanes that the mesh admits,
// as far as somebody vouches for what the selector reads. The members of an evicted proxy, or of one that lost its
// voucher, are removed at once, also the last one. Members are shared and must not be changed.
func (s *Stage) Members(r *table.Reader, service *resource.Object[kind.MeshService]) iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		v := s.voucherOf(r, service)
		for dp := range s.selectedDataplanes(r, service) {
			inbounds := s.Inbounds.Get(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
			for i := range inbounds {
				m := &inbounds[i]
				if kind.Subset(service.Spec.Selector.DataplaneTags, m.Inbound.Tags) && v.isMember(dp, &m.Inbound) &&
					v.mayDial(m) && !yield(m) {
					return
				}
			}
		}
	}
}

// inbounds returns the inbounds of an admitted Dataplane that any service may select, with their listener status. Each
// service reads them for all its Dataplanes whenever one of them becomes ready. So they are computed once, and not by
// each reader.
func (s *Stage) inbounds(r *table.Reader, key state.ProxyKey) []Member {
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok || !s.identity.Admits(r, dp) {
		return nil
	}
	var members []Member
	for in := range selectable(s.state.NetworkingOf(r, dp)) {
		members = append(members, s.member(r, dp, in))
	}
	return members
}

// selectable returns the inbounds of a Dataplane with the defaults filled in. Ignored ones are excluded. (Adding
// inbounds in runtime.)
func selectable(n *kind.Networking) iter.Seq[kind.Inbound] {
	return func(yield func(kind.Inbound) bool) {
		for _, in := range n.Inbound {
			if in = n.Effective(in); in.State != kind.Ignored && !yield(in) {
				return
			}
		}
	}
}

// SelectedInbounds returns the inbounds that a service selects in the zone that owns it, with the defaults filled in,
// grouped by Dataplane: its selector matches them, and somebody vouches for what it reads.
func (s *Stage) SelectedInbounds(r *table.Reader,
	service *resource.Object[kind.MeshService]) iter.Seq2[*resource.Object[kind.Dataplane], kind.Inbound] {
	return func(yield func(*resource.Object[kind.Dataplane], kind.Inbound) bool) {
		v := s.voucherOf(r, service)
		for dp, in := range s.matched(r, service) {
			if v.isMember(dp, &in) && !yield(dp, in) {
				return
			}
		}
	}
}

// matched returns the inbounds that a service's selector matches, whether or not somebody vouches for them.
func (s *Stage) matched(r *table.Reader,
	service *resource.Object[kind.MeshService]) iter.Seq2[*resource.Object[kind.Dataplane], kind.Inbound] {
	return func(yield func(*resource.Object[kind.Dataplane], kind.Inbound) bool) {
		for dp := range s.selectedDataplanes(r, service) {
			for in := range s.withTags(r, service, dp) {
				if !yield(dp, in) {
					return
				}
			}
		}
	}
}

// withTags returns the inbounds of a Dataplane that have the tags of a service's selector.
func (s *Stage) withTags(r *table.Reader, service *resource.Object[kind.MeshService],
	dp *resource.Object[kind.Dataplane]) iter.Seq[kind.Inbound] {
	return func(yield func(kind.Inbound) bool) {
		for in := range selectable(s.state.NetworkingOf(r, dp)) {
			if kind.Subset(service.Spec.Selector.DataplaneTags, in.Tags) && !yield(in) {
				return
			}
		}
	}
}

// selectedDataplanes returns the Dataplanes that a service's selector may match in the zone that owns it. With a
// selector of tags, a Dataplane may lack an inbound that has all of them.
func (s *Stage) selectedDataplanes(r *table.Reader,
	service *resource.Object[kind.MeshService]) iter.Seq[*resource.Object[kind.Dataplane]] {
	zone := s.state.ZoneOf(&service.Meta)
	return func(yield func(*resource.Object[kind.Dataplane]) bool) {
		if zone != s.state.Zone && s.state.Zone != "" {
			return // this zone has none of its Dataplanes
		}
		for _, dp := range s.candidates(r, service.Mesh, zone, &service.Spec.Selector) {
			if s.mayMatch(service, dp) && !yield(dp) {
				return
			}
		}
	}
}

// mayMatch returns whether a service's selector matches a Dataplane of the service's zone, apart from the tags of its
// inbounds.
func (s *Stage) mayMatch(service *resource.Object[kind.MeshService], dp *resource.Object[kind.Dataplane]) bool {
	selector, zone := &service.Spec.Selector, s.state.ZoneOf(&service.Meta)
	switch {
	case s.state.ZoneOf(&dp.Meta) != zone:
		return false
	case selector.DataplaneRef != nil:
		return s.state.IsNamed(&kind.Dataplanes.Info, &dp.Meta, selector.DataplaneRef.Name)
	case selector.DataplaneLabels != nil:
		return selector.DataplaneLabels.Matches(dp.Labels)
	}
	return len(selector.DataplaneTags) > 0
}

// candidates returns the Dataplanes that a selector of a zone may match, by its narrowest index key.
func (s *Stage) candidates(r *table.Reader, mesh, zone string,
	selector *kind.ServiceSelector) []*resource.Object[kind.Dataplane] {
	switch {
	case selector.DataplaneRef != nil:
		if dp, ok := state.FindStored(s.state, s.state.Dataplanes, r, &kind.Dataplanes.Info, mesh, zone,
			selector.DataplaneRef.Name); ok {
			return []*resource.Object[kind.Dataplane]{dp}
		}
		return nil
	case selector.DataplaneLabels != nil:
		key := state.MeshKey(mesh)
		if label, value, ok := narrowest(selector.DataplaneLabels.MatchLabels, kind.WorkloadLabel); ok {
			key = state.LabelKey(mesh, label, value)
		}
		return s.state.DataplanesBySelector.List(r, key)
	case len(selector.DataplaneTags) > 0:
		tag, value, _ := narrowest(selector.DataplaneTags, kind.ServiceTag, kind.InstanceTag, kind.ServiceNameTag)
		return s.state.DataplanesBySelector.List(r, state.TagKey(mesh, tag, value))
	}
	return nil
}

// narrowest returns the pair to look up: the first of the preferred ones, which usually select a single workload, else
// the first by name.
func narrowest(pairs map[string]string, preferred ...string) (key, value string, ok bool) {
	for _, name := range preferred {
		if v, there := pairs[name]; there {
			return name, v, true
		}
	}
	for k, v := range pairs {
		if !ok || k < key {
			key, value, ok = k, v, true
		}
	}
	return key, value, ok
}

// UnreachableOutbounds returns the inbounds that a service's selector matches and that are not members, because the
// mesh does not admit their Dataplanes.
func (s *Stage) UnreachableOutbounds(r *table.Reader, service *resource.Object[kind.MeshService]) []Member {
	var notAdmitted []Member
	for dp, in := range s.SelectedInbounds(r, service) {
		if !s.identity.Admits(r, dp) {
			notAdmitted = append(notAdmitted, Member{Dataplane: dp, Inbound: in})
		}
	}
	return notAdmitted
}

// isServer returns whether a Dataplane is a backend of a MeshService.
func (s *Stage) isServer(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool {
	for _, m := range s.ServiceMembers.Get(r, s.Row(key)) {
		if m.Dataplane.Name == proxy.Name {
			return true
		}
	}
	return false
}

func (s *Stage) member(r *table.Reader, dp *resource.Object[kind.Dataplane], in kind.Inbound) Member {
	m := Member{Dataplane: dp, Inbound: in, At: in}
	serving, ok := s.state.ListenerStatuses.Find(r, dp.Mesh, dp.Name)
	if !ok {
		return m
	}
	served := ServedInbound(s.state.NetworkingOf(r, dp), &serving.Spec, &in)
	if served != nil &&
		s.identity.AcceptsProxy(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, &in, served.SpiffeIDs) {
		m.At, m.Ready, m.Plaintext = served.Inbound, true, served.Serial == ""
		m.Healthy = in.State == kind.Ready && !served.Unhealthy && !serving.Spec.Draining
	}
	return m
}

// ServedInbound returns where a proxy serves an inbound: at its listener, or, while nothing serves there yet, where a
// Ready inbound listened before it moved. nil: nowhere.
func ServedInbound(n *kind.Networking, serving *kind.DataplaneListenerStatus, in *kind.Inbound) *kind.ServedInbound {
	var former *kind.ServedInbound
	for i := range serving.Inbounds {
		served := &serving.Inbounds[i]
		switch {
		case served.Section() == in.Section():
			return served
		case in.State == kind.Ready && movedFrom(in, &served.Inbound) && !listensAt(n, served.Listener()):
			former = served
		}
	}
	return former
}

// movedFrom returns whether an inbound is another one at a new place. Inbounds without a name are named after their
// port, so that tags tell apart the services of those that differ in their address alone.
func movedFrom(in, former *kind.Inbound) bool {
	return in.Name == former.Name && in.Protocol == former.Protocol && maps.Equal(in.Tags, former.Tags)
}

// listensAt returns whether one of the inbounds that have a listener is at "address:port".
func listensAt(n *kind.Networking, listener string) bool {
	return slices.ContainsFunc(
		state.CurrentInbounds(n),
		func(in kind.Inbound) bool { return in.Listener() == listener },
	)
}

// serviceIdentities returns the SPIFFE IDs of a service's members and of its retained endpoints; for a service of a
// remote zone, those that the zone reports.
func (s *Stage) serviceIdentities(r *table.Reader, key state.ServiceKey) []string {
	service, ok := s.state.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	if s.state.IsRemote(service) {
		return toldIdentities(&service.Spec)
	}
	var ids []string
	for dp, in := range s.SelectedInbounds(r, service) {
		if s.identity.Admits(r, dp) {
			ids = append(ids, s.identity.ServerNames(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, &in)...)
		}
	}
	for _, port := range service.Spec.Ports {
		for _, e := range s.RetainedEndpointsOf(r, s.KeyOf(service).WithPort(port.Port)) {
			ids = append(ids, s.identity.Presented.Get(r, e.Proxy)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// toldIdentities returns the SPIFFE IDs of a service's servers, as its zone reports them.
func toldIdentities(service *kind.MeshService) []string {
	ids := service.SpiffeIDs()
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *Stage) destination(r *table.Reader, key DestinationKey) *Destination {
	row := s.Row(key)
	service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, key.Port)
	if !ok {
		return nil
	}
	d := &Destination{Key: key, Protocol: cmp.Or(port.AppProtocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	if s.state.IsRemote(service) {
		d.Servers.Zone, d.Servers.Way, d.SNI = key.Zone, s.routes.Way(r, key.Mesh), port.SNI()
	}
	d.TCPInbound = d.Protocol.IsHTTP() && s.hasTCPInbound(r, service, port)
	s.identify(r, key.Mesh, &d.Servers, s.ServiceIdentities.Get(r, row))
	return d
}

// hasTCPInbound returns whether a port targets an inbound that is not HTTP.
func (s *Stage) hasTCPInbound(r *table.Reader, service *resource.Object[kind.MeshService], port kind.ServicePort) bool {
	for _, in := range s.SelectedInbounds(r, service) {
		if Targets(port, &in) && !in.Protocol.IsHTTP() {
			return true
		}
	}
	return false
}

// identify sets the SPIFFE IDs that servers may present.
func (s *Stage) identify(r *table.Reader, mesh string, servers *Servers, ids []string) {
	servers.Identities = ids
	trusted := s.identity.Trust.Get(r, mesh).Domains
	if len(ids) == 0 || len(trusted) < 2 {
		return
	}
	servers.TrustDomain = commonDomain(ids)
	servers.Untrusted = servers.TrustDomain != "" && !slices.ContainsFunc(trusted,
		func(domain identity.TrustDomain) bool { return domain.Name == servers.TrustDomain })
}

func addressesOf(vips []kind.VIP) []string {
	var addresses []string
	for _, vip := range vips {
		addresses = append(addresses, vip.IP)
	}
	return addresses
}

// commonDomain returns the trust domain of all SPIFFE IDs; empty where they have several.
func commonDomain(ids []string) string {
	domain := identity.DomainOf(ids[0])
	for _, id := range ids[1:] {
		if identity.DomainOf(id) != domain {
			return ""
		}
	}
	return domain
}

// Targets returns whether a service's port targets an inbound, which has its defaults filled in.
func Targets(port kind.ServicePort, in *kind.Inbound) bool {
	switch {
	case port.TargetPort == nil:
		return in.Port == port.Port
	case port.TargetPort.Name != "":
		return in.Name == port.TargetPort.Name
	default:
		return in.Port == port.TargetPort.Number
	}
}

// endpoints returns the Ready members that their proxies serve. A member that its owner, its probe or its agent
// excludes is removed at once. For a service of a remote zone they are the zone proxies that forward to it.
func (s *Stage) endpoints(r *table.Reader, key DestinationKey) *Endpoints {
	published := &Endpoints{Destination: key}
	row := s.Row(key)
	service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return published
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, key.Port)
	if !ok {
		return published
	}
	if s.state.IsRemote(service) {
		published.Endpoints = ThroughHops(s.routes.Proxies(r, key.Mesh, key.Zone))
		return published
	}
	secured := s.identity.MTLS.Get(r, key.Mesh).Enabled ||
		len(s.state.IdentitiesByMesh.List(r, state.MeshKey(key.Mesh))) > 0
	for _, m := range s.ServiceMembers.Get(r, row) {
		if !m.Ready || !m.Healthy || !Targets(port, &m.Inbound) {
			continue
		}
		published.Endpoints = append(published.Endpoints, Endpoint{
			Address: m.At.Address,
			Port:    m.At.Port,
			Proxy:   state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name},
			Plaintext: m.Plaintext && secured &&
				s.identity.Identity.Get(r, state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name}) != nil,
		})
	}
	published.Endpoints = InOrder(append(published.Endpoints, s.RetainedEndpointsOf(r, key)...))
	return published
}
