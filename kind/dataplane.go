package kind

import (
	"net"
	"slices"
	"strconv"

	"weft/resource"
)

// Dataplane is one proxy: where it listens for its application and what the application dials.
type Dataplane struct {
	Networking Networking `json:"networking"`
}

// Networking is the network side of a [Dataplane].
type Networking struct {
	Address             string               `json:"address,omitempty"` // an IP address
	Inbound             []Inbound            `json:"inbound,omitempty"`
	Outbound            []Outbound           `json:"outbound,omitempty"`
	TransparentProxying *TransparentProxying `json:"transparentProxying,omitempty"`
	Admin               *Admin               `json:"admin,omitempty"`
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
	Port           uint32            `json:"port"`                     // what clients dial
	Address        string            `json:"address,omitempty"`        // default: networking.address
	ServicePort    uint32            `json:"servicePort,omitempty"`    // default: port
	ServiceAddress string            `json:"serviceAddress,omitempty"` // default: with transparentProxying the inbound's address, else 127.0.0.1
	Name           string            `json:"name,omitempty"`           // default: the port
	Protocol       Protocol          `json:"protocol,omitempty"`       // default: the tag kuma.io/protocol, else tcp
	Tags           map[string]string `json:"tags,omitempty"`
	State          InboundState      `json:"state,omitempty"` // default: Ready
	Health         *Health           `json:"health,omitempty"`
	ServiceProbe   *ServiceProbe     `json:"serviceProbe,omitempty"`
}

// Health is the older form of an inbound's state; read where State is absent.
type Health struct {
	Ready   *bool `json:"ready,omitempty"`
	Healthy *bool `json:"healthy,omitempty"`
}

// ServiceProbe says how the agent finds out whether the application lives.
type ServiceProbe struct {
	Interval           Duration  `json:"interval,omitempty"`           // default 1s
	Timeout            Duration  `json:"timeout,omitempty"`            // default 1s
	UnhealthyThreshold uint32    `json:"unhealthyThreshold,omitempty"` // failures in a row, default 3
	HealthyThreshold   uint32    `json:"healthyThreshold,omitempty"`   // successes in a row, default 1
	TCP                *TCPProbe `json:"tcp,omitempty"`
}

// TCPProbe is a probe that connects.
type TCPProbe struct{}

// Outbound is one destination that the application reaches at an address of its own machine.
type Outbound struct {
	Address    string            `json:"address,omitempty"` // default 127.0.0.1
	Port       uint32            `json:"port"`
	Tags       map[string]string `json:"tags,omitempty"` // kuma.io/service names the destination; or
	BackendRef *BackendRef       `json:"backendRef,omitempty"`
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
	Kind   string            `json:"kind"`
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Port   uint32            `json:"port,omitempty"`
}

// TransparentProxying says that the machine redirects connections to the proxy.
type TransparentProxying struct {
	RedirectPortInbound  uint32             `json:"redirectPortInbound,omitempty"`  // default 15006
	RedirectPortOutbound uint32             `json:"redirectPortOutbound,omitempty"` // default 15001
	IPFamilyMode         string             `json:"ipFamilyMode,omitempty"`         // DualStack (default), IPv4, IPv6
	ReachableServices    []string           `json:"reachableServices,omitempty"`    // values of kuma.io/service; absent: all
	ReachableBackends    *ReachableBackends `json:"reachableBackends,omitempty"`    // absent: all; empty refs: none
}

// ReachableBackends restricts what a proxy gets configuration for.
type ReachableBackends struct {
	Refs []BackendRef `json:"refs,omitempty"`
}

// Admin is Envoy's administration interface.
type Admin struct {
	Port uint32 `json:"port,omitempty"`
}

// Tags and labels that have a meaning.
const (
	ServiceTag     = "kuma.io/service"
	ProtocolTag    = "kuma.io/protocol"
	ZoneLabel      = "kuma.io/zone"
	OriginLabel    = "kuma.io/origin"
	EnvLabel       = "kuma.io/env"
	DisplayName    = "kuma.io/display-name"
	WorkloadLabel  = "kuma.io/workload"
	NamespaceLabel = "k8s.kuma.io/namespace"
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

// Dataplanes is the kind of [Dataplane].
var Dataplanes = &resource.Kind[Dataplane]{
	Info: resource.Info{
		Name: "Dataplane", Plural: "dataplanes", Scope: resource.Mesh, Flat: true,
		Replaced: map[string]string{
			"networking.gateway":                                  "has no meaning here; use networking.zoneIngress, or an Envoy Gateway in front of the mesh",
			"networking.advertisedAddress":                        "has no meaning here; use networking.zoneIngress.advertisedAddress",
			"networking.zoneIngress":                              "is not served by this release",
			"networking.zoneEgress":                               "is not served by this release",
			"networking.transparentProxying.directAccessServices": "is not served by this release; list the destination in reachableBackends",
			"probes":  "has no meaning here; use serviceProbe of the inbound",
			"metrics": "has no meaning here; use a MeshMetric",
		},
	},
	Validate: validateDataplane,
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
	// Registered says that the agent wrote the Dataplane, which goes when the agent has gone for good.
	Registered bool `json:"registered,omitempty"`
	// Draining says that the proxy is going away; none of its inbounds is an endpoint.
	Draining bool `json:"draining,omitempty"`
}

// ServedInbound is one inbound that a proxy serves.
type ServedInbound struct {
	Inbound
	// Serial is the leaf certificate that was seen on the port; empty for a plain inbound.
	Serial string `json:"serial,omitempty"`
	// Unhealthy says that the application behind it fails its probe.
	Unhealthy bool `json:"unhealthy,omitempty"`
}

// DataplaneServings is the kind of [DataplaneServing].
var DataplaneServings = &resource.Kind[DataplaneServing]{
	Info: resource.Info{Name: "DataplaneServing", Plural: "dataplane-servings", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}

// DataplaneInsight is what the control plane knows of a proxy's connection.
type DataplaneInsight struct {
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
	Serving       []string       `json:"serving,omitempty"` // "10.0.0.1:8080", filled in on reading
	Refusals      []Refusal      `json:"refusals,omitempty"`
	Certificate   *Certificate   `json:"certificate,omitempty"`
}

// Subscription is one connection of a proxy to one instance of the control plane.
type Subscription struct {
	ID                     string `json:"id"`
	ControlPlaneInstanceID string `json:"controlPlaneInstanceId"`
	ConnectTime            Time   `json:"connectTime"`
	DisconnectTime         *Time  `json:"disconnectTime,omitempty"`
	Version                string `json:"version,omitempty"` // of Envoy
}

// Refusal is a resource that Envoy did not take, in Envoy's words.
type Refusal struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Message string `json:"message"`
	Time    Time   `json:"time"`
	// Causes are the resources that it was made of; none: of the Dataplane itself alone.
	Causes []Cause `json:"causes,omitempty"`
}

// Cause names a resource of the same mesh.
type Cause struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Connected says whether a subscription is open.
func (i *DataplaneInsight) Connected() bool {
	return slices.ContainsFunc(i.Subscriptions, func(s Subscription) bool { return s.DisconnectTime == nil })
}

// Certificate is the leaf that a proxy was given last.
type Certificate struct {
	SpiffeID   string `json:"spiffeID"`
	Serial     string `json:"serial"`
	Issuer     string `json:"issuer"` // the MeshIdentity
	NotBefore  Time   `json:"notBefore"`
	Expiration Time   `json:"expiration"`
}

// DataplaneInsights is the kind of [DataplaneInsight].
var DataplaneInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "DataplaneInsight", Plural: "dataplane-insights", Aliases: []string{"dataplaneinsights"}, Scope: resource.Mesh, Flat: true, ReadOnly: true},
}

// Forget takes inbounds, by their listener, out of what is served. It answers whether any was there.
func (s *DataplaneServing) Forget(listeners []string) bool {
	left := slices.DeleteFunc(slices.Clone(s.Inbounds), func(in ServedInbound) bool {
		return slices.Contains(listeners, in.Listener())
	})
	changed := len(left) != len(s.Inbounds)
	s.Inbounds = left
	return changed
}
