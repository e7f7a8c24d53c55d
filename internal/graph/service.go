package graph

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// candidates returns the Dataplanes that a selector of a zone may match, by its narrowest index key.
func (s *State) candidates(r *table.Reader, mesh, zone string,
	selector *kind.ServiceSelector) []*resource.Object[kind.Dataplane] {
	switch {
	case selector.DataplaneRef != nil:
		if dp, ok := s.Dataplanes.Find(r, mesh,
			s.StoredName(&kind.Dataplanes.Info, zone, selector.DataplaneRef.Name)); ok {
			return []*resource.Object[kind.Dataplane]{dp}
		}
		return nil
	case selector.DataplaneLabels != nil:
		key := state.MeshKey(mesh)
		if label, value, ok := narrowest(selector.DataplaneLabels.MatchLabels, kind.WorkloadLabel); ok {
			key = state.LabelKey(mesh, label, value)
		}
		return s.DataplanesBySelector.List(r, key)
	case len(selector.DataplaneTags) > 0:
		tag, value, _ := narrowest(selector.DataplaneTags, kind.ServiceTag)
		return s.DataplanesBySelector.List(r, state.TagKey(mesh, tag, value))
	}
	return nil
}

// narrowest returns the pair to look up: the preferred one, which usually selects a single workload, else the first by
// name.
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

// MaxGenerated is the maximum number of generated MeshServices of a mesh in one zone. MeshServices that users write are
// not counted.
const MaxGenerated = 5000

// Generated returns the number of generated MeshServices of a mesh in this zone.
func (s *State) Generated(r *table.Reader, mesh string) int {
	n := 0
	for _, service := range s.ServicesByMesh.List(r, state.MeshKey(mesh)) {
		if service.Label(kind.ManagedBy) == kind.GeneratedBy && !s.IsRemote(service) {
			n++
		}
	}
	return n
}

// ServiceProblem returns why no MeshService is generated for kuma.io/service tags of a Dataplane's inbounds: the mesh
// has [MaxGenerated]. It is empty where each tag has a MeshService, or there is room for one. It counts the services of
// the mesh only where one lacks.
func (s *State) ServiceProblem(r *table.Reader, key state.ProxyKey) string {
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return ""
	}
	var without []string
	for _, in := range state.CurrentInbounds(&dp.Spec.Networking) {
		value := in.Tags[kind.ServiceTag]
		own := func(service *resource.Object[kind.MeshService]) bool { return !s.IsRemote(service) }
		if value != "" && !slices.Contains(without, value) &&
			!slices.ContainsFunc(s.ServicesByTag.List(r, state.TagKey(key.Mesh, kind.ServiceTag, value)), own) {
			without = append(without, value)
		}
	}
	if len(without) == 0 || s.Generated(r, key.Mesh) < MaxGenerated {
		return ""
	}
	slices.Sort(without)
	return fmt.Sprintf("no MeshService is generated for %s: %.1024s, since the mesh has as many as it may have (%d); "+
		"write a MeshService for it, or remove services",
		kind.ServiceTag, strings.Join(without, ", "), MaxGenerated)
}

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

// Members returns the inbounds of a service, with their listener status: those of the Dataplanes that the mesh admits.
// The members of an evicted proxy are removed at once, also the last one. Members are shared and must not be changed.
func (s *State) Members(r *table.Reader, service *resource.Object[kind.MeshService]) iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		for dp := range s.selectedDataplanes(r, service) {
			inbounds := s.Inbounds.Get(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
			for i := range inbounds {
				m := &inbounds[i]
				if kind.Subset(service.Spec.Selector.DataplaneTags, m.Inbound.Tags) && !yield(m) {
					return
				}
			}
		}
	}
}

// members are the values of ServiceMembers.
func (s *State) members(r *table.Reader, key state.ServiceKey) []*Member {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	return slices.Collect(s.Members(r, service))
}

// inbounds returns the inbounds of an admitted Dataplane that any service may select, with their listener status. Each
// service reads them for all its Dataplanes whenever one of them becomes ready. So they are computed once, and not by
// each reader.
func (s *State) inbounds(r *table.Reader, key state.ProxyKey) []Member {
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok || !s.Admits(r, dp) {
		return nil
	}
	var members []Member
	for in := range selectable(s.NetworkingOf(r, dp)) {
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

// Selected returns the inbounds that a service's selector matches in the zone that owns it, with the defaults filled
// in, grouped by Dataplane.
func (s *State) Selected(r *table.Reader,
	service *resource.Object[kind.MeshService]) iter.Seq2[*resource.Object[kind.Dataplane], kind.Inbound] {
	return func(yield func(*resource.Object[kind.Dataplane], kind.Inbound) bool) {
		for dp := range s.selectedDataplanes(r, service) {
			for in := range selectable(s.NetworkingOf(r, dp)) {
				if kind.Subset(service.Spec.Selector.DataplaneTags, in.Tags) && !yield(dp, in) {
					return
				}
			}
		}
	}
}

// selectedDataplanes returns the Dataplanes that a service's selector may match in the zone that owns it. With a
// selector of tags, a Dataplane may lack an inbound that has all of them.
func (s *State) selectedDataplanes(r *table.Reader,
	service *resource.Object[kind.MeshService]) iter.Seq[*resource.Object[kind.Dataplane]] {
	selector, zone := &service.Spec.Selector, s.ZoneOf(&service.Meta)
	return func(yield func(*resource.Object[kind.Dataplane]) bool) {
		if zone != s.Zone && s.Zone != "" {
			return // this zone has none of its Dataplanes
		}
		for _, dp := range s.candidates(r, service.Mesh, zone, selector) {
			matches := s.ZoneOf(&dp.Meta) == zone &&
				(selector.DataplaneLabels == nil || selector.DataplaneLabels.Matches(dp.Labels))
			if matches && !yield(dp) {
				return
			}
		}
	}
}

// isServer returns whether a Dataplane is a backend of a MeshService.
func (s *State) isServer(r *table.Reader, proxy state.ProxyKey, key DestinationKey) bool {
	for _, m := range s.ServiceMembers.Get(r, s.Row(key)) {
		if m.Dataplane.Name == proxy.Name {
			return true
		}
	}
	return false
}

func (s *State) member(r *table.Reader, dp *resource.Object[kind.Dataplane], in kind.Inbound) Member {
	m := Member{Dataplane: dp, Inbound: in, At: in}
	serving, ok := s.ListenerStatuses.Find(r, dp.Mesh, dp.Name)
	if !ok {
		return m
	}
	served := servedInbound(s.NetworkingOf(r, dp), &serving.Spec, &in)
	if served != nil && s.AcceptsProxy(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, &in, served.SpiffeIDs) {
		m.At, m.Ready, m.Plaintext = served.Inbound, true, served.Serial == ""
		m.Healthy = in.State == kind.Ready && !served.Unhealthy && !serving.Spec.Draining
	}
	return m
}

// servedInbound returns where a proxy serves an inbound: at its listener, or, while nothing serves there yet, where a
// Ready inbound listened before it moved. nil: nowhere.
func servedInbound(n *kind.Networking, serving *kind.DataplaneListenerStatus, in *kind.Inbound) *kind.ServedInbound {
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
func (s *State) serviceIdentities(r *table.Reader, key state.ServiceKey) []string {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	if s.IsRemote(service) {
		return toldIdentities(&service.Spec)
	}
	var ids []string
	for dp, in := range s.Selected(r, service) {
		if s.Admits(r, dp) {
			ids = append(ids, s.ServerNames(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, &in)...)
		}
	}
	for _, port := range service.Spec.Ports {
		for _, e := range s.RetainedEndpointsOf(r, s.KeyOf(service).At(port.Port)) {
			ids = append(ids, s.Presented.Get(r, e.Proxy)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *State) destination(r *table.Reader, key DestinationKey) *Destination {
	row := s.Row(key)
	service, ok := s.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, key.Port)
	if !ok {
		return nil
	}
	d := &Destination{Key: key, Protocol: cmp.Or(port.AppProtocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	if s.IsRemote(service) {
		d.Servers.Zone, d.Servers.Way, d.SNI = key.Zone, s.crossZoneWay(r, key.Mesh), port.SNI()
	}
	d.TCPInbound = d.Protocol.IsHTTP() && s.hasTCPInbound(r, service, port)
	s.identify(r, key.Mesh, &d.Servers, s.ServiceIdentities.Get(r, row))
	return d
}

// hasTCPInbound returns whether a port targets an inbound that is not HTTP.
func (s *State) hasTCPInbound(r *table.Reader, service *resource.Object[kind.MeshService], port kind.ServicePort) bool {
	for _, in := range s.Selected(r, service) {
		if Targets(port, &in) && !in.Protocol.IsHTTP() {
			return true
		}
	}
	return false
}

// identify sets the SPIFFE IDs that servers may present.
func (s *State) identify(r *table.Reader, mesh string, servers *Servers, ids []string) {
	servers.Identities = ids
	if len(ids) > 0 && len(s.Trust.Get(r, mesh).Domains) > 1 {
		servers.TrustDomain = commonDomain(ids)
	}
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
func (s *State) endpoints(r *table.Reader, key DestinationKey) *Endpoints {
	published := &Endpoints{Destination: key}
	row := s.Row(key)
	service, ok := s.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return published
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, key.Port)
	if !ok {
		return published
	}
	if s.IsRemote(service) {
		published.Endpoints = throughHops(s.crossZoneProxies(r, key.Mesh, key.Zone))
		return published
	}
	secured := s.MTLS.Get(r, key.Mesh).Enabled || len(s.IdentitiesByMesh.List(r, state.MeshKey(key.Mesh))) > 0
	for _, m := range s.ServiceMembers.Get(r, row) {
		if !m.Ready || !m.Healthy || !Targets(port, &m.Inbound) {
			continue
		}
		published.Endpoints = append(published.Endpoints, Endpoint{
			Address: m.At.Address,
			Port:    m.At.Port,
			Proxy:   state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name},
			Plaintext: m.Plaintext && secured &&
				s.Identity.Get(r, state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name}) != nil,
		})
	}
	published.Endpoints = inOrder(append(published.Endpoints, s.RetainedEndpointsOf(r, key)...))
	return published
}
