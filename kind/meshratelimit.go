package kind

import (
	"fmt"

	"weft/resource"
)

// MeshRateLimit limits the rate of the requests and connections that the proxies that it targets receive.
//
// Each proxy counts for itself, so n instances of a service allow n times the rate. A limit that changes begins again,
// and so do the other limits of requests at the same inbound. For each field, inbound and caller, the policy with the
// most specific target that has the field decides. Without a policy there is no limit. A policy with the label
// kuma.io/effect: shadow has no effect.
type MeshRateLimit struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the limits of the requests and connections that the proxies receive; of several rules that match a caller, the
	// one with the most specific match decides
	Rules []RuleItem[RateLimitConf] `json:"rules,omitempty" schema:"maxItems=256"`
	// the older form of rules without matches; it is read and never written
	From []FromItem[RateLimitConf] `json:"from,omitempty" schema:"maxItems=256 deprecated"`
}

// RateLimitConf has the limits of some traffic.
type RateLimitConf struct {
	Local *LocalRateLimit `json:"local,omitempty" schema:"required minProperties=1"` // limits that each proxy counts alone
}

// LocalRateLimit are the limits that each proxy counts alone. A field that is left out keeps the value of a less
// specific policy.
type LocalRateLimit struct {
	// HTTP is the limit of requests, for HTTP, HTTP/2 and gRPC.
	HTTP *HTTPRateLimit `json:"http,omitempty" schema:"minProperties=1"`
	// TCP is the limit of connections, for any protocol. It does not differ by caller.
	TCP *TCPRateLimit `json:"tcp,omitempty" schema:"minProperties=1"`
}

// HTTPRateLimit limits the rate of requests. The callers of each rule with matches have a limit of their own.
type HTTPRateLimit struct {
	Disabled    *bool            `json:"disabled,omitempty"`                             // true for no limit
	RequestRate *Rate            `json:"requestRate,omitempty"`                          // the rate up to which requests pass
	OnRateLimit *LimitedResponse `json:"onRateLimit,omitempty" schema:"minProperties=1"` // the response to further requests
}

// TCPRateLimit limits the rate of connections. Further connections are closed.
type TCPRateLimit struct {
	Disabled       *bool `json:"disabled,omitempty"`       // true for no limit
	ConnectionRate *Rate `json:"connectionRate,omitempty"` // the rate up to which connections are accepted
}

// Rate is a number of requests or connections in a time.
type Rate struct {
	Num *uint32 `json:"num,omitempty" schema:"required min=1" advice:"to reject all of them, use a MeshTrafficPermission"` // the number
	// the time, 50 milliseconds or more, which is the shortest one in which Envoy counts requests
	Interval *Duration `json:"interval,omitempty" schema:"required min=50ms max=10y"`
}

// LimitedResponse is the response to a request over a limit.
type LimitedResponse struct {
	// the status code, one that Envoy knows. Envoy responds with 429 in place of one below 400
	Status  *uint32          `json:"status,omitempty" schema:"min=100 max=511 default=429"`
	Headers *ResponseHeaders `json:"headers,omitempty" schema:"minProperties=1"` // further headers
}

// ResponseHeaders are headers of a response.
type ResponseHeaders struct {
	Set []HeaderValue `json:"set,omitempty" schema:"maxItems=16"` // the headers whose value is replaced
	Add []HeaderValue `json:"add,omitempty" schema:"maxItems=16"` // the headers that get a further value
}

// MeshRateLimits is the kind of [MeshRateLimit].
var MeshRateLimits = NewPolicy(PolicyKind[MeshRateLimit, RateLimitConf]{
	Kind: resource.Kind[MeshRateLimit]{
		Info: resource.Info{
			Name: "MeshRateLimit", Plural: "meshratelimits", ShortName: "mrl",
			Replaces: []resource.OlderKind{{Name: "RateLimit", Plural: "rate-limits"}},
			Replaced: inboundReplaced(replacedInTargets(map[string]string{"to": onlyAtGateways})),
		},
		Validate: validateMeshRateLimit,
	},
	Restrictive: true,
	Fields:      rateLimitFields,
	Content:     unusedStatuses,
})

var rateLimitFields = []FieldRule[RateLimitConf]{
	{Prefix: "local.http.", Protocols: requestProtocols},
	{Prefix: "local.tcp", Connections: true},
}

// onlyAtGateways is why `to` of a policy about received traffic is rejected.
const onlyAtGateways = "has an effect at gateways only, and there are none; use `rules`, in a policy that targets " +
	"the proxies of the servers"

func validateMeshRateLimit(o *resource.Object[MeshRateLimit], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkFrom(c, o.Spec.From)
	checkRules(c, o.Spec.Rules, (*checks).rateLimits, rateLimitFields)
	return c.problems
}

// Requests returns the limit of requests, also where there is none.
func (c *RateLimitConf) Requests() HTTPRateLimit {
	if c.Local == nil || c.Local.HTTP == nil {
		return HTTPRateLimit{}
	}
	return *c.Local.HTTP
}

// Connections returns the limit of connections, also where there is none.
func (c *RateLimitConf) Connections() TCPRateLimit {
	if c.Local == nil || c.Local.TCP == nil {
		return TCPRateLimit{}
	}
	return *c.Local.TCP
}

// Rate returns the rate of requests that pass; nil: all of them.
func (l HTTPRateLimit) Rate() *Rate { return unless(l.Disabled, l.RequestRate) }

// Rate returns the rate of connections that are accepted; nil: all of them.
func (l TCPRateLimit) Rate() *Rate { return unless(l.Disabled, l.ConnectionRate) }

func unless(disabled *bool, rate *Rate) *Rate {
	if disabled != nil && *disabled {
		return nil
	}
	return rate
}

func (c *checks) rateLimits(at string, conf *RateLimitConf) {
	at += ".local"
	if conf.Local == nil {
		return
	}
	h, t := conf.Local.HTTP, conf.Local.TCP
	if h == nil && t == nil {
		c.add(at, "has no field; want http or tcp")
	}
	if h != nil {
		if *h == (HTTPRateLimit{}) {
			c.add(at+".http", "has no field; want one of disabled, requestRate, onRateLimit")
		}
		c.limitedResponse(at+".http.onRateLimit", h.OnRateLimit)
	}
	if t != nil && *t == (TCPRateLimit{}) {
		c.add(at+".tcp", "has no field; want disabled or connectionRate")
	}
}

func (c *checks) limitedResponse(at string, r *LimitedResponse) {
	if r == nil {
		return
	}
	if r.Status == nil && r.Headers == nil {
		c.add(at, "has no field; want status or headers")
	}
	if s := r.Status; s != nil && !knownToEnvoy(*s) {
		c.instead(at+".status", "is %d, which Envoy does not know; want 429, or another of 400 to 417, 421 to 424, "+
			"426, 428, 431, 500 to 508, 510, 511", *s)
	}
	if h := r.Headers; h != nil {
		if len(h.Set)+len(h.Add) == 0 {
			c.add(at+".headers", "has no field; want set or add")
			return
		}
		c.headerModifier(at+".headers", &HeaderModifier{Set: h.Set, Add: h.Add})
	}
}

// knownToEnvoy reports whether a status code is one of those that Envoy's configuration lists.
// (envoy.type.v3.StatusCode)
func knownToEnvoy(status uint32) bool {
	for _, r := range [][2]uint32{{100, 100}, {200, 208}, {226, 226}, {300, 305}, {307, 308}, {400, 417}, {421, 424},
		{426, 426}, {428, 429}, {431, 431}, {500, 508}, {510, 511}} {
		if r[0] <= status && status <= r[1] {
			return true
		}
	}
	return false
}

// unusedStatuses warns of statuses that Envoy replaces.
func unusedStatuses(p *MeshRateLimit) []string {
	var warnings []string
	for i := range p.Rules {
		if r := p.Rules[i].Default.Requests().OnRateLimit; r != nil && r.Status != nil && *r.Status < 400 {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.local.http.onRateLimit.status: is %d: "+
				"Envoy responds with 429 in place of a status below 400", i, *r.Status))
		}
	}
	return warnings
}
