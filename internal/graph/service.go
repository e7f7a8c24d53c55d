package graph

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

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
	Plain     bool // and without TLS
	Healthy   bool // its owner, its probe and its agent say that it may be used
}

// Members are the inbounds that a selector matches, with what their proxies serve.
func (s *State) Members(r *table.Reader, mesh string, selector *kind.ServiceSelector) []Member {
	var members []Member
	for dp, in := range s.Selected(r, mesh, selector) {
		members = append(members, s.member(r, dp, in))
	}
	return members
}

// Selected are the inbounds that a selector matches, with the defaults filled in, those of one Dataplane
// after each other. Ignored ones are no part of any match. (Adding inbounds in runtime.)
func (s *State) Selected(r *table.Reader, mesh string, selector *kind.ServiceSelector) iter.Seq2[*resource.Object[kind.Dataplane], kind.Inbound] {
	return func(yield func(*resource.Object[kind.Dataplane], kind.Inbound) bool) {
		for _, dp := range s.candidates(r, mesh, selector) {
			if selector.DataplaneLabels != nil && !selector.DataplaneLabels.Matches(dp.Labels) {
				continue
			}
			n := &dp.Spec.Networking
			for _, in := range n.Inbound {
				in = n.Effective(in)
				matches := in.State != kind.Ignored && kind.Subset(selector.DataplaneTags, in.Tags)
				if matches && !yield(dp, in) {
					return
				}
			}
		}
	}
}

// IsMember says whether a service selects a Dataplane.
func (s *State) IsMember(r *table.Reader, key ProxyKey, service string) bool {
	o, ok := s.Services.Find(r, key.Mesh, service)
	return ok && slices.ContainsFunc(s.Members(r, key.Mesh, &o.Spec.Selector), func(m Member) bool { return m.Dataplane.Name == key.Name })
}

func (s *State) member(r *table.Reader, dp *resource.Object[kind.Dataplane], in kind.Inbound) Member {
	m := Member{Dataplane: dp, Inbound: in}
	serving, ok := s.Servings.Find(r, dp.Mesh, dp.Name)
	if !ok {
		return m
	}
	for i := range serving.Spec.Inbounds {
		if served := &serving.Spec.Inbounds[i]; served.Address == in.Address && served.Port == in.Port {
			m.Serving, m.Plain = true, served.Serial == ""
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
		ids = append(ids, s.Presented.Get(r, server)...)
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
	if len(d.Identities) > 0 && len(s.Trust.Get(r, key.Mesh).Domains) > 1 {
		d.TrustDomain = commonDomain(d.Identities)
	}
	if status, ok := s.ServiceStatuses.Find(r, key.Mesh, key.Service); ok {
		for _, vip := range status.Spec.VIPs {
			d.VIPs = append(d.VIPs, vip.IP)
		}
	}
	return d
}

// commonDomain is the trust domain of all SPIFFE IDs; empty where they are of several.
func commonDomain(ids []string) string {
	domain := domainOf(ids[0])
	for _, id := range ids[1:] {
		if domainOf(id) != domain {
			return ""
		}
	}
	return domain
}

func domainOf(spiffeID string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(spiffeID, "spiffe://"), "/")
	return domain
}

func portOf(service *kind.MeshService, number uint32) (kind.ServicePort, bool) {
	i := slices.IndexFunc(service.Ports, func(p kind.ServicePort) bool { return p.Port == number })
	if i < 0 {
		return kind.ServicePort{}, false
	}
	return service.Ports[i], true
}

// Targets says whether a service's port leads to an inbound, which has its defaults filled in.
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
	secured := len(s.IdentitiesByMesh.List(r, MeshKey(key.Mesh))) > 0
	for _, m := range s.Members(r, key.Mesh, &service.Spec.Selector) {
		if !m.Serving || !m.Healthy || !Targets(port, &m.Inbound) {
			continue
		}
		published.Endpoints = append(published.Endpoints, Endpoint{
			Address: m.Inbound.Address,
			Port:    m.Inbound.Port,
			Proxy:   ProxyKey{m.Dataplane.Mesh, m.Dataplane.Name},
			Plain:   m.Plain && secured && s.Identity.Get(r, ProxyKey{m.Dataplane.Mesh, m.Dataplane.Name}) != nil,
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
