package graph

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"weft/internal/match"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ServiceReport is what one control plane knows of a service, as the API shows it.
type ServiceReport struct {
	Type string `json:"type"` // MeshService, MeshMultiZoneService or MeshExternalService
	Mesh string `json:"mesh"`
	Name string `json:"name"` // as it is stored here
	// DisplayName is what its owner calls it, and Zone where it lives; empty for one that global owns.
	DisplayName string `json:"displayName"`
	Zone        string `json:"zone,omitempty"`
	// State is Available or Unavailable, as its zone says; empty: it has not said.
	State string `json:"state,omitempty"`
	// Hostnames and VIPs are where clients of this control plane's zone reach it.
	Hostnames []string     `json:"hostnames"`
	VIPs      []string     `json:"vips"`
	Ports     []PortReport `json:"ports"`
	// Identities are the SPIFFE IDs that its servers may present, or the zone egresses that lead to it.
	Identities []string `json:"identities"`
	// Ingresses are the doors of its zone, for a MeshMultiZoneService of the zones of its members.
	Ingresses []IngressReport `json:"ingresses"`
	// External is where a MeshExternalService is, "api.example.com:443", and Egresses the way there from the zone of
	// this control plane.
	External []string       `json:"external,omitempty"`
	Egresses []EgressReport `json:"egresses,omitempty"`
	// Backends is absent where only another control plane knows, and that one could not be asked; Unasked says
	// why.
	Backends   *Backends `json:"backends,omitempty"`
	NotQueried string    `json:"notQueried,omitempty"`
	// Members are the MeshServices that a MeshMultiZoneService selects.
	Members    []MemberReport   `json:"members,omitempty"`
	Conditions []kind.Condition `json:"conditions"`
	// Unreachable say why clients of other zones don't reach it; none where they do, or where there is one
	// zone only.
	Unreachable []Unreachable `json:"unreachable"`
}

// PortReport is one port of a service.
type PortReport struct {
	Port     uint32        `json:"port"`
	Name     string        `json:"name,omitempty"`
	Protocol kind.Protocol `json:"protocol"`
	SNIs     []string      `json:"snis"` // clients use the first, ingresses answer all
}

// IngressReport is one zone ingress.
type IngressReport struct {
	Zone    string `json:"zone"`
	Name    string `json:"name"`    // of its Dataplane or ZoneIngress
	Address string `json:"address"` // "192.168.1.100:30001", where other zones dial it
	// Resolved are the IP addresses at which this zone dials an ingress of another zone that has a host name.
	Resolved []string `json:"resolved,omitempty"`
	Healthy  bool     `json:"healthy"`
	Legacy   bool     `json:"legacy,omitempty"` // it is a ZoneIngress
}

// EgressReport is one zone egress.
type EgressReport struct {
	Name    string `json:"name"`    // of its Dataplane or ZoneEgress
	Address string `json:"address"` // "10.0.0.2:10002", where the proxies of its zone dial it
	Healthy bool   `json:"healthy"` // it is there and serves the mesh; proxies dial no other
	Legacy  bool   `json:"legacy,omitempty"`
}

// Backends is what only the zone knows in which a service lives.
type Backends struct {
	Servers []Server `json:"servers"`
	Access  []Access `json:"access"`
}

// Access is who may call a port of a service at some of its servers, those with the same rules together.
type Access struct {
	Port       uint32   `json:"port"` // of the service
	Dataplanes []string `json:"dataplanes"`
	Policies   []string `json:"policies"`
	// Rules are absent where the servers are plain.
	Rules   *AppliedRules `json:"rules,omitempty"`
	Default string        `json:"default"`
}

// MemberReport is one MeshService that a MeshMultiZoneService selects.
type MemberReport struct {
	Zone  string   `json:"zone"`
	Name  string   `json:"name"` // as its owner calls it
	State string   `json:"state,omitempty"`
	Ports []uint32 `json:"ports"` // those of the MeshMultiZoneService in which it takes part
	// Excluded says for each other port why it takes no part in it.
	Excluded []string `json:"excluded,omitempty"`

	identities []string
}

// ServiceQuery says which services are meant.
type ServiceQuery struct {
	Mesh string
	// Name is what the service's owner calls it, or how it is stored here.
	Name string
	// Type and Zone narrow the answer where they are not empty.
	Type, Zone string
}

// ReportServices answers what is known of the services that a query means: MeshServices, in the order of the zones,
// those of many zones, those outside the mesh.
func (s *State) ReportServices(snapshot *table.Snapshot, q ServiceQuery) []ServiceReport {
	r := table.Eval(snapshot)
	reports := []ServiceReport{}
	if q.wants(kind.MeshServices) {
		for _, o := range s.ServicesByMesh.List(r, MeshKey(q.Mesh)) {
			if q.means(&o.Meta) {
				reports = append(reports, s.reportService(r, o))
			}
		}
	}
	slices.SortStableFunc(reports, func(a, b ServiceReport) int { return cmp.Compare(a.Zone, b.Zone) })
	if q.wants(kind.MeshMultiZoneServices) {
		for o := range s.MultiZoneServices.From(snapshot, MeshKey(q.Mesh), "") {
			if q.means(&o.Meta) {
				reports = append(reports, s.reportMultiZone(r, o))
			}
		}
	}
	if q.wants(kind.MeshExternalServices) {
		for o := range s.ExternalServices.From(snapshot, MeshKey(q.Mesh), "") {
			if q.means(&o.Meta) {
				reports = append(reports, s.reportExternal(r, o))
			}
		}
	}
	return reports
}

func (q *ServiceQuery) wants(d resource.Descriptor) bool {
	return q.Type == "" || q.Type == d.Describe().Name
}

func (q *ServiceQuery) means(meta *resource.Meta) bool {
	named := meta.Name == q.Name || kind.DisplayNameOf(meta) == q.Name
	return named && (q.Zone == "" || q.Zone == kind.OwnerOf(meta).Zone)
}

func (s *State) reportService(r *table.Reader, o *resource.Object[kind.MeshService]) ServiceReport {
	report := newServiceReport(o, o.Spec.Ports)
	report.Zone = s.ZoneOf(&o.Meta)
	report.State = o.Spec.State
	if status, ok := s.ServiceStatuses.Find(r, o.Mesh, o.Name); ok {
		report.reachedAt(status.Spec.VIPs, status.Spec.Addresses)
		report.Conditions = append(report.Conditions, status.Spec.Conditions...)
	}
	report.Identities = append(report.Identities, spiffeIDs(&o.Spec)...)
	report.Ingresses = append(report.Ingresses, s.reportIngresses(r, o.Mesh, report.Zone)...)
	if s.ManyZones(r, o.Mesh) {
		report.Unreachable = append(report.Unreachable, s.Unreachable(r, o)...)
	}
	if report.Zone == s.Zone {
		report.Backends = s.backends(r, o)
	}
	return report
}

// Backends answers who is behind a service of this zone; nil where there is no such service.
func (s *State) Backends(r *table.Reader, key ServiceKey) *Backends {
	o, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok || s.ZoneOf(&o.Meta) != s.Zone {
		return nil
	}
	return s.backends(r, o)
}

func (s *State) backends(r *table.Reader, o *resource.Object[kind.MeshService]) *Backends {
	return &Backends{Servers: s.servers(r, o), Access: s.access(r, o)}
}

func newServiceReport(o resource.Any, ports []kind.ServicePort) ServiceReport {
	meta := o.Envelope()
	report := ServiceReport{
		Type: o.Key().Kind, Mesh: meta.Mesh, Name: meta.Name, DisplayName: kind.DisplayNameOf(meta),
		Hostnames: []string{}, VIPs: []string{}, Ports: []PortReport{}, Identities: []string{},
		Ingresses: []IngressReport{}, Conditions: []kind.Condition{}, Unreachable: []Unreachable{},
	}
	for _, port := range ports {
		p := PortReport{Port: port.Port, Name: port.Name, Protocol: cmp.Or(port.AppProtocol, kind.TCP), SNIs: []string{}}
		for _, sni := range port.SNIs {
			p.SNIs = append(p.SNIs, sni.Value)
		}
		report.Ports = append(report.Ports, p)
	}
	return report
}

func (report *ServiceReport) reachedAt(vips []kind.VIP, addresses []kind.Address) {
	for _, address := range addresses {
		report.Hostnames = append(report.Hostnames, address.Hostname)
	}
	for _, vip := range vips {
		report.VIPs = append(report.VIPs, vip.IP)
	}
}

func spiffeIDs(service *kind.MeshService) []string {
	var ids []string
	for _, identity := range service.Identities {
		if identity.Type == kind.SpiffeIdentity {
			ids = append(ids, identity.Value)
		}
	}
	return ids
}

// ZoneOf is the zone that a resource belongs to: this one, where it does not say.
func (s *State) ZoneOf(meta *resource.Meta) string { return cmp.Or(kind.OwnerOf(meta).Zone, s.Zone) }

// access joins the servers of each port whose rules are the same.
func (s *State) access(r *table.Reader, o *resource.Object[kind.MeshService]) []Access {
	all := []Access{}
	permissions := s.PermissionByMesh.List(r, MeshKey(o.Mesh))
	members := s.Members(r, o)
	for _, port := range o.Spec.Ports {
		var ofPort []Access
		for i := range members {
			if m := &members[i]; Targets(port, &m.Inbound) {
				ofPort = joinAccess(ofPort, s.accessAt(r, m, permissions))
			}
		}
		for i := range ofPort {
			ofPort[i].Port = port.Port
		}
		all = append(all, ofPort...)
	}
	return all
}

func joinAccess(all []Access, one Access) []Access {
	for i := range all {
		if have := &all[i]; slices.Equal(have.Policies, one.Policies) && reflect.DeepEqual(have.Rules, one.Rules) {
			have.Dataplanes = append(have.Dataplanes, one.Dataplanes...)
			return all
		}
	}
	return append(all, one)
}

func (s *State) accessAt(r *table.Reader, m *Member, permissions []*resource.Object[kind.MeshTrafficPermission]) Access {
	access := Access{Dataplanes: []string{m.Dataplane.Name}}
	proxy := s.Proxy.Get(r, ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name})
	for i := range proxy.Listeners {
		if l := &proxy.Listeners[i]; l.Address == m.Inbound.Address && l.Port == m.Inbound.Port {
			in := appliedInbound(l, match.Applying(permissions, &m.Dataplane.Meta, l.Section))
			access.Policies, access.Rules, access.Default = in.Policies, in.Rules, in.Default
		}
	}
	return access
}

func (s *State) reportMultiZone(r *table.Reader, o *resource.Object[kind.MeshMultiZoneService]) ServiceReport {
	report := newServiceReport(o, o.Spec.Ports)
	if status, ok := s.MultiZoneServiceStatuses.Find(r, o.Mesh, o.Name); ok {
		report.reachedAt(status.Spec.VIPs, status.Spec.Addresses)
		report.Conditions = append(report.Conditions, status.Spec.Conditions...)
	}
	report.Members = s.MembersOf(r, o)
	var zones []string
	for _, member := range report.Members {
		zones = append(zones, member.Zone)
		report.Identities = append(report.Identities, member.identities...)
	}
	slices.Sort(zones)
	for _, zone := range slices.Compact(zones) {
		report.Ingresses = append(report.Ingresses, s.reportIngresses(r, o.Mesh, zone)...)
	}
	slices.Sort(report.Identities)
	report.Identities = slices.Compact(report.Identities)
	return report
}

// MembersOf are the MeshServices that a MeshMultiZoneService selects, by zone and name.
func (s *State) MembersOf(r *table.Reader, o *resource.Object[kind.MeshMultiZoneService]) []MemberReport {
	var members []MemberReport
	for _, service := range s.ServicesByMesh.List(r, MeshKey(o.Mesh)) {
		if selector := o.Spec.Selector.MeshService; selector != nil && selector.Matches(service.Labels) {
			members = append(members, s.reportMember(o.Spec.Ports, service))
		}
	}
	slices.SortFunc(members, func(a, b MemberReport) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
	})
	return members
}

func (s *State) reportMember(ports []kind.ServicePort, service *resource.Object[kind.MeshService]) MemberReport {
	m := MemberReport{Zone: s.ZoneOf(&service.Meta), Name: kind.DisplayNameOf(&service.Meta), State: service.Spec.State, Ports: []uint32{}, identities: spiffeIDs(&service.Spec)}
	for _, port := range ports {
		var has kind.Protocol
		if own, ok := portOf(service.Spec.Ports, port.Port); ok {
			has = cmp.Or(own.AppProtocol, kind.TCP)
		}
		if reason := exclusionReason(port, has); reason != "" {
			m.Excluded = append(m.Excluded, reason)
		} else {
			m.Ports = append(m.Ports, port.Port)
		}
	}
	return m
}

// exclusionReason says why a MeshService whose port of that number has a protocol, empty where it lacks the port, takes
// no part in a port of a MeshMultiZoneService; empty where it does. (SNI in the resource definition.)
func exclusionReason(port kind.ServicePort, has kind.Protocol) string {
	wanted := cmp.Or(port.AppProtocol, kind.TCP)
	switch {
	case has == "":
		return fmt.Sprintf("it has no port %d", port.Port)
	case wanted != has:
		return fmt.Sprintf("its port %d is %s, not %s", port.Port, has, wanted)
	}
	return ""
}

// Endpoints counts the endpoints of a port, and all of its servers.
func (b *Backends) Endpoints(port uint32) (ready, total int) {
	for i := range b.Servers {
		if s := &b.Servers[i]; s.Port == port {
			total++
			if s.Status == EndpointPublished || s.Status == EndpointRetained {
				ready++
			}
		}
	}
	return ready, total
}
