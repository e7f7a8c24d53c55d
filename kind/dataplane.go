package kind

import (
	"net"
	"slices"
	"strconv"

	"weft/resource"
)

// Dataplane is one proxy: where it listens for its application and what the application dials.
type Dataplane struct {
	Networking Networking `json:"networking"` // where it stands in the network
}

// Networking is the network side of a [Dataplane].
type Networking struct {
	// Address is the machine's, for every inbound without one.
	Address string `json:"address,omitempty" schema:"ip"`
	// Inbound are the ports of the application that others may reach.
	Inbound []Inbound `json:"inbound,omitempty" schema:"maxItems=256"`
	// Outbound are the destinations that it reaches at addresses of its own machine.
	Outbound []Outbound `json:"outbound,omitempty" schema:"maxItems=1024"`
	// ZoneIngress makes the proxy a door of its zone, by which other zones reach the services of the mesh here.
	// (Mesh Scoped Zone Ingress and Zone Egress.)
	ZoneIngress *ZoneIngressSection `json:"zoneIngress,omitempty"`
	// ZoneEgress makes the proxy a way out of its zone: to external services and, where the mesh says so, to other
	// zones. (Mesh Scoped Zone Ingress and Zone Egress.)
	ZoneEgress *ZoneEgressSection `json:"zoneEgress,omitempty"`
	// TransparentProxying is there where the machine redirects connections to the proxy.
	TransparentProxying *TransparentProxying `json:"transparentProxying,omitempty"`
	// Admin is Envoy's administration interface.
	Admin *Admin `json:"admin,omitempty"`
}

// ZoneIngressSection is where a zone ingress listens, and where other zones dial it.
type ZoneIngressSection struct {
	Address           string `json:"address" schema:"required ip"`            // where its proxy listens
	Port              uint32 `json:"port" schema:"required port"`             // where its proxy listens
	AdvertisedAddress string `json:"advertisedAddress" schema:"required ip"`  // where other zones dial it
	AdvertisedPort    uint32 `json:"advertisedPort" schema:"required port"`   // where other zones dial it
	Name              string `json:"name,omitempty" schema:"pattern=section"` // how policies call it; by default the port
}

// Listener answers "address:port".
func (z *ZoneIngressSection) Listener() string {
	return net.JoinHostPort(z.Address, strconv.Itoa(int(z.Port)))
}

// SameDoor says whether other zones dial both at the same address.
func (z *ZoneIngressSection) SameDoor(other *ZoneIngressSection) bool {
	return z.AdvertisedAddress == other.AdvertisedAddress && z.AdvertisedPort == other.AdvertisedPort
}

// ZoneEgressSection is where a zone egress listens, and where the proxies of its zone dial it.
type ZoneEgressSection struct {
	Address string `json:"address" schema:"required ip"`            // where its proxy listens
	Port    uint32 `json:"port" schema:"required port"`             // where its proxy listens
	Name    string `json:"name,omitempty" schema:"pattern=section"` // how policies call it; by default the port
}

// Listener answers "address:port".
func (z *ZoneEgressSection) Listener() string {
	return net.JoinHostPort(z.Address, strconv.Itoa(int(z.Port)))
}

// InboundState is what the owner says of an inbound. The control plane never rewrites it.
// (Adding inbounds in runtime.)
type InboundState string

const (
	Ready    InboundState = "Ready"    // listener, certificate names, endpoints once it serves
	NotReady InboundState = "NotReady" // listener and certificate names, no endpoint
	Ignored  InboundState = "Ignored"  // certificate names only
)

// Inbound is one port of the application that others may reach.
type Inbound struct {
	// Port is what clients dial.
	Port uint32 `json:"port" schema:"required port"`
	// Address is where the proxy listens; by default networking.address.
	Address string `json:"address,omitempty" schema:"ip"`
	// ServicePort is where the application listens; by default the port.
	ServicePort uint32 `json:"servicePort,omitempty" schema:"port"`
	// ServiceAddress is where the application listens; by default the inbound's address with
	// transparentProxying, else 127.0.0.1.
	ServiceAddress string `json:"serviceAddress,omitempty" schema:"ip"`
	// Name is how services and policies call it; by default the port.
	Name string `json:"name,omitempty" schema:"pattern=section"`
	// Protocol is what the application speaks; by default what the tag kuma.io/protocol says, else tcp.
	Protocol Protocol `json:"protocol,omitempty" schema:"enum=tcp|tls|http|http2|grpc|kafka"`
	// Tags are matched by the selectors of services.
	Tags map[string]string `json:"tags,omitempty" schema:"tags"`
	// State is what the owner says: Ready for an endpoint once the proxy serves it, NotReady for none, Ignored
	// for an inbound that no service and no policy sees.
	State InboundState `json:"state,omitempty" schema:"enum=Ready|NotReady|Ignored default=Ready"`
	// Health is the older form of the state; it is read where that is absent.
	Health *Health `json:"health,omitempty" schema:"deprecated"`
	// Healthy is another spelling of health; it is read and never written. (Adding inbounds in runtime.)
	Healthy *Health `json:"healthy,omitempty" schema:"deprecated"`
	// ServiceProbe says how weft-dp finds out whether the application lives.
	ServiceProbe *ServiceProbe `json:"serviceProbe,omitempty"`
}

// Health is the older form of an inbound's state; read where State is absent.
type Health struct {
	Ready   *bool `json:"ready,omitempty"`   // false means NotReady
	Healthy *bool `json:"healthy,omitempty"` // the same, older still
}

// ServiceProbe says how the agent finds out whether the application lives.
type ServiceProbe struct {
	// Interval is the time between probes, 100ms to 1h.
	Interval Duration `json:"interval,omitempty" schema:"default=1s"`
	// Timeout is how long one may take, 10ms to 1h.
	Timeout Duration `json:"timeout,omitempty" schema:"default=1s"`
	// UnhealthyThreshold is how many must fail in a row until the inbound is no endpoint.
	UnhealthyThreshold uint32 `json:"unhealthyThreshold,omitempty" schema:"max=1000 default=3"`
	// HealthyThreshold is how many must succeed in a row until it is one again.
	HealthyThreshold uint32 `json:"healthyThreshold,omitempty" schema:"max=1000 default=1"`
	// TCP connects, which is the only probe there is.
	TCP *TCPProbe `json:"tcp,omitempty"`
}

// TCPProbe is a probe that connects.
type TCPProbe struct{}

// Outbound is one destination that the application reaches at an address of its own machine.
type Outbound struct {
	Address    string            `json:"address,omitempty" schema:"ip default=127.0.0.1"` // where the application dials
	Port       uint32            `json:"port" schema:"required port"`                     // where the application dials
	Tags       map[string]string `json:"tags,omitempty" schema:"tags"`                    // kuma.io/service names the destination, where there is no backendRef
	BackendRef *BackendRef       `json:"backendRef,omitempty"`                            // the destination and its port
}

// EffectiveAddress answers the address at which the outbound listens.
func (out *Outbound) EffectiveAddress() string {
	if out.Address == "" {
		return "127.0.0.1"
	}
	return out.Address
}

// BackendRef names a destination.
type BackendRef struct {
	Kind   string            `json:"kind" schema:"required enum=MeshService|MeshMultiZoneService|MeshExternalService"` // of the destination
	Name   string            `json:"name,omitempty" schema:"pattern=name"`                                             // of the one destination
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`                                                 // of the destinations
	Port   uint32            `json:"port,omitempty" schema:"port"`                                                     // of the destination
}

// TransparentProxying says that the machine redirects connections to the proxy.
type TransparentProxying struct {
	// RedirectPortInbound is where what comes in is redirected to.
	RedirectPortInbound uint32 `json:"redirectPortInbound,omitempty" schema:"port default=15006"`
	// RedirectPortOutbound is where what goes out is redirected to.
	RedirectPortOutbound uint32 `json:"redirectPortOutbound,omitempty" schema:"port default=15001"`
	// IPFamilyMode says for which addresses.
	IPFamilyMode string `json:"ipFamilyMode,omitempty" schema:"enum=DualStack|IPv4|IPv6 default=DualStack"`
	// ReachableServices are the values of kuma.io/service that the application dials; by default all.
	ReachableServices []string `json:"reachableServices,omitempty" schema:"maxItems=4096 maxLength=253"`
	// ReachableBackends are the services that the application dials; by default all.
	ReachableBackends *ReachableBackends `json:"reachableBackends,omitempty"`
}

// ReachableBackends restricts what a proxy gets configuration for.
type ReachableBackends struct {
	Refs []BackendRef `json:"refs,omitempty" schema:"maxItems=4096"` // none: nothing is reached
}

// adminAddress is where Envoy's administration interface listens.
const adminAddress = "127.0.0.1"

// Admin is Envoy's administration interface.
type Admin struct {
	Port uint32 `json:"port,omitempty" schema:"port"` // on 127.0.0.1
}

// Tags and labels that have a meaning.
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
	ManagedBy      = "kuma.io/managed-by" // the value GeneratedBy marks what the control plane made
	GeneratedBy    = "weft"
)

// Effective answers the inbound with every default of its Dataplane filled in. The control plane works
// with effective inbounds and stores what the user wrote.
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
	if in.Protocol == "" {
		in.Protocol = TCP
	}
	if in.State == "" {
		in.State = Ready
		if h := in.Health; h != nil && (h.Ready != nil && !*h.Ready || h.Healthy != nil && !*h.Healthy) {
			in.State = NotReady
		}
	}
	return in
}

// Listener answers "address:port", by which a listener is known. Several inbounds may share one.
func (in *Inbound) Listener() string {
	return net.JoinHostPort(in.Address, strconv.Itoa(int(in.Port)))
}

// Section answers "address:port/name", which tells apart what shares a listener and policies tell apart.
func (in *Inbound) Section() string { return in.Listener() + "/" + in.Name }

// Dataplanes is the kind of [Dataplane].
var Dataplanes = &resource.Kind[Dataplane]{
	Info: resource.Info{
		Name: "Dataplane", Plural: "dataplanes", ShortName: "dp", Scope: resource.Mesh, Sync: resource.ZoneToGlobal, Flat: true, MaxBytes: 256 << 10,
		Replaced: map[string]string{
			"networking.gateway":                                  "has no meaning here; use networking.zoneIngress, or an Envoy Gateway in front of the mesh",
			"networking.listeners":                                "has no meaning here; use networking.zoneIngress and networking.zoneEgress",
			"networking.advertisedAddress":                        "has no meaning here; use networking.zoneIngress.advertisedAddress",
			"networking.transparentProxying.directAccessServices": "is not served by this release; list the destination in reachableBackends",
			"probes":  "has no meaning here; use serviceProbe of the inbound",
			"metrics": "has no meaning here; use a MeshMetric",
		},
	},
	Default:  defaultDataplane,
	Validate: validateDataplane,
}

// defaultDataplane leaves out the label that names the type of the proxy: its sections tell it. Health has one
// spelling, and without a value it means that the inbound is not ready.
func defaultDataplane(o *resource.Object[Dataplane]) {
	delete(o.Labels, ProxyTypeLabel)
	for i := range o.Spec.Networking.Inbound {
		in := &o.Spec.Networking.Inbound[i]
		if in.Health == nil {
			in.Health, in.Healthy = in.Healthy, nil
		}
		if h := in.Health; h != nil && h.Ready == nil && h.Healthy == nil {
			in.Health = &Health{Ready: new(bool)}
		}
	}
}

// DataplaneServing is what a proxy serves, stored by the instance that holds its session whenever it
// changes. It has a row of its own, so that it wakes only those who derive endpoints.
type DataplaneServing struct {
	// Run is the agent's run that reported; a new run begins as serving nothing. Empty for a proxy
	// without an agent.
	Run string `json:"run,omitempty"`
	// Inbounds are served. One that is no longer in the Dataplane is being withdrawn: its listener
	// stays until every client has let go of it, and then it leaves this list.
	Inbounds []ServedInbound `json:"inbounds,omitempty"`
	// Ingresses are the zone ingress's listeners that are served. One that is no longer in the Dataplane is
	// being withdrawn.
	Ingresses []ZoneIngressSection `json:"ingresses,omitempty"`
	// Egresses are the zone egress's listeners that are served. One that is no longer in the Dataplane is being
	// withdrawn.
	Egresses []ServedEgress `json:"egresses,omitempty"`
	// Registered says that the agent wrote the Dataplane, which goes when the agent has gone for good.
	Registered bool `json:"registered,omitempty"`
	// Token is the ID of the token that registered it.
	Token string `json:"token,omitempty"`
	// Draining says that the proxy is going away; none of its inbounds is an endpoint.
	Draining bool `json:"draining,omitempty"`
}

// ServedInbound is one inbound that a proxy serves.
type ServedInbound struct {
	Inbound
	// Serial is the leaf certificate that was seen on the port; empty for a plain inbound.
	Serial string `json:"serial,omitempty"`
	// Names are the SPIFFE IDs in it; none where the agent does not tell.
	Names []string `json:"names,omitempty"`
	// AlsoPlain is since when it takes mutual TLS beside connections without, which was all that it took
	// before: until every client has heard of that. Zero: it takes one of the two.
	AlsoPlain Time `json:"alsoPlain,omitzero"`
	// Unhealthy says that the application behind it fails its probe.
	Unhealthy bool `json:"unhealthy,omitempty"`
}

// ServedEgress is a listener that a zone egress serves.
type ServedEgress struct {
	ZoneEgressSection
	// Serial is the leaf certificate that was seen on the port.
	Serial string `json:"serial,omitempty"`
}

// DataplaneServings is the kind of [DataplaneServing].
var DataplaneServings = &resource.Kind[DataplaneServing]{
	Info: resource.Info{Name: "DataplaneServing", Plural: "dataplane-servings", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}

// DataplaneInsight is what the control plane knows of a proxy's connection.
type DataplaneInsight struct {
	Subscriptions []Subscription `json:"subscriptions,omitempty" schema:"maxItems=64"`         // the proxy's connections, the latest last
	Serving       []string       `json:"serving,omitempty" schema:"maxItems=512 maxLength=64"` // the listeners that it serves, such as 10.0.0.1:8080
	Refusals      []Refusal      `json:"refusals,omitempty" schema:"maxItems=1024"`            // what its Envoy did not take
	Certificate   *Certificate   `json:"certificate,omitempty"`                                // what it was given last
	// MTLS is the same certificate in the shape that clients of Kuma read. It is filled in on reading, and stored
	// nowhere.
	MTLS *ProxyMTLS `json:"mTLS,omitempty"`
	// NotAdmitted is why its mesh does not admit it, worked out on reading; absent where it does.
	NotAdmitted string `json:"notAdmitted,omitempty" schema:"maxLength=4096"`
	// CertificateProblem is why it gets no certificate: SPIRE gives none or, worked out on reading, nobody vouches for
	// what its SPIFFE ID rests on.
	CertificateProblem string `json:"certificateProblem,omitempty" schema:"maxLength=4096"`
}

// Subscription is one connection of a proxy to one instance of the control plane.
type Subscription struct {
	ID                     string `json:"id" schema:"maxLength=253"`                     // one for each connection
	ControlPlaneInstanceID string `json:"controlPlaneInstanceId" schema:"maxLength=253"` // the instance that it is to
	ConnectTime            Time   `json:"connectTime"`                                   // when it began
	DisconnectTime         *Time  `json:"disconnectTime,omitempty"`                      // when it ended; absent while it lasts
	// Version has the versions of the proxy's programs.
	Version *ProxyVersion `json:"version,omitempty"`
	// Status counts what the proxy was sent on this connection. It is filled in on reading while the connection to
	// the instance that responds lasts, and stored nowhere.
	Status *SubscriptionStatus `json:"status,omitempty"`
}

// ProxyVersion has the versions of the programs of a proxy.
type ProxyVersion struct {
	Envoy ProgramVersion `json:"envoy"` // as Envoy states it
}

// Text is the version of Envoy; empty where it is not known.
func (v *ProxyVersion) Text() string {
	if v == nil {
		return ""
	}
	return v.Envoy.Version
}

// ProgramVersion is the version of one program.
type ProgramVersion struct {
	Version string `json:"version" schema:"maxLength=253"` // such as 1.40.0
}

// VersionOfEnvoy is the version of a proxy with such an Envoy; nil where it states none.
func VersionOfEnvoy(version string) *ProxyVersion {
	if version == "" {
		return nil
	}
	return &ProxyVersion{ProgramVersion{version}}
}

// SubscriptionStatus counts the responses of one connection.
type SubscriptionStatus struct {
	LastUpdateTime *Time          `json:"lastUpdateTime,omitempty"` // of the last acknowledged response
	Total          ResponseCounts `json:"total"`                    // of all types
}

// ResponseCounts counts responses of a control plane.
type ResponseCounts struct {
	Sent         uint64 `json:"responsesSent"`         // to the client
	Acknowledged uint64 `json:"responsesAcknowledged"` // by the client
	Rejected     uint64 `json:"responsesRejected"`     // by the client
}

// ProxyMTLS is the certificate of a proxy in the shape that clients of Kuma read.
type ProxyMTLS struct {
	CertificateExpirationTime   Time     `json:"certificateExpirationTime"`                           // when it expires
	LastCertificateRegeneration Time     `json:"lastCertificateRegeneration"`                         // since when it is valid
	IssuedBackend               string   `json:"issuedBackend" schema:"maxLength=253"`                // the MeshIdentity, or the backend of the mesh's mtls
	SupportedBackends           []string `json:"supportedBackends" schema:"maxItems=1 maxLength=253"` // the same
}

// Refusal is a resource that Envoy did not take, in Envoy's words.
type Refusal struct {
	Type    string `json:"type" schema:"maxLength=64"`       // of the resource, as xDS calls it
	Name    string `json:"name" schema:"maxLength=1024"`     // of the resource
	Version string `json:"version" schema:"maxLength=253"`   // of the resource
	Message string `json:"message" schema:"maxLength=16384"` // what Envoy says
	Time    Time   `json:"time"`                             // when
	// Causes are the resources that it was made of; none: of the Dataplane itself alone.
	Causes []Cause `json:"causes,omitempty" schema:"maxItems=1024"`
}

// Cause names a resource of the same mesh.
type Cause struct {
	Kind string `json:"kind" schema:"maxLength=64"`  // of the resource
	Name string `json:"name" schema:"maxLength=253"` // of the resource
}

// Connected says whether a subscription is open.
func (i *DataplaneInsight) Connected() bool {
	return slices.ContainsFunc(i.Subscriptions, func(s Subscription) bool { return s.DisconnectTime == nil })
}

// Certificate is the leaf that a proxy was given last.
type Certificate struct {
	SpiffeID   string   `json:"spiffeID" schema:"maxLength=2048"`                       // the name in it, the first where it has several
	Further    []string `json:"further,omitempty" schema:"maxItems=512 maxLength=2048"` // the other names in it, sorted
	Serial     string   `json:"serial" schema:"maxLength=64"`                           // its serial number
	Issuer     string   `json:"issuer" schema:"maxLength=253"`                          // the MeshIdentity, or the backend of the mesh's mtls
	NotBefore  Time     `json:"notBefore"`                                              // since when it is valid
	Expiration Time     `json:"expiration"`                                             // when it expires
}

// DataplaneInsights is the kind of [DataplaneInsight].
var DataplaneInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "DataplaneInsight", Plural: "dataplane-insights", Aliases: []string{"dataplaneinsights"}, Scope: resource.Mesh, Sync: resource.ZoneToGlobal, Flat: true, ReadOnly: true},
}

// Changing says whether any inbound takes connections with mutual TLS and without.
func (s *DataplaneServing) Changing() bool {
	return slices.ContainsFunc(s.Inbounds, func(in ServedInbound) bool { return !in.AlsoPlain.IsZero() })
}

// Forget takes listeners, by "address:port", and inbounds by their [Inbound.Section], out of what is served. It answers
// whether any was there.
func (s *DataplaneServing) Forget(gone []string) bool {
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
