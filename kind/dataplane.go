package kind

import (
	"cmp"
	"slices"
	"strconv"

	"weft/resource"
)

// Dataplane is one proxy: the ports of its application, and the services that the application calls.
type Dataplane struct {
	Networking Networking `json:"networking"` // addresses, ports and roles of the proxy
}

// Networking has the addresses, ports and roles of a [Dataplane].
type Networking struct {
	// Address is the IP address of the machine, or a host name that resolves to it. It is the default of every inbound.
	Address string `json:"address,omitempty" schema:"host"`
	// Inbound are the ports of the application that clients may reach.
	Inbound []Inbound `json:"inbound,omitempty" schema:"maxItems=256"`
	// Outbound are the destinations that the application reaches at addresses of its own machine.
	Outbound []Outbound `json:"outbound,omitempty" schema:"maxItems=1024"`
	// ZoneIngress makes the proxy a zone ingress, by which other zones reach the services of the mesh here.
	// (Mesh Scoped Zone Ingress and Zone Egress.)
	ZoneIngress *ZoneIngressSection `json:"zoneIngress,omitempty"`
	// ZoneEgress makes the proxy a zone egress to external services and, with routing.zoneEgress of the Mesh, to other
	// zones. (Mesh Scoped Zone Ingress and Zone Egress.)
	ZoneEgress *ZoneEgressSection `json:"zoneEgress,omitempty"`
	// TransparentProxying is present where the machine redirects connections to the proxy.
	TransparentProxying *TransparentProxying `json:"transparentProxying,omitempty"`
	// Admin is Envoy's administration interface.
	Admin *Admin `json:"admin,omitempty"`
}

// ZoneIngressSection has the listener address of a zone ingress, and the address that other zones dial.
type ZoneIngressSection struct {
	Address string `json:"address" schema:"required ip" missing:"the IP address that its proxy listens on"` // the listener of the proxy
	Port    uint32 `json:"port" schema:"required port"`                                                     // the listener of the proxy
	// the IP address or host name that other zones dial
	AdvertisedAddress string `json:"advertisedAddress" schema:"required host" missing:"the IP address or host name that other zones dial"`
	AdvertisedPort    uint32 `json:"advertisedPort" schema:"required port"` // the port that other zones dial
	// the sectionName in policies; by default the port
	Name string `json:"name,omitempty" schema:"pattern=section"`
}

// Listener returns "address:port".
func (z *ZoneIngressSection) Listener() string {
	return HostPort(z.Address, z.Port)
}

// SameAddress reports whether other zones dial the same address for both.
func (z *ZoneIngressSection) SameAddress(other *ZoneIngressSection) bool {
	return z.AdvertisedAddress == other.AdvertisedAddress && z.AdvertisedPort == other.AdvertisedPort
}

// ZoneEgressSection has the listener address of a zone egress, which the proxies of its zone dial.
type ZoneEgressSection struct {
	Address string `json:"address" schema:"required ip" missing:"the IP address that its proxy listens on"` // the listener of the proxy
	Port    uint32 `json:"port" schema:"required port"`                                                     // the listener of the proxy
	Name    string `json:"name,omitempty" schema:"pattern=section"`                                         // the sectionName in policies; by default the port
}

// Listener returns "address:port".
func (z *ZoneEgressSection) Listener() string {
	return HostPort(z.Address, z.Port)
}

// InboundState is the state that the owner gives an inbound. The control plane never changes it. (Adding inbounds in
// runtime.)
type InboundState string

// The states of an inbound.
const (
	Ready    InboundState = "Ready"    // listener and SPIFFE IDs; endpoint once it serves
	NotReady InboundState = "NotReady" // listener and SPIFFE IDs, no endpoint
	Ignored  InboundState = "Ignored"  // SPIFFE IDs only
)

// Inbound is one port of the application that clients may reach.
type Inbound struct {
	// Port is the port that clients dial.
	Port uint32 `json:"port" schema:"required port"`
	// Address is the listener address of the proxy; by default networking.address.
	Address string `json:"address,omitempty" schema:"ip"`
	// ServicePort is the port of the application; by default the inbound's port.
	ServicePort uint32 `json:"servicePort,omitempty" schema:"port"`
	// ServiceAddress is the address of the application; by default the inbound's address with transparentProxying, else
	// 127.0.0.1.
	ServiceAddress string `json:"serviceAddress,omitempty" schema:"ip"`
	// Name is the name in targetPort of services and in sectionName of policies; by default the port.
	Name string `json:"name,omitempty" schema:"pattern=section"`
	// Protocol is the protocol of the application; by default the value of the tag kuma.io/protocol, else tcp.
	Protocol Protocol `json:"protocol,omitempty" schema:"enum=tcp|tls|http|http2|grpc|kafka"`
	// Tags are the tags that selectors of services match.
	Tags map[string]string `json:"tags,omitempty" schema:"tags"`
	// State is Ready (an endpoint once the proxy serves it), NotReady (no endpoint) or Ignored (no service and no
	// policy selects it). The owner sets it.
	State InboundState `json:"state,omitempty" schema:"enum=Ready|NotReady|Ignored default=Ready"`
	// Health is the older form of the state; it is read where the state is absent.
	Health *Health `json:"health,omitempty" schema:"deprecated"`
	// Healthy is another spelling of health; it is read and never written. (Adding inbounds in runtime.)
	Healthy *Health `json:"healthy,omitempty" schema:"deprecated"`
	// ServiceProbe is the health probe of the application by weft-dp.
	ServiceProbe *ServiceProbe `json:"serviceProbe,omitempty"`
}

// Health is the older form of an inbound's state; it is read where State is absent.
type Health struct {
	Ready   *bool `json:"ready,omitempty"`   // false means NotReady
	Healthy *bool `json:"healthy,omitempty"` // an older spelling of ready
}

// ServiceProbe is the health probe of an application by the agent.
type ServiceProbe struct {
	// Interval is the time between probes, 100ms to 1h.
	Interval *Duration `json:"interval,omitempty" schema:"min=100ms max=1h default=1s"`
	// Timeout is the timeout of one probe, 10ms to 1h.
	Timeout *Duration `json:"timeout,omitempty" schema:"min=10ms max=1h default=1s"`
	// UnhealthyThreshold is the number of consecutive failures after which the inbound is no endpoint.
	UnhealthyThreshold *uint32 `json:"unhealthyThreshold,omitempty" schema:"min=1 max=1000 default=3"`
	// HealthyThreshold is the number of consecutive successes after which the inbound is an endpoint again.
	HealthyThreshold *uint32 `json:"healthyThreshold,omitempty" schema:"min=1 max=1000 default=1"`
	// TCP is the TCP connect probe, the only type.
	TCP *TCPProbe `json:"tcp,omitempty"`
}

// TCPProbe is a TCP connect probe.
type TCPProbe struct{}

// Outbound is one destination that the application reaches at an address of its own machine.
type Outbound struct {
	// the address or port that the application dials
	Address string `json:"address,omitempty" schema:"ip default=127.0.0.1"`
	Port    uint32 `json:"port" schema:"required port"` // the address or port that the application dials
	// kuma.io/service is the destination, where backendRef is absent
	Tags       map[string]string `json:"tags,omitempty" schema:"tags"`
	BackendRef *BackendRef       `json:"backendRef,omitempty"` // the destination and its port
}

// EffectiveAddress returns the listener address of the outbound, 127.0.0.1 by default.
func (out *Outbound) EffectiveAddress() string {
	if out.Address == "" {
		return "127.0.0.1"
	}
	return out.Address
}

// BackendRef references a destination.
type BackendRef struct {
	// the kind or port of the destination
	Kind   string            `json:"kind" schema:"required enum=MeshService|MeshMultiZoneService|MeshExternalService"`
	Name   string            `json:"name,omitempty" schema:"pattern=name"` // the name of one destination
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`     // the labels of the destinations
	Port   uint32            `json:"port,omitempty" schema:"port"`         // the kind or port of the destination
}

// TransparentProxying describes the redirection of the machine's connections to the proxy.
type TransparentProxying struct {
	// RedirectPortInbound is the proxy port for incoming connections.
	RedirectPortInbound uint32 `json:"redirectPortInbound,omitempty" schema:"port default=15006"`
	// RedirectPortOutbound is the proxy port for outgoing connections.
	RedirectPortOutbound uint32 `json:"redirectPortOutbound,omitempty" schema:"port default=15001"`
	// IPFamilyMode is the set of redirected IP families.
	IPFamilyMode string `json:"ipFamilyMode,omitempty" schema:"enum=DualStack|IPv4|IPv6 default=DualStack"`
	// ReachableServices are the values of kuma.io/service that the application calls; by default all.
	ReachableServices []string `json:"reachableServices,omitempty" schema:"maxItems=4096 maxLength=253"`
	// ReachableBackends are the services that the application calls; by default all.
	ReachableBackends *ReachableBackends `json:"reachableBackends,omitempty"`
}

// ReachableBackends restricts the destinations for which a proxy gets configuration.
type ReachableBackends struct {
	Refs []BackendRef `json:"refs,omitempty" schema:"maxItems=4096"` // the services; an empty list reaches none
}

// AdminAddress is the address of Envoy's administration interface.
const AdminAddress = "127.0.0.1"

// Admin is Envoy's administration interface.
type Admin struct {
	Port uint32 `json:"port,omitempty" schema:"port"` // the port on 127.0.0.1; absent: a unix socket
}

// Tags and labels with a meaning.
const (
	ServiceTag     = "kuma.io/service"
	ProtocolTag    = "kuma.io/protocol"
	ZoneLabel      = resource.ZoneLabel
	OriginLabel    = "kuma.io/origin"
	EnvLabel       = "kuma.io/env"
	DisplayName    = resource.DisplayName
	WorkloadLabel  = "kuma.io/workload"
	NamespaceLabel = resource.NamespaceLabel
	ProxyTypeLabel = "kuma.io/proxy-type" // sidecar, zoneingress or zoneegress
	// ServiceNameTag and InstanceTag are the Service of Kubernetes that an inbound is for and, of a headless one, its
	// Pod.
	ServiceNameTag = "k8s.kuma.io/service-name"
	InstanceTag    = "kuma.io/instance"
	ManagedBy      = "kuma.io/managed-by" // the value GeneratedBy marks resources that the control plane generated
	GeneratedBy    = "weft"
)

// Effective returns the inbound with the defaults of its Dataplane. The control plane uses effective inbounds and
// stores the inbound as the user wrote it.
func (n *Networking) Effective(in Inbound) Inbound {
	if in.Address == "" {
		in.Address = n.Address
	}
	if in.ServicePort == 0 {
		in.ServicePort = in.Port
	}
	if in.ServiceAddress == "" {
		in.ServiceAddress = "127.0.0.1"
		if n.TransparentProxying != nil {
			in.ServiceAddress = in.Address
		}
	}
	if in.Name == "" {
		in.Name = strconv.Itoa(int(in.Port))
	}
	if in.Protocol == "" {
		in.Protocol = Protocol(in.Tags[ProtocolTag])
	}
	in.Protocol = in.Protocol.ServedProtocol()
	if in.State == "" {
		in.State = Ready
		if h := in.Health; h != nil && (h.Ready != nil && !*h.Ready || h.Healthy != nil && !*h.Healthy) {
			in.State = NotReady
		}
	}
	return in
}

// Listener returns "address:port", which identifies a listener. Several inbounds may share a listener.
func (in *Inbound) Listener() string {
	return HostPort(in.Address, in.Port)
}

// Section returns "address:port/name", which identifies an inbound, also where inbounds share a listener.
func (in *Inbound) Section() string { return in.Listener() + "/" + in.Name }

// Dataplanes is the kind of [Dataplane].
var Dataplanes = &resource.Kind[Dataplane]{
	Info: resource.Info{
		Name: "Dataplane", Plural: "dataplanes", ShortName: "dp", Scope: resource.Mesh, Sync: resource.ZoneToGlobal,
		Flat: true, MaxBytes: 256 << 10,
		WrittenBy: resource.Writer,
		Replaced: map[string]string{
			"networking.gateway": "has no meaning here: for a delegated gateway write a Dataplane without inbounds, " +
				"with the label kuma.io/workload in place of the tag kuma.io/service; " +
				"there are no built-in gateways; between zones use networking.zoneIngress",
			"networking.listeners": "has no meaning here; use networking.zoneIngress " +
				"and networking.zoneEgress",
			"networking.advertisedAddress": "has no meaning here; use " +
				"networking.zoneIngress.advertisedAddress",
			"networking.transparentProxying.directAccessServices": "is not served by this release; list the " +
				"destination in reachableBackends",
			"networking.transparentProxying.reachableBackends.refs.namespace": "has no meaning here; use labels",
			"probes":  "has no meaning here; use serviceProbe of the inbound",
			"metrics": "has no effect: " + noMetricsYet,
		},
	},
	Default:  defaultDataplane,
	Validate: validateDataplane,
}

// defaultDataplane removes the label with the type of the proxy, which its sections state. It normalises protocols, and
// Health to one spelling; Health without a value means not ready. Tags stay as written, since services select by them.
func defaultDataplane(o *resource.Object[Dataplane]) {
	delete(o.Labels, ProxyTypeLabel)
	for i := range o.Spec.Networking.Inbound {
		in := &o.Spec.Networking.Inbound[i]
		in.Protocol = in.Protocol.normalized()
		if in.Health == nil {
			in.Health, in.Healthy = in.Healthy, nil
		}
		if h := in.Health; h != nil && h.Ready == nil && h.Healthy == nil {
			in.Health = &Health{Ready: new(bool)}
		}
	}
}

// DataplaneListenerStatus is the listener status of a proxy. The replica that holds the agent's session stores it
// whenever it changes. It is a row of its own, so that a change affects only the derived values that read endpoints.
type DataplaneListenerStatus struct {
	// Run is the id of the agent's process that reported. A new process begins without ready listeners. Empty for a
	// proxy without an agent.
	Run string `json:"run,omitempty"`
	// Inbounds are the ready inbounds. An inbound that is no longer in the Dataplane drains: its listener stays until
	// no client uses it, and is then removed from this list.
	Inbounds []ServedInbound `json:"inbounds,omitempty"`
	// Ingresses are the ready listeners of the zone ingress. A listener that is no longer in the Dataplane drains.
	Ingresses []ZoneIngressSection `json:"ingresses,omitempty"`
	// Egresses are the ready listeners of the zone egress. A listener that is no longer in the Dataplane drains.
	Egresses []ServedEgress `json:"egresses,omitempty"`
	// Registered states that the agent wrote the Dataplane, which is deleted when its lease expires.
	Registered bool `json:"registered,omitempty"`
	// Token is the ID of the token that registered it.
	Token string `json:"token,omitempty"`
	// Sources are where the last session of the proxy came from, IP addresses and networks. They vouch for the
	// addresses of its inbounds. A connection from the machine of the control plane has all addresses of that machine.
	Sources []string `json:"sources,omitempty"`
	// IPFamilies are the IP families of the proxy's machine; empty: not known.
	IPFamilies IPFamilies `json:"ipFamilies,omitempty"`
	// Draining states that the proxy drains before it stops: none of its inbounds is an endpoint.
	Draining bool `json:"draining,omitempty"`
}

// Has reports whether the proxy serves a listener, by its address and port.
func (s *DataplaneListenerStatus) Has(listener string) bool {
	return slices.ContainsFunc(s.Inbounds, func(in ServedInbound) bool { return in.Listener() == listener }) ||
		slices.ContainsFunc(s.Ingresses, func(l ZoneIngressSection) bool { return l.Listener() == listener }) ||
		slices.ContainsFunc(s.Egresses, func(l ServedEgress) bool { return l.Listener() == listener })
}

// ServedInbound is one inbound that a proxy serves.
type ServedInbound struct {
	Inbound
	// Serial is the serial number of the certificate that the port presented; empty for a plaintext inbound.
	Serial string `json:"serial,omitempty"`
	// SpiffeIDs are the SPIFFE IDs in that certificate, or none where the agent does not report them.
	SpiffeIDs []string `json:"spiffeIDs,omitempty"`
	// AlsoPlaintext is the time since which the inbound accepts mutual TLS beside plaintext, until every client uses
	// mutual TLS. Zero: it accepts only one of the two.
	AlsoPlaintext Time `json:"alsoPlaintext,omitzero"`
	// Unhealthy states that the application fails its probe.
	Unhealthy bool `json:"unhealthy,omitempty"`
}

// ServedEgress is a listener that a zone egress serves.
type ServedEgress struct {
	ZoneEgressSection
	// Serial is the serial number of the certificate that the port presented.
	Serial string `json:"serial,omitempty"`
}

// DataplaneListenerStatuses is the kind of [DataplaneListenerStatus].
var DataplaneListenerStatuses = &resource.Kind[DataplaneListenerStatus]{
	Info: resource.Info{Name: "DataplaneListenerStatus", Plural: "dataplane-listener-statuses", Scope: resource.Mesh,
		ReadOnly: true, Hidden: true},
}

// DataplaneInsight is the connection status of a proxy.
type DataplaneInsight struct {
	// the proxy's connections, the latest last
	Subscriptions []Subscription `json:"subscriptions,omitempty" schema:"maxItems=64"`
	// the listeners that serve, such as 10.0.0.1:8080
	ReadyListeners []string `json:"readyListeners,omitempty" schema:"maxItems=512 maxLength=64"`
	// the resources that its Envoy rejected (NACKs)
	NACKs []NACK `json:"nacks,omitempty" schema:"maxItems=1024"`
	// Exceptions are the policies that the proxy does not get, since its Envoy rejects a resource with them, and those
	// that were left out in vain. A write of the policy ends its exception.
	Exceptions  []Exception  `json:"exceptions,omitempty" schema:"maxItems=64"`
	Certificate *Certificate `json:"certificate,omitempty"` // the last issued certificate
	// MTLS is the same certificate in the shape that clients of Kuma read. It is computed on reading, and not stored.
	MTLS *ProxyMTLS `json:"mTLS,omitempty"`
	// NotAdmitted is the reason why the mesh does not admit the proxy, computed on reading; absent where the mesh
	// admits it.
	NotAdmitted string `json:"notAdmitted,omitempty" schema:"maxLength=4096"`
	// CertificateProblem is the reason why the proxy gets no certificate: SPIRE issues none or, computed on reading,
	// the proxy has no SPIFFE ID.
	CertificateProblem string `json:"certificateProblem,omitempty" schema:"maxLength=4096"`
	// ServiceProblem is the reason why no MeshService is generated for a kuma.io/service tag of its inbounds, computed
	// on reading; absent where each tag has one.
	ServiceProblem string `json:"serviceProblem,omitempty" schema:"maxLength=4096"`
}

// Subscription is one connection of a proxy to one replica of the control plane.
type Subscription struct {
	ID                     string `json:"id" schema:"maxLength=253"`                     // the id of the connection
	ControlPlaneInstanceID string `json:"controlPlaneInstanceId" schema:"maxLength=253"` // the id of the replica
	ConnectTime            Time   `json:"connectTime"`                                   // the start of the connection
	// the end of the connection; absent while it is open
	DisconnectTime *Time `json:"disconnectTime,omitempty"`
	// Version is the versions of the proxy's programs.
	Version *ProxyVersion `json:"version,omitempty"`
	// Status is the counts of responses on this connection. The replica that holds the connection computes it on
	// reading; it is not stored.
	Status *SubscriptionStatus `json:"status,omitempty"`
}

// ProxyVersion has the versions of the programs of a proxy.
type ProxyVersion struct {
	Envoy ProgramVersion `json:"envoy"` // the version that Envoy states
	// Agent is the version of weft-dp, in the field that clients of Kuma read; absent: Envoy runs without weft-dp.
	Agent *ProgramVersion `json:"kumaDp,omitempty"`
}

// Text returns the version of Envoy, or an empty string.
func (v *ProxyVersion) Text() string {
	if v == nil {
		return ""
	}
	return v.Envoy.Version
}

// AgentText returns the version of weft-dp, or an empty string.
func (v *ProxyVersion) AgentText() string {
	if v == nil || v.Agent == nil {
		return ""
	}
	return v.Agent.Version
}

// ProgramVersion is the version of one program.
type ProgramVersion struct {
	Version string `json:"version" schema:"maxLength=253"` // such as 1.40.0
}

// VersionOfEnvoy returns the version of a proxy without weft-dp, or nil for an empty version.
func VersionOfEnvoy(version string) *ProxyVersion {
	if version == "" {
		return nil
	}
	return &ProxyVersion{Envoy: ProgramVersion{version}}
}

// VersionOfAgent returns the version of a proxy with weft-dp. Empty versions are unknown.
func VersionOfAgent(envoy, agent string) *ProxyVersion {
	if agent == "" {
		return VersionOfEnvoy(envoy)
	}
	return &ProxyVersion{ProgramVersion{envoy}, &ProgramVersion{agent}}
}

// SubscriptionStatus counts the responses of one connection.
type SubscriptionStatus struct {
	LastUpdateTime *Time          `json:"lastUpdateTime,omitempty"` // the time of the last acked response
	Total          ResponseCounts `json:"total"`                    // the counts of all types
}

// ResponseCounts counts responses of a control plane.
type ResponseCounts struct {
	Sent         uint64 `json:"responsesSent"`         // responses sent to the client
	Acknowledged uint64 `json:"responsesAcknowledged"` // responses that the client acked or rejected
	Rejected     uint64 `json:"responsesRejected"`     // responses that the client acked or rejected
}

// ProxyMTLS is the certificate of a proxy in the shape that clients of Kuma read.
type ProxyMTLS struct {
	CertificateExpirationTime Time `json:"certificateExpirationTime"` // the expiry
	// the start of the validity
	LastCertificateRegeneration Time `json:"lastCertificateRegeneration"`
	// the MeshIdentity, or the backend of the mesh's mtls
	IssuedBackend     string   `json:"issuedBackend" schema:"maxLength=253"`
	SupportedBackends []string `json:"supportedBackends" schema:"maxItems=1 maxLength=253"` // the same as issuedBackend
}

// NACK is a resource that Envoy rejected, with Envoy's error.
type NACK struct {
	Type    string `json:"type" schema:"maxLength=64"`       // the xDS type of the resource
	Name    string `json:"name" schema:"maxLength=1024"`     // of the resource
	Version string `json:"version" schema:"maxLength=253"`   // of the resource
	Message string `json:"message" schema:"maxLength=16384"` // the error of Envoy
	Time    Time   `json:"time"`                             // the time of the NACK
	// Listener is the address and port of the proxy's listener that is rejected, itself or with what only it refers to,
	// such as 10.0.0.1:8080. It serves with its earlier version, if Envoy has accepted one. Absent: no such listener.
	Listener string `json:"listener,omitempty" schema:"maxLength=64"`
	// Causes are the mesh resources that it was generated from; empty: the Dataplane alone.
	Causes []Cause `json:"causes,omitempty" schema:"maxItems=1024"`
}

// BlocksStart reports whether a proxy that starts is not ready without the resource: its applications would get errors.
func (n *NACK) BlocksStart() bool { return n.Type == "listener" || n.Type == "route" }

// Cause references a resource.
type Cause struct {
	Kind string `json:"kind" schema:"maxLength=64"`  // of the resource
	Name string `json:"name" schema:"maxLength=253"` // of the resource
	// the mesh of the resource, for a proxy that serves several; by default the mesh of the proxy
	Mesh string `json:"mesh,omitempty" schema:"maxLength=63"`
}

// Key returns the key of the resource, for a proxy of a mesh.
func (c *Cause) Key(mesh string) resource.Key {
	return resource.Key{Kind: c.Kind, Mesh: cmp.Or(c.Mesh, mesh), Name: c.Name}
}

// MaxExceptions is the maximum number of exceptions of a proxy.
const MaxExceptions = 16

// Exception is a policy without which a proxy gets its configuration, or was sent it in vain.
type Exception struct {
	Policy Cause `json:"policy"` // the policy
	// PolicyVersion is the version of the policy. The exception is about no other version.
	PolicyVersion string `json:"policyVersion" schema:"maxLength=253"`
	Type          string `json:"type" schema:"maxLength=64"`       // the xDS type of the rejected resource
	Name          string `json:"name" schema:"maxLength=1024"`     // of the rejected resource
	Message       string `json:"message" schema:"maxLength=16384"` // the error of Envoy
	Time          Time   `json:"time"`                             // the time of the exception
	// State is whether the proxy is without the policy: Alone (without this one), Joint (without all policies that may
	// be the cause of the rejection), Tried and Ended (with it, since Envoy rejects the resource without it too).
	State string `json:"state" schema:"enum=Alone|Joint|Tried|Ended"`
}

// States of an [Exception].
const (
	ExceptionAlone = "Alone" // the policy is left out, and no other one because of the same resource
	ExceptionJoint = "Joint" // it is left out with all others that may be the cause
	ExceptionTried = "Tried" // it was left out alone, and the resource was rejected
	ExceptionEnded = "Ended" // all were left out, and the resource was rejected: none is the cause
)

// Equal reports whether two exceptions are the same.
func (e Exception) Equal(other Exception) bool {
	same := e.Time.Equal(other.Time.Time)
	e.Time = other.Time
	return same && e == other
}

// Excludes reports whether the proxy is without the policy.
func (e *Exception) Excludes() bool { return e.State == ExceptionAlone || e.State == ExceptionJoint }

// IsConnected reports whether a subscription is open.
func (i *DataplaneInsight) IsConnected() bool {
	return slices.ContainsFunc(i.Subscriptions, func(s Subscription) bool { return s.DisconnectTime == nil })
}

// Certificate is the last workload certificate of a proxy.
type Certificate struct {
	// the SPIFFE ID, the first where there are several
	SpiffeID string   `json:"spiffeID" schema:"maxLength=2048"`
	Further  []string `json:"further,omitempty" schema:"maxItems=512 maxLength=2048"` // the other SPIFFE IDs, sorted
	Serial   string   `json:"serial" schema:"maxLength=64"`                           // the serial number
	// the MeshIdentity, or the backend of the mesh's mtls
	Issuer     string `json:"issuer" schema:"maxLength=253"`
	NotBefore  Time   `json:"notBefore"`  // the start of the validity
	Expiration Time   `json:"expiration"` // the expiry
}

// DataplaneInsights is the kind of [DataplaneInsight].
var DataplaneInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "DataplaneInsight", Plural: "dataplane-insights", Aliases: []string{"dataplaneinsights"},
		Scope: resource.Mesh, Sync: resource.ZoneToGlobal, Flat: true, ReadOnly: true},
}

// IsChanging reports whether an inbound accepts both mutual TLS and plaintext.
func (s *DataplaneListenerStatus) IsChanging() bool {
	return slices.ContainsFunc(s.Inbounds, func(in ServedInbound) bool { return !in.AlsoPlaintext.IsZero() })
}

// Remove removes listeners, by "address:port", and inbounds, by their [Inbound.Section]. It reports whether it removed
// any.
func (s *DataplaneListenerStatus) Remove(gone []string) bool {
	before := len(s.Inbounds) + len(s.Ingresses) + len(s.Egresses)
	s.Inbounds = slices.DeleteFunc(slices.Clone(s.Inbounds), func(in ServedInbound) bool {
		return slices.Contains(gone, in.Listener()) || slices.Contains(gone, in.Section())
	})
	s.Ingresses = slices.DeleteFunc(slices.Clone(s.Ingresses), func(z ZoneIngressSection) bool {
		return slices.Contains(gone, z.Listener())
	})
	s.Egresses = slices.DeleteFunc(slices.Clone(s.Egresses), func(z ServedEgress) bool {
		return slices.Contains(gone, z.Listener())
	})
	return len(s.Inbounds)+len(s.Ingresses)+len(s.Egresses) != before
}
