package kind

import (
	"fmt"

	"weft/resource"
)

// MeshCircuitBreaker limits the connections and requests of the proxies that it targets, and ejects endpoints that
// fail.
//
// For each field and destination, and for each inbound, the policy with the most specific target that has the field
// decides. A field that no policy has keeps the default of docs/defaults.md. A policy with the label kuma.io/effect:
// shadow has no effect.
type MeshCircuitBreaker struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the limits of the traffic that the proxies send; of several items that select a destination, the more specific or
	// later one decides
	To []ToItem[CircuitBreakerConf] `json:"to,omitempty" schema:"maxItems=256"`
	// the limits of the traffic of the proxies to their own applications; a later rule decides
	Rules []ReceivedItem[CircuitBreakerConf] `json:"rules,omitempty" schema:"maxItems=16"`
	// the older form of rules; it is read and never written
	From []FromItem[CircuitBreakerConf] `json:"from,omitempty" schema:"maxItems=16 deprecated"`
}

// CircuitBreakerConf has the limits of some traffic. A field that is left out keeps the value of a less specific
// policy.
type CircuitBreakerConf struct {
	// the limits of one proxy towards one destination or application
	ConnectionLimits *ConnectionLimits `json:"connectionLimits,omitempty"`
	// the ejection of endpoints that fail
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty" schema:"minProperties=1"`
}

// Limits returns the limits of connections and requests, also where there are none.
func (c *CircuitBreakerConf) Limits() ConnectionLimits {
	if c.ConnectionLimits == nil {
		return ConnectionLimits{}
	}
	return *c.ConnectionLimits
}

// Outliers returns the ejection of endpoints, also where there is none.
func (c *CircuitBreakerConf) Outliers() OutlierDetection {
	if c.OutlierDetection == nil {
		return OutlierDetection{}
	}
	return *c.OutlierDetection
}

// ConnectionLimits are limits of one proxy towards one destination or application. Envoy's threads count apart and may
// exceed a limit for a moment.
type ConnectionLimits struct {
	// MaxConnections is the number of connections. Further HTTP/1.1 requests wait, a further TCP connection is closed.
	MaxConnections *uint32 `json:"maxConnections,omitempty" schema:"min=1" cost:"producer=4096"`
	// MaxConnectionPools is the number of connection pools, of which there is one for each endpoint.
	MaxConnectionPools *uint32 `json:"maxConnectionPools,omitempty" schema:"min=1" cost:"producer=4096"`
	// MaxPendingRequests is the number of requests that wait for a connection. Further ones get 503.
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty" schema:"min=1" cost:"producer=16384"`
	// MaxRetries is the number of concurrent retries. A response that would be retried beyond it is final.
	MaxRetries *uint32 `json:"maxRetries,omitempty" schema:"min=1" cost:"producer=16384"`
	// MaxRequests is the number of running requests of HTTP/2 and gRPC. Further ones get 503.
	MaxRequests *uint32 `json:"maxRequests,omitempty" schema:"min=1" cost:"producer=16384"`
}

// OutlierDetection ejects endpoints that fail: they get no requests for some time. The application of an inbound is its
// only endpoint: all requests get 503 while it is ejected, which needs a HealthyPanicThreshold of 0.
type OutlierDetection struct {
	// Disabled ejects no endpoint, also none that cannot be reached.
	Disabled *bool `json:"disabled,omitempty"`
	// Interval is the interval at which ejections end, and at which the rates of failures are computed.
	Interval *Duration `json:"interval,omitempty" schema:"min=1ms max=10y" cost:"min=100ms producer=1s"`
	// BaseEjectionTime is the time of the first ejection; the n-th one takes n times as long.
	BaseEjectionTime *Duration `json:"baseEjectionTime,omitempty" schema:"min=1ms max=10y"`
	// MaxEjectionPercent is the percentage of the endpoints that may be ejected, rounded down to endpoints.
	MaxEjectionPercent *uint32 `json:"maxEjectionPercent,omitempty" schema:"min=0 max=100"`
	// SplitExternalAndLocalErrors counts failures to reach an endpoint apart from its responses. Without it, they count
	// as responses with 5xx. The detector localOriginFailures implies it.
	SplitExternalAndLocalErrors *bool `json:"splitExternalAndLocalErrors,omitempty"`
	// HealthyPanicThreshold is the percentage of usable endpoints below which all endpoints are used, also ejected
	// ones; 0 for never.
	HealthyPanicThreshold *Decimal   `json:"healthyPanicThreshold,omitempty" schema:"min=0 max=100"`
	Detectors             *Detectors `json:"detectors,omitempty"` // what counts as failing
}

// Detection returns the detectors, also where there are none.
func (o *OutlierDetection) Detection() Detectors {
	if o.Detectors == nil {
		return Detectors{}
	}
	return *o.Detectors
}

// Detectors are the causes of an ejection. One that is left out ejects no endpoint, other than localOriginFailures,
// which keeps its default. Endpoints that are zone proxies are ejected by localOriginFailures only.
type Detectors struct {
	// TotalFailures ejects after responses with 5xx in a row.
	TotalFailures *FailureDetector `json:"totalFailures,omitempty"`
	// GatewayFailures ejects after responses with 502, 503 or 504 in a row.
	GatewayFailures *FailureDetector `json:"gatewayFailures,omitempty"`
	// LocalOriginFailures ejects after failures to reach the endpoint in a row.
	LocalOriginFailures *FailureDetector `json:"localOriginFailures,omitempty"`
	// SuccessRate ejects endpoints whose share of successful requests is far below the mean.
	SuccessRate *SuccessRateDetector `json:"successRate,omitempty"`
	// FailurePercentage ejects endpoints with a share of failures.
	FailurePercentage *FailurePercentageDetector `json:"failurePercentage,omitempty"`
}

// FailureDetector counts failures in a row.
type FailureDetector struct {
	Consecutive *uint32 `json:"consecutive,omitempty" schema:"min=1"` // the number of failures; by default 5
}

// SuccessRateDetector compares the endpoints of a destination.
type SuccessRateDetector struct {
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty" schema:"min=1"`  // endpoints with such a volume; by default 5
	RequestVolume *uint32 `json:"requestVolume,omitempty" schema:"min=1"` // requests in an interval; by default 100
	// the number of standard deviations below the mean, which Envoy has in thousandths; by default 1.9
	StandardDeviationFactor *Decimal `json:"standardDeviationFactor,omitempty" schema:"min=0.001 max=1000"`
}

// FailurePercentageDetector computes the share of failures of each endpoint.
type FailurePercentageDetector struct {
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty" schema:"min=1"`      // endpoints with such a volume; by default 5
	RequestVolume *uint32 `json:"requestVolume,omitempty" schema:"min=1"`     // requests in an interval; by default 50
	Threshold     *uint32 `json:"threshold,omitempty" schema:"min=0 max=100"` // the percentage of failures; by default 85
}

// MeshCircuitBreakers is the kind of [MeshCircuitBreaker].
var MeshCircuitBreakers = NewPolicy(PolicyKind[MeshCircuitBreaker, CircuitBreakerConf]{
	Kind: resource.Kind[MeshCircuitBreaker]{
		Info: resource.Info{
			Name: "MeshCircuitBreaker", Plural: "meshcircuitbreakers", ShortName: "mcb",
			Replaces: []resource.OlderKind{{Name: "CircuitBreaker", Plural: "circuit-breakers"}},
			Replaced: inboundReplaced(replacedInTargets(map[string]string{
				"rules.matches": "has no meaning here: all callers share the connections to the application; " +
					"leave it out",
			})),
		},
		Validate: validateMeshCircuitBreaker,
	},
	Fields: []FieldRule[CircuitBreakerConf]{
		{Reason: func(_ *CircuitBreakerConf, _ string, at *Place) string {
			if at.Direction == Received && at.Role != Sidecar {
				return "a zone proxy has no application; use to"
			}
			return ""
		}},
		{Prefix: "connectionLimits.maxRequests", Protocols: requestProtocols},
		{Prefix: "connectionLimits.maxRetries", Protocols: requestProtocols},
		{Prefix: "outlierDetection.", Reason: neverEjected},
	},
	ZoneProxies: true,
	Content:     func(p *MeshCircuitBreaker) []string { return append(unsplitErrors(p), limitsOfAll(p)...) },
})

// neverEjected is about the detectors of an application, which need another panic threshold than the default.
func neverEjected(c *CircuitBreakerConf, _ string, at *Place) string {
	o := c.Outliers()
	if at.Direction != Received || o.Detection() == (Detectors{}) ||
		o.HealthyPanicThreshold != nil && *o.HealthyPanicThreshold == 0 {
		return ""
	}
	return "the application is the only endpoint, so it is used also while it is ejected, unless " +
		"healthyPanicThreshold is 0"
}

func validateMeshCircuitBreaker(o *resource.Object[MeshCircuitBreaker], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	if len(o.Spec.To)+len(o.Spec.Rules)+len(o.Spec.From) == 0 {
		c.add("spec", "has neither to nor rules: at least one item is required")
	}
	checkTo(c, o.Spec.To, (*checks).destinationRef, (*checks).circuitBreaker)
	checkFrom(c, o.Spec.From)
	checkReceived(c, o.Spec.Rules, (*checks).circuitBreaker)
	return c.problems
}

func (c *checks) circuitBreaker(at string, conf *CircuitBreakerConf) {
	if *conf == (CircuitBreakerConf{}) {
		c.add(at, "has no field; want connectionLimits or outlierDetection")
	}
	if conf.OutlierDetection != nil {
		c.outlierDetection(at+".outlierDetection", conf.OutlierDetection)
	}
}

// outlierDetection requires a detector, unless nothing is ejected.
func (c *checks) outlierDetection(at string, o *OutlierDetection) {
	disabled := o.Disabled != nil && *o.Disabled
	if d := o.Detectors; !disabled && (d == nil || *d == (Detectors{})) {
		c.add(at+".detectors", "is required: one of totalFailures, gatewayFailures, localOriginFailures, successRate, "+
			"failurePercentage; or disabled: true")
	}
}

// unsplitErrors warns of detectors of failures to reach an endpoint that count them apart although the policy does not
// split them.
func unsplitErrors(p *MeshCircuitBreaker) []string {
	var warnings []string
	for i := range p.To {
		o := p.To[i].Default.Outliers()
		if split := o.SplitExternalAndLocalErrors; split != nil && !*split && o.Detection().LocalOriginFailures != nil {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.outlierDetection."+
				"splitExternalAndLocalErrors: false has no effect beside detectors.localOriginFailures, which counts "+
				"these errors apart", i))
		}
	}
	return warnings
}

// limitsOfAll warns of limits that hold for zone proxies too, which carry the traffic of many clients.
func limitsOfAll(p *MeshCircuitBreaker) []string {
	if p.TargetRef != nil && p.TargetRef.Kind != "Mesh" {
		return nil
	}
	var warnings []string
	for i := range p.To {
		if p.To[i].Default.ConnectionLimits != nil {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.connectionLimits: also holds for the zone "+
				"proxies of the mesh, for the traffic of all their clients together; target Dataplanes by labels to "+
				"leave them out", i))
		}
	}
	return warnings
}
