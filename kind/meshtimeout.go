package kind

import (
	"fmt"
	"time"

	"weft/resource"
)

// MeshTimeout bounds the time that connections and requests of the proxies that it targets take.
//
// For each field and destination, and for each inbound and caller, the policy with the most specific target that has
// the field decides. A field that no policy has keeps the default of docs/defaults.md. A policy with the label
// kuma.io/effect: shadow has no effect.
type MeshTimeout struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the timeouts of the connections and requests that the proxies send; of several items that select a destination,
	// the more specific or later one decides
	To []ToItem[TimeoutConf] `json:"to,omitempty" schema:"maxItems=256"`
	// the timeouts of the connections and requests that the proxies receive; of several rules that match a caller, the
	// one with the most specific match decides
	Rules []RuleItem[TimeoutConf] `json:"rules,omitempty" schema:"maxItems=256"`
	// the older form of rules without matches; it is read and never written
	From []FromItem[TimeoutConf] `json:"from,omitempty" schema:"maxItems=256 deprecated"`
}

// TimeoutConf has the timeouts of some traffic. A field that is left out keeps the value of a less specific policy.
type TimeoutConf struct {
	// ConnectionTimeout is the timeout of one attempt to connect, including the TLS handshake.
	ConnectionTimeout *Duration `json:"connectionTimeout,omitempty" schema:"min=1ms max=10y"`
	// IdleTimeout is the time after which a TCP connection without data, or an HTTP connection without requests, is
	// closed; 0 for never.
	IdleTimeout *Duration     `json:"idleTimeout,omitempty" schema:"min=1ms max=10y zero"`
	HTTP        *HTTPTimeouts `json:"http,omitempty" schema:"minProperties=1"` // timeouts of requests
}

// Requests returns the timeouts of requests, also where there are none.
func (c *TimeoutConf) Requests() HTTPTimeouts {
	if c.HTTP == nil {
		return HTTPTimeouts{}
	}
	return *c.HTTP
}

// HTTPTimeouts are the timeouts of HTTP, HTTP/2 and gRPC.
type HTTPTimeouts struct {
	// RequestTimeout is the time from the last byte of a request to the last byte of its response, with all retries; 0
	// for no limit. A gRPC call has no limit by default.
	RequestTimeout *Duration `json:"requestTimeout,omitempty" schema:"min=1ms max=10y zero"`
	// StreamIdleTimeout is the time after which a request without data in either direction ends; 0 for never.
	StreamIdleTimeout *Duration `json:"streamIdleTimeout,omitempty" schema:"min=1ms max=10y zero"`
	// MaxStreamDuration is the time after which a request ends, with or without data; 0 for never.
	MaxStreamDuration *Duration `json:"maxStreamDuration,omitempty" schema:"min=1ms max=10y zero"`
	// MaxConnectionDuration is the age at which a connection accepts no further request; 0 for no limit.
	MaxConnectionDuration *Duration `json:"maxConnectionDuration,omitempty" schema:"min=1ms max=10y zero"`
	// RequestHeadersTimeout is the time in which the headers of a request must be complete; 0 for no limit.
	RequestHeadersTimeout *Duration `json:"requestHeadersTimeout,omitempty" schema:"min=1ms max=10y zero"`
}

// MeshTimeouts is the kind of [MeshTimeout].
var MeshTimeouts = NewPolicy(PolicyKind[MeshTimeout, TimeoutConf]{
	Kind: resource.Kind[MeshTimeout]{
		Info: resource.Info{
			Name: "MeshTimeout", Plural: "meshtimeouts", ShortName: "mt",
			Replaces: []resource.OlderKind{{Name: "Timeout", Plural: "timeouts"}},
			Replaced: inboundReplaced(replacedInTargets(nil)),
		},
		Validate: validateMeshTimeout,
	},
	Fields:  timeoutFields,
	Content: longConnections,
})

var timeoutFields = []FieldRule[TimeoutConf]{
	{Prefix: "http.", Protocols: requestProtocols},
	{Prefix: "connectionTimeout", Connections: true},
	{Prefix: "idleTimeout", Connections: true},
	{Prefix: "http.maxStreamDuration", Connections: true},
	{Prefix: "http.maxConnectionDuration", Connections: true},
	{Prefix: "http.requestHeadersTimeout", Connections: true},
	{Reason: func(_ *TimeoutConf, _ string, at *Place) string {
		if at.Direction == Received && at.Role == ZoneEgressRole && at.ByID {
			return "timeouts of a zone egress don't differ by caller"
		}
		return ""
	}},
}

func validateMeshTimeout(o *resource.Object[MeshTimeout], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	if len(o.Spec.To)+len(o.Spec.Rules)+len(o.Spec.From) == 0 {
		c.add("spec", "has neither to nor rules: at least one item is required")
	}
	checkTo(c, o.Spec.To, (*checks).destinationOrRouteRef, (*checks).timeouts)
	checkFrom(c, o.Spec.From)
	checkRules(c, o.Spec.Rules, (*checks).timeouts, timeoutFields)
	return c.problems
}

func (c *checks) timeouts(at string, conf *TimeoutConf) {
	if *conf == (TimeoutConf{}) {
		c.add(at, "has no field; want connectionTimeout, idleTimeout or http")
	}
	if conf.HTTP != nil && *conf.HTTP == (HTTPTimeouts{}) {
		c.add(at+".http", "has no field; want one of requestTimeout, streamIdleTimeout, maxStreamDuration, "+
			"maxConnectionDuration, requestHeadersTimeout")
	}
}

// ConnectionLife is how long proxies keep a pooled HTTP connection by default. The peer's identity on a connection is
// valid for as long, whatever the peer would present now.
const ConnectionLife = 10 * time.Minute

// longConnections warns of connections between proxies that outlive the default.
func longConnections(p *MeshTimeout) []string {
	var warnings []string
	for i := range p.To {
		d := p.To[i].Default.Requests().MaxConnectionDuration
		if d == nil || *d > 0 && time.Duration(*d) <= ConnectionLife {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.http.maxConnectionDuration: is longer than the "+
			"default of %s: a peer that is evicted, or that a permission denies, may keep an open connection for as "+
			"long", i, ConnectionLife))
	}
	return warnings
}
