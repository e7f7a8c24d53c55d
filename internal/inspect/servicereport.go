package inspect

import (
	"cmp"
	"reflect"
	"slices"

	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// ServiceReport is the state of a service on one control plane, as the API shows it.
type ServiceReport struct {
	Type string `json:"type"` // MeshService, MeshMultiZoneService or MeshExternalService
	Mesh string `json:"mesh"`
	Name string `json:"name"` // as it is stored here
	// DisplayName is its name at its owner, on Kubernetes NAME.NAMESPACE, and Zone its zone; empty for a service that
	// global owns.
	DisplayName string `json:"displayName"`
	Zone        string `json:"zone,omitempty"`
	// State is Available or Unavailable, as its zone reports; empty: the zone has not reported.
	State string `json:"state,omitempty"`
	// Hostnames and VIPs are the addresses for clients of this control plane's zone.
	Hostnames []string     `json:"hostnames"`
	VIPs      []string     `json:"vips"`
	Ports     []PortReport `json:"ports"`
	// Identities are the SPIFFE IDs that its servers, or the zone egresses of an external service, may present.
	Identities []string `json:"identities"`
	// Ingresses are the ingresses of its zone, for a MeshMultiZoneService of the zones of its members.
	Ingresses []IngressReport `json:"ingresses"`
	// External are the addresses of a MeshExternalService, "api.example.com:443", and Egresses the zone egresses of
	// this control plane's zone that forward to it.
	External []string       `json:"external,omitempty"`
	Egresses []EgressReport `json:"egresses,omitempty"`
	// Backends is absent where only another control plane has them and could not be queried; NotQueried is the reason.
	Backends   *Backends `json:"backends,omitempty"`
	NotQueried string    `json:"notQueried,omitempty"`
	// Members are the MeshServices that a MeshMultiZoneService selects.
	Members    []MemberReport   `json:"members,omitempty"`
	Conditions []kind.Condition `json:"conditions"`
	// Unreachable states why clients of remote zones don't reach it; empty where they do, or where there is only one
	// zone.
	Unreachable []Unreachable `json:"unreachable"`
}

// PortReport is one port of a service.
type PortReport struct {
	Port     uint32        `json:"port"`
	Name     string        `json:"name,omitempty"`
	Protocol kind.Protocol `json:"protocol"`
	SNIs     []string      `json:"snis"` // clients use the first, ingresses route all
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
	Healthy bool   `json:"healthy"` // it runs and serves the mesh; proxies dial no other
	Legacy  bool   `json:"legacy,omitempty"`
}

// Backends is the part of a report that only the service's zone has.
type Backends struct {
	Servers []Server `json:"servers"`
	Access  []Access `json:"access"`
}

// Access lists the allowed callers of a port of a service at some of its servers. Servers with the same rules are one
// entry.
type Access struct {
	Port       uint32   `json:"port"` // of the service
	Dataplanes []string `json:"dataplanes"`
	Policies   []string `json:"policies"`
	// Rules are absent where the servers are plaintext.
	Rules   *AppliedRules `json:"rules,omitempty"`
	Default string        `json:"default"`
}

// MemberReport is one MeshService that a MeshMultiZoneService selects.
type MemberReport struct {
	Zone  string   `json:"zone"`
	Name  string   `json:"name"` // the name that its owner gave it
	State string   `json:"state,omitempty"`
	Ports []uint32 `json:"ports"` // the ports of the MeshMultiZoneService that select it
	// Excluded has for each other port the reason why it is excluded.
	Excluded []string `json:"excluded,omitempty"`

	identities []string
}

// ServiceQuery selects services.
type ServiceQuery struct {
	Mesh string
	// Name is the name that the service's owner gave it, or its stored name.
	Name string
	// Type and Zone restrict the result where they are not empty.
	Type, Zone string
}

// Services returns the reports of the services that a query selects: MeshServices sorted by zone,
// MeshMultiZoneServices, MeshExternalServices.
func (rs *Reports) Services(q ServiceQuery) []ServiceReport {
	reports := []ServiceReport{}
	if q.wants(kind.MeshServices) {
		for _, o := range rs.State.Tables.ServicesByMesh.List(rs.r, state.MeshKey(q.Mesh)) {
			if q.means(&o.Meta) {
				reports = append(reports, rs.reportService(o))
			}
		}
	}
	slices.SortStableFunc(reports, func(a, b ServiceReport) int { return cmp.Compare(a.Zone, b.Zone) })
	if q.wants(kind.MeshMultiZoneServices) {
		for o := range rs.State.Tables.MultiZoneServices.RowsAfter(rs.Snapshot, state.MeshKey(q.Mesh), "") {
			if q.means(&o.Meta) {
				reports = append(reports, rs.reportMultiZone(o))
			}
		}
	}
	if q.wants(kind.MeshExternalServices) {
		for o := range rs.State.Tables.ExternalServices.RowsAfter(rs.Snapshot, state.MeshKey(q.Mesh), "") {
			if q.means(&o.Meta) {
				reports = append(reports, rs.reportExternal(o))
			}
		}
	}
	return reports
}

func (q *ServiceQuery) wants(d resource.Descriptor) bool {
	return q.Type == "" || q.Type == d.Describe().Name
}

func (q *ServiceQuery) means(meta *resource.Meta) bool {
	named := meta.Name == q.Name || kind.DisplayNameOf(meta) == q.Name ||
		kind.OwnerName(&kind.MeshServices.Info, meta) == q.Name
	return named && (q.Zone == "" || q.Zone == kind.OwnerOf(meta).Zone)
}

func (rs *Reports) reportService(o *resource.Object[kind.MeshService]) ServiceReport {
	report := newServiceReport(o, o.Spec.Ports)
	report.Zone = rs.State.Tables.ZoneOf(&o.Meta)
	report.State = o.Spec.State
	if status, ok := rs.State.Tables.ServiceStatuses.Find(rs.r, o.Mesh, o.Name); ok {
		report.reachedAt(status.Spec.VIPs, status.Spec.Addresses)
		report.Conditions = append(report.Conditions, status.Spec.Conditions...)
	}
	report.Identities = append(report.Identities, o.Spec.SpiffeIDs()...)
	report.Ingresses = append(report.Ingresses, rs.reportIngresses(o.Mesh, report.Zone)...)
	if rs.ManyZones(o.Mesh) {
		report.Unreachable = append(report.Unreachable, rs.UnreachableReasons(o)...)
	}
	if report.Zone == rs.State.Tables.Zone {
		report.Backends = rs.backends(o)
	}
	return report
}

// Backends returns the backends of a service of this zone; nil where there is no such service.
func (rs *Reports) Backends(key state.ServiceKey) *Backends {
	o, ok := rs.State.Tables.Services.Find(rs.r, key.Mesh, key.Name)
	if !ok || rs.State.Tables.ZoneOf(&o.Meta) != rs.State.Tables.Zone {
		return nil
	}
	return rs.backends(o)
}

func (rs *Reports) backends(o *resource.Object[kind.MeshService]) *Backends {
	return &Backends{Servers: rs.servers(o), Access: rs.access(o)}
}

// nameAtOwner is the name of a resource at its owner.
func nameAtOwner(o resource.Any) string {
	return kind.OwnerName(kind.ByName(o.Key().Kind).Describe(), o.Envelope())
}

func newServiceReport(o resource.Any, ports []kind.ServicePort) ServiceReport {
	meta := o.Envelope()
	report := ServiceReport{
		Type: o.Key().Kind, Mesh: meta.Mesh, Name: meta.Name, DisplayName: nameAtOwner(o),
		Hostnames: []string{}, VIPs: []string{}, Ports: []PortReport{}, Identities: []string{},
		Ingresses: []IngressReport{}, Conditions: []kind.Condition{}, Unreachable: []Unreachable{},
	}
	for _, port := range ports {
		p := PortReport{Port: port.Port, Name: port.Name, Protocol: cmp.Or(port.AppProtocol, kind.TCP),
			SNIs: []string{}}
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

func (rs *Reports) reportIngresses(mesh, zone string) []IngressReport {
	row, ok := rs.State.Tables.ZoneAddress(rs.r, mesh, zone)
	if !ok {
		return nil
	}
	var reports []IngressReport
	for _, a := range row.Spec.Ingresses {
		report := IngressReport{Zone: zone, Name: a.Name, Address: a.Listener(), Healthy: a.Healthy, Legacy: a.Legacy}
		if zone != rs.State.Tables.Zone && kind.NeedsLookup(a.Address) {
			report.Resolved = rs.State.Tables.Resolve(rs.r, a.Address)
		}
		reports = append(reports, report)
	}
	return reports
}

// access returns the access of each port. Servers with the same rules are one entry.
func (rs *Reports) access(o *resource.Object[kind.MeshService]) []Access {
	all := []Access{}
	members := slices.Collect(rs.State.Services.Members(rs.r, o))
	for _, port := range o.Spec.Ports {
		var ofPort []Access
		for _, m := range members {
			if service.Targets(port, &m.Inbound) {
				ofPort = joinAccess(ofPort, rs.accessAt(m))
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

func (rs *Reports) accessAt(m *service.Member) Access {
	access := Access{Dataplanes: []string{m.Dataplane.Name}}
	key := state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name}
	proxy := rs.State.Proxies.Proxy.Get(rs.r, key)
	for i := range proxy.Listeners {
		if l := &proxy.Listeners[i]; l.Address == m.Inbound.Address && l.Port == m.Inbound.Port {
			in := rs.appliedInbound(key, l)
			access.Policies, access.Rules, access.Default = in.Policies, in.Rules, in.Default
		}
	}
	return access
}

func (rs *Reports) reportMultiZone(o *resource.Object[kind.MeshMultiZoneService]) ServiceReport {
	report := newServiceReport(o, o.Spec.Ports)
	if status, ok := rs.State.Tables.MultiZoneServiceStatuses.Find(rs.r, o.Mesh, o.Name); ok {
		report.reachedAt(status.Spec.VIPs, status.Spec.Addresses)
		report.Conditions = append(report.Conditions, status.Spec.Conditions...)
	}
	report.Members = rs.MembersOf(o)
	var zones []string
	for _, member := range report.Members {
		zones = append(zones, member.Zone)
		report.Identities = append(report.Identities, member.identities...)
	}
	slices.Sort(zones)
	for _, zone := range slices.Compact(zones) {
		report.Ingresses = append(report.Ingresses, rs.reportIngresses(o.Mesh, zone)...)
	}
	slices.Sort(report.Identities)
	report.Identities = slices.Compact(report.Identities)
	return report
}

// MembersOf returns the MeshServices that a MeshMultiZoneService selects, sorted by zone and name.
func (rs *Reports) MembersOf(o *resource.Object[kind.MeshMultiZoneService]) []MemberReport {
	var members []MemberReport
	for _, service := range rs.State.Tables.ServicesByMesh.List(rs.r, state.MeshKey(o.Mesh)) {
		if selector := o.Spec.Selector.MeshService; selector != nil && selector.Matches(service.Labels) {
			members = append(members, rs.reportMember(o, service))
		}
	}
	slices.SortFunc(members, func(a, b MemberReport) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
	})
	return members
}

func (rs *Reports) reportMember(of *resource.Object[kind.MeshMultiZoneService],
	meshService *resource.Object[kind.MeshService]) MemberReport {
	m := MemberReport{
		Zone:       rs.State.Tables.ZoneOf(&meshService.Meta),
		Name:       nameAtOwner(meshService),
		State:      meshService.Spec.State,
		Ports:      []uint32{},
		identities: meshService.Spec.SpiffeIDs(),
	}
	if reason := service.ExcludedNamespace(of, meshService.Label(kind.NamespaceLabel)); reason != "" {
		m.Excluded = []string{reason}
		return m
	}
	for _, port := range of.Spec.Ports {
		var has kind.Protocol
		if own, ok := kind.PortNumbered(meshService.Spec.Ports, port.Port); ok {
			has = cmp.Or(own.AppProtocol, kind.TCP)
		}
		if reason := service.ExclusionReason(port, has); reason != "" {
			m.Excluded = append(m.Excluded, reason)
		} else {
			m.Ports = append(m.Ports, port.Port)
		}
	}
	return m
}

// Endpoints returns the number of endpoints of a port, and of all its servers.
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
