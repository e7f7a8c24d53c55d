package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"weft/resource"
)

// MeshService is a destination in the mesh: the Dataplanes that its selector matches, at its ports. The control plane
// generates one for each value of the tag kuma.io/service, unless a user wrote it, once a proxy with it runs.
type MeshService struct {
	// State is Available while any of its servers can be reached.
	State string `json:"state,omitempty" schema:"readonly enum=Available|Unavailable"`
	// Selector is the selector of its Dataplanes.
	Selector ServiceSelector `json:"selector" schema:"required one"`
	// Ports are the ports that clients dial.
	Ports []ServicePort `json:"ports,omitempty" schema:"required minItems=1 maxItems=256" missing:"at least one port"`
	// Identities are the SPIFFE IDs that its servers present.
	Identities []ServiceIdentity `json:"identities,omitempty" schema:"readonly maxItems=4096"`
	// ZoneIngress is the address at which other zones reach the service. It is computed on reading, and not stored.
	// (Mesh Scoped Zone Ingress and Zone Egress.)
	ZoneIngress *ServiceIngress `json:"zoneIngress,omitempty" schema:"readonly"`
}

// ServiceIngress is the address at which other zones reach a MeshService.
type ServiceIngress struct {
	Address string `json:"address" schema:"maxLength=253"` // the address of the first zone ingress of its zone
	Port    uint32 `json:"port"`                           // the port of the same ingress
	SNI     string `json:"sni" schema:"maxLength=253"`     // the SNI of its first port
	// Endpoints are all zone ingresses of its zone.
	Endpoints []IngressEndpoint `json:"endpoints,omitempty" schema:"maxItems=1024"`
}

// IngressEndpoint is one zone ingress.
type IngressEndpoint struct {
	Address string `json:"address" schema:"maxLength=253"` // the address or port that other zones dial
	Port    uint32 `json:"port"`                           // the address or port that other zones dial
	Healthy bool   `json:"healthy"`                        // whether its proxy is connected and serves
}

// MaxServicePorts is the maximum number of ports of a MeshService or MeshMultiZoneService.
const MaxServicePorts = 256

// ServiceSelector has exactly one of its fields.
type ServiceSelector struct {
	// DataplaneTags are tags that one inbound must have; all must match.
	DataplaneTags map[string]string `json:"dataplaneTags,omitempty" schema:"tags minProperties=1"`
	// DataplaneLabels is a match of the labels of Dataplanes.
	DataplaneLabels *LabelSelector `json:"dataplaneLabels,omitempty"`
	// DataplaneRef is a reference to one Dataplane.
	DataplaneRef *NameRef `json:"dataplaneRef,omitempty"`
}

// LabelSelector matches labels; an empty one matches everything.
type LabelSelector struct {
	// required labels; {} matches everything
	MatchLabels map[string]string `json:"matchLabels,omitzero" schema:"labels"`
}

// Matches reports whether labels has every label of the selector.
func (s *LabelSelector) Matches(labels map[string]string) bool { return Subset(s.MatchLabels, labels) }

// Subset reports whether have contains every pair of want.
func Subset(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// NameRef references a resource of the same mesh.
type NameRef struct {
	Name string `json:"name" schema:"required pattern=name"` // the name of the resource
}

// ServicePort is one port of a service.
type ServicePort struct {
	// Port is the port that clients dial.
	Port uint32 `json:"port" schema:"required port"`
	// TargetPort is the number or the name of the selected inbounds; by default the port.
	TargetPort *PortRef `json:"targetPort,omitempty"`
	// Name is a name by which other resources may reference the port.
	Name string `json:"name,omitempty" schema:"pattern=section"`
	// AppProtocol is the protocol of the servers. The one of a MeshService that proxies do not know is stored as tcp.
	AppProtocol Protocol `json:"appProtocol,omitempty" schema:"enum=tcp|tls|http|http2|grpc|kafka default=tcp"`
	// SNIs are the server names by which zone proxies select the port: clients use the first, ingresses accept all.
	// (SNI in the resource definition.)
	SNIs []SNI `json:"snis,omitempty" schema:"readonly maxItems=16"`
}

// SNI is one TLS server name of a port.
type SNI struct {
	Value string `json:"value" schema:"maxLength=253"` // a host name
}

// SNI returns the SNI that clients of the port use, or an empty string.
func (p *ServicePort) SNI() string {
	if len(p.SNIs) == 0 {
		return ""
	}
	return p.SNIs[0].Value
}

// PortRef is a number, or the name of an inbound.
type PortRef struct {
	Number uint32
	Name   string
}

// MarshalJSON implements json.Marshaler.
func (p PortRef) MarshalJSON() ([]byte, error) {
	if p.Name != "" {
		return json.Marshal(p.Name)
	}
	return []byte(strconv.Itoa(int(p.Number))), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *PortRef) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &p.Name)
	}
	return json.Unmarshal(raw, &p.Number)
}

// ServiceIdentity is a SPIFFE ID or service tag that a service's servers present.
type ServiceIdentity struct {
	// SpiffeID, or ServiceTag for the older mutual TLS
	Type  string `json:"type" schema:"required enum=ServiceTag|SpiffeID"`
	Value string `json:"value" schema:"required maxLength=2048"` // the name
}

// Kinds of ServiceIdentity.
const (
	ServiceTagIdentity = "ServiceTag"
	SpiffeIdentity     = "SpiffeID"
)

// PortsOf returns the ports of a MeshService or a MeshMultiZoneService, and none for another kind.
func PortsOf(o resource.Any) []ServicePort {
	switch o := o.(type) {
	case *resource.Object[MeshService]:
		return o.Spec.Ports
	case *resource.Object[MeshMultiZoneService]:
		return o.Spec.Ports
	}
	return nil
}

// PortNumbered returns the port of a service with a number.
func PortNumbered(ports []ServicePort, number uint32) (port ServicePort, ok bool) {
	i := slices.IndexFunc(ports, func(p ServicePort) bool { return p.Port == number })
	if i < 0 {
		return ServicePort{}, false
	}
	return ports[i], true
}

// SpiffeIDs returns the SPIFFE IDs among the identities of the service, in their order.
func (s *MeshService) SpiffeIDs() []string {
	var ids []string
	for _, identity := range s.Identities {
		if identity.Type == SpiffeIdentity {
			ids = append(ids, identity.Value)
		}
	}
	return ids
}

// WithPorts returns a copy of a MeshService or MeshMultiZoneService with other ports.
func WithPorts(o resource.Any, ports []ServicePort) resource.Any {
	switch o := o.(type) {
	case *resource.Object[MeshService]:
		changed := *o
		changed.Spec.Ports = ports
		return &changed
	case *resource.Object[MeshMultiZoneService]:
		changed := *o
		changed.Spec.Ports = ports
		return &changed
	}
	return o
}

// defaultMeshService removes the addresses of the zone's ingresses: a client that writes back a resource has them, and
// they may have changed.
func defaultMeshService(o *resource.Object[MeshService]) {
	o.Spec.ZoneIngress = nil
	for i := range o.Spec.Ports {
		o.Spec.Ports[i].AppProtocol = o.Spec.Ports[i].AppProtocol.ServedProtocol()
	}
	defaultPorts(o.Spec.Ports)
}

func defaultPorts(ports []ServicePort) {
	for i := range ports {
		port := &ports[i]
		if port.TargetPort == nil {
			port.TargetPort = &PortRef{Number: port.Port}
		}
		port.AppProtocol = cmp.Or(port.AppProtocol, TCP).normalized()
	}
}

func validateMeshService(o *resource.Object[MeshService], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.serviceSelector("spec.selector", o.Spec.Selector)
	c.servicePorts("spec.ports", o.Spec.Ports)
	return c.problems
}

func (c *checks) serviceSelector(at string, s ServiceSelector) {
	ways := 0
	if s.DataplaneTags != nil {
		ways++
		c.tags(at+".dataplaneTags", s.DataplaneTags)
		if len(s.DataplaneTags) == 0 {
			c.add(at+".dataplaneTags", "has no tag; name at least one")
		}
	}
	if s.DataplaneLabels != nil {
		ways++
		c.labels(at+".dataplaneLabels.matchLabels", s.DataplaneLabels.MatchLabels)
	}
	if s.DataplaneRef != nil {
		ways++
	}
	if ways != 1 {
		c.add(at, "has %d selections, want exactly one of dataplaneTags, dataplaneLabels, dataplaneRef", ways)
	}
}

// servicePorts requires distinct numbers and names. A port's name may be its own number.
func (c *checks) servicePorts(at string, ports []ServicePort) {
	numbers, names := map[uint32]int{}, map[string]int{}
	for i, port := range ports {
		at := fmt.Sprintf("%s[%d]", at, i)
		if c.valid(at + ".port") {
			if j, taken := numbers[port.Port]; taken {
				c.add(at+".port", "%d is the port of spec.ports[%d] too", port.Port, j)
			}
			numbers[port.Port] = i
		}
		if name := port.Name; name != "" && c.valid(at+".name") {
			if name != strconv.Itoa(int(port.Port)) {
				c.sectionName(at+".name", name)
			}
			if j, taken := names[port.Name]; taken {
				c.add(at+".name", "%q is the name of spec.ports[%d] too", port.Name, j)
			}
			names[port.Name] = i
		}
		c.targetPort(at+".targetPort", port.TargetPort, port.Port)
		c.optionalProtocol(at+".appProtocol", port.AppProtocol)
	}
}

// targetPort checks a port, or the name of an inbound. A target equal to the port has been checked already.
func (c *checks) targetPort(field string, target *PortRef, port uint32) {
	switch {
	case target == nil:
	case target.Name == "" && target.Number == port:
	case target.Name != "":
		if problem := resource.SectionProblem(target.Name); problem != "" {
			c.add(field, "%s", problem)
		}
		c.sectionName(field, target.Name)
	default:
		if problem := resource.PortProblem(target.Number); problem != "" {
			c.add(field, "%s", problem)
		}
	}
}

// MeshServices is the kind of [MeshService].
var MeshServices = &resource.Kind[MeshService]{
	Info: resource.Info{
		Name: "MeshService", Plural: "meshservices", ShortName: "msvc", Computed: []string{"snis"},
		Scope: resource.Mesh, Sync: resource.ZoneToGlobal | resource.ZoneToZones,
		WrittenBy: resource.Writer,
	},
	Default:  defaultMeshService,
	Validate: validateMeshService,
}

// GeneratedName returns the name of the MeshService that the control plane generates for a value of kuma.io/service:
// lower case letters, digits and dashes, with a hash where the value differs.
func GeneratedName(tag string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, tag)
	if name = strings.Trim(name, "-"); name == tag && len(name) <= 63 {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(tag))
	return fmt.Sprintf("%s-%08x", strings.Trim(name[:min(len(name), 54)], "-"), h.Sum32())
}

// MeshServiceStatus is the status of a MeshService in a zone.
type MeshServiceStatus struct {
	// VIPs are its virtual IP addresses.
	VIPs []VIP `json:"vips,omitempty"`
	// Addresses are its host names.
	Addresses []Address `json:"addresses,omitempty"`
	// TLS is the mutual TLS status of its servers.
	TLS *TLSStatus `json:"tls,omitempty"`
	// DataplaneProxies is the counts of its servers.
	DataplaneProxies *DataplaneCount `json:"dataplaneProxies,omitempty"`
	// HostnameGenerators are the generators that select the service, by name.
	HostnameGenerators []HostnameGeneratorStatus `json:"hostnameGenerators,omitempty"`
	// Conditions are VIPAssigned (False where no virtual IP is free), EndpointsRetained (while former endpoints of a
	// port are retained because no current one serves yet), MultipleMeshes (while Pods of another mesh are behind the
	// Service of Kubernetes), NamespaceAdmitted (False where the mesh admits no Pod of its namespace) and Accepted
	// (False where a proxy's Envoy rejects the service's configuration).
	Conditions []Condition `json:"conditions,omitempty"`
	// Abandoned is the time at which a generated service lost its last Dataplane.
	Abandoned *Time `json:"abandoned,omitempty"`
}

// NamespaceAdmitted is the condition of a MeshService of Kubernetes that is False where its mesh admits no Pod of its
// namespace.
const NamespaceAdmitted = "NamespaceAdmitted"

// MultipleMeshes is the condition of the MeshService of a Service with Pods of another mesh.
const MultipleMeshes = "MultipleMeshes"

// VIP is a virtual IP address.
type VIP struct {
	IP string `json:"ip"` // the address
}

// Address is a host name of a service.
type Address struct {
	Hostname             string               `json:"hostname"`             // the name
	Origin               string               `json:"origin"`               // the source: HostnameGenerator
	HostnameGeneratorRef HostnameGeneratorRef `json:"hostnameGeneratorRef"` // the generator
}

// HostnameGeneratorRef references a HostnameGenerator.
type HostnameGeneratorRef struct {
	CoreName string `json:"coreName"` // the name of the generator
}

// HostnameGeneratorStatus is the host name that one HostnameGenerator gives a service.
type HostnameGeneratorStatus struct {
	// HostnameGeneratorRef is the generator.
	HostnameGeneratorRef HostnameGeneratorRef `json:"hostnameGeneratorRef"`
	// Hostname is the host name from the template, also where another service has it.
	Hostname string `json:"hostname,omitempty"`
	// Conditions are Generated (whether the service has the host name); the reasons against it are Collision and
	// TemplateError.
	Conditions []Condition `json:"conditions,omitempty"`
}

// TLSStatus is Ready where a service's servers accept mutual TLS, else NotReady.
type TLSStatus struct {
	Status string `json:"status" schema:"enum=Ready|NotReady"` // Ready where they accept mutual TLS
}

// DataplaneCount counts the Dataplanes of a service.
type DataplaneCount struct {
	Connected int `json:"connected"` // Dataplanes that serve
	Healthy   int `json:"healthy"`   // serving Dataplanes that are endpoints
	Total     int `json:"total"`     // all selected Dataplanes
}

// MeshServiceStatuses is the kind of [MeshServiceStatus].
var MeshServiceStatuses = &resource.Kind[MeshServiceStatus]{
	Info: resource.Info{Name: "MeshServiceStatus", Plural: "meshservicestatuses", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true, StatusOf: "MeshService"},
}
