package kind

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"weft/resource"
)

// MeshHealthCheck has the proxies that it targets check the endpoints of destinations. An endpoint whose checks fail
// gets no traffic.
//
// For each field and destination, the policy with the most specific target that has the field decides. Without a policy
// proxies send no checks. Each proxy checks each endpoint of its own zone: endpoints that are zone proxies are not
// checked, since any server behind them would respond. A policy with the label kuma.io/effect: shadow has no effect.
type MeshHealthCheck struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the checks of the endpoints to which the proxies send traffic; of several items that select a destination, the
	// more specific or later one decides
	To []ToItem[HealthCheckConf] `json:"to,omitempty" schema:"maxItems=256"`
}

// HealthCheckConf has the checks of some endpoints: `grpc` those of ports with that protocol, `http` those of http and
// http2, and `tcp` those of all others. A port whose checker is absent or disabled is checked by `tcp`, where that is
// not absent or disabled too. A field that is left out keeps the value of a less specific policy.
type HealthCheckConf struct {
	// Interval is the interval of the checks of an endpoint with traffic.
	Interval *Duration `json:"interval,omitempty" schema:"min=1ms max=10y default=1m" cost:"min=100ms producer=1s"`
	// Timeout is the timeout of one check.
	Timeout *Duration `json:"timeout,omitempty" schema:"min=1ms max=10y default=15s"`
	// UnhealthyThreshold is the number of failed checks in a row after which an endpoint gets no traffic. One
	// response with a status that is not expected suffices.
	UnhealthyThreshold *int32 `json:"unhealthyThreshold,omitempty" schema:"min=1 max=1000000 default=5"`
	// HealthyThreshold is the number of successful checks in a row after which it gets traffic again. The first check
	// of an endpoint suffices.
	HealthyThreshold *int32 `json:"healthyThreshold,omitempty" schema:"min=1 max=1000000 default=1"`
	// InitialJitter is the longest random wait before the first check; by default there is none.
	InitialJitter *Duration `json:"initialJitter,omitempty" schema:"min=1ms max=10y"`
	// IntervalJitter is the longest random time that is added to an interval; by default there is none.
	IntervalJitter *Duration `json:"intervalJitter,omitempty" schema:"min=1ms max=10y"`
	// IntervalJitterPercent is the same as a percentage of the interval; both are added.
	IntervalJitterPercent *int32 `json:"intervalJitterPercent,omitempty" schema:"min=0 max=100"`
	// HealthyPanicThreshold is the percentage of usable endpoints below which all endpoints are used; 0 for never. That
	// of a MeshCircuitBreaker decides where both are set.
	HealthyPanicThreshold *Decimal `json:"healthyPanicThreshold,omitempty" schema:"min=0 max=100"`
	// FailTrafficOnPanic fails the traffic below HealthyPanicThreshold: requests get 503. It has no effect on the load
	// balancers RingHash and Maglev.
	FailTrafficOnPanic *bool `json:"failTrafficOnPanic,omitempty"`
	// EventLogPath is a file of each proxy to which it writes a line of JSON for each endpoint that becomes healthy or
	// unhealthy; by default it writes none. A proxy that cannot open it, such as in a folder that does not exist, runs
	// without the policy. The condition Accepted of the policy has the reason, until the policy is written again.
	EventLogPath string `json:"eventLogPath,omitempty" schema:"maxLength=4096"`
	// AlwaysLogHealthCheckFailures also writes a line for each failed check.
	AlwaysLogHealthCheckFailures *bool `json:"alwaysLogHealthCheckFailures,omitempty"`
	// NoTrafficInterval is the interval of the checks of the endpoints of a destination that had no traffic yet.
	NoTrafficInterval *Duration `json:"noTrafficInterval,omitempty" schema:"min=1ms max=10y default=1m" cost:"min=100ms producer=1s"`
	// ReuseConnection keeps the connection of the checks of an endpoint open.
	ReuseConnection *bool `json:"reuseConnection,omitempty" schema:"default=true"`

	TCP  *TCPHealthCheck  `json:"tcp,omitempty"`  // checks of connections
	HTTP *HTTPHealthCheck `json:"http,omitempty"` // checks by a request
	GRPC *GRPCHealthCheck `json:"grpc,omitempty"` // checks by a call of grpc.health.v1.Health
}

// TCPHealthCheck opens a connection, including the TLS handshake. An endpoint is healthy where that succeeds and the
// texts arrive.
type TCPHealthCheck struct {
	Disabled *bool `json:"disabled,omitempty"` // turns the checks of connections off
	// Send is the text that is sent, byte by byte. It has no effect on ports whose proxies speak HTTP/2 to each other.
	Send string `json:"send,omitempty" schema:"maxLength=4096"`
	// Receive are the texts that have to arrive, in this order and with anything between them. They have no effect
	// where send has none.
	Receive []string `json:"receive,omitempty" schema:"maxLength=4096 maxItems=16"`
}

// HTTPHealthCheck sends a GET request to the application.
type HTTPHealthCheck struct {
	Disabled *bool `json:"disabled,omitempty"` // turns the checks by a request off
	// Path is the path of the request, with its query.
	Path string `json:"path,omitempty" schema:"maxLength=1024 default=/"`
	// RequestHeadersToAdd are further headers of the request.
	RequestHeadersToAdd *CheckHeaders `json:"requestHeadersToAdd,omitempty"`
	// ExpectedStatuses are the statuses of a healthy endpoint; by default 200 alone.
	ExpectedStatuses []int32 `json:"expectedStatuses,omitempty" schema:"minItems=1 maxItems=64 min=100 max=599"`
}

// CheckHeaders are headers of a request.
type CheckHeaders struct {
	Set []CheckHeader `json:"set,omitempty" schema:"maxItems=16"` // the headers whose value is replaced
	Add []CheckHeader `json:"add,omitempty" schema:"maxItems=16"` // the headers that get a further value
}

// CheckHeader is a header with a value.
type CheckHeader struct {
	Name  string `json:"name" schema:"required maxLength=256"`   // the name
	Value string `json:"value" schema:"required maxLength=1024"` // the value, as it is sent
}

// GRPCHealthCheck calls the method Check of grpc.health.v1.Health. An endpoint is healthy where the response is
// SERVING.
type GRPCHealthCheck struct {
	Disabled *bool `json:"disabled,omitempty"` // turns the checks by a call off
	// ServiceName is the service that is asked for; by default the server as a whole.
	ServiceName string `json:"serviceName,omitempty" schema:"maxLength=1024"`
	// Authority is the authority of the call; by default the name of the cluster.
	Authority string `json:"authority,omitempty" schema:"maxLength=253"`
}

// A Checker is one of the three checks of a [HealthCheckConf].
type Checker string

// The checkers.
const (
	NoChecker   Checker = ""
	TCPChecker  Checker = "tcp"
	HTTPChecker Checker = "http"
	GRPCChecker Checker = "grpc"
)

// CheckerOf returns the checker of ports with a protocol. forwarded states that the connections of the checks are
// forwarded without a request, as a zone ingress does.
func (c *HealthCheckConf) CheckerOf(protocol Protocol, forwarded bool) Checker {
	off := func(disabled *bool) bool { return disabled != nil && *disabled }
	switch {
	case protocol == GRPC && !forwarded && c.GRPC != nil && !off(c.GRPC.Disabled):
		return GRPCChecker
	case (protocol == HTTP || protocol == HTTP2) && !forwarded && c.HTTP != nil && !off(c.HTTP.Disabled):
		return HTTPChecker
	case c.TCP != nil && !off(c.TCP.Disabled):
		return TCPChecker
	}
	return NoChecker
}

// MeshHealthChecks is the kind of [MeshHealthCheck].
var MeshHealthChecks = NewPolicy(PolicyKind[MeshHealthCheck, HealthCheckConf]{
	Kind: resource.Kind[MeshHealthCheck]{
		Info: resource.Info{
			Name: "MeshHealthCheck", Plural: "meshhealthchecks", ShortName: "mhc",
			Replaces: []resource.OlderKind{{Name: "HealthCheck", Plural: "health-checks"}},
			Replaced: replacedInTargets(nil),
		},
		Validate: validateMeshHealthCheck,
	},
	Costs: &PortCosts[*HealthCheckConf]{EachEndpoint: true, Unit: "checks of endpoints in 1,000 s", Of: checkCost,
		Most: 2_000_000, Producer: 100_000},
	Older: olderPanicThreshold,
	Fields: []FieldRule[HealthCheckConf]{
		{Prefix: "http.", Protocols: []Protocol{HTTP, HTTP2}},
		{Prefix: "grpc.", Protocols: []Protocol{GRPC}},
		{Prefix: "tcp.", Reason: otherChecker},
	},
	ZoneProxies: true,
	Content:     checksOfAll,
})

// otherChecker is about the checks by connections, beside which those by requests go first.
func otherChecker(c *HealthCheckConf, _ string, at *Place) string {
	switch checker := c.CheckerOf(at.Protocol, at.Role == ZoneIngressRole); checker {
	case HTTPChecker, GRPCChecker:
		return fmt.Sprintf("the checker %s is the one for %s", checker, at.Protocol)
	case NoChecker, TCPChecker:
	}
	return ""
}

// olderPanicThreshold returns a deprecation warning for each panic threshold. It stays, since a MeshCircuitBreaker
// that has it in place of this policy may be another user's.
func olderPanicThreshold(p *MeshHealthCheck) []string {
	var warnings []string
	for i := range p.To {
		if p.To[i].Default.HealthyPanicThreshold != nil {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.healthyPanicThreshold: is deprecated; write "+
				"outlierDetection.healthyPanicThreshold of a MeshCircuitBreaker, which decides where both are set", i))
		}
	}
	return warnings
}

func validateMeshHealthCheck(o *resource.Object[MeshHealthCheck], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkTo(c, o.Spec.To, (*checks).destinationRef, (*checks).healthCheck)
	return c.problems
}

func (c *checks) healthCheck(at string, conf *HealthCheckConf) {
	if conf.TCP == nil && conf.HTTP == nil && conf.GRPC == nil {
		c.add(at, "has no checker; want tcp, http or grpc")
	}
	if p := conf.EventLogPath; p != "" && (!strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" ||
		!printable(p)) {
		c.add(at+".eventLogPath", "%s is not the absolute path of a file, such as /var/log/checks.json", quote(p))
	}
	if t := conf.TCP; t != nil {
		c.tcpCheck(at+".tcp", t)
	}
	if h := conf.HTTP; h != nil {
		c.httpCheck(at+".http", h)
	}
	if g := conf.GRPC; g != nil {
		if !printable(g.ServiceName) {
			c.add(at+".grpc.serviceName", "%s is not the name of a service", quote(g.ServiceName))
		}
		if g.Authority != "" && !visible.MatchString(g.Authority) {
			c.add(at+".grpc.authority", "%s is not a host name, with or without a port", quote(g.Authority))
		}
	}
}

// checkCost returns the number of checks of one endpoint in 1,000 s, beyond one in 10 s.
func checkCost(conf *HealthCheckConf) int64 {
	const free, seconds = 100, 1000
	cost := int64(0)
	for _, interval := range []*Duration{conf.Interval, conf.NoTrafficInterval} {
		if interval != nil && *interval > 0 {
			cost = max(cost, int64(seconds*time.Second)/int64(*interval)-free)
		}
	}
	return cost
}

func (c *checks) tcpCheck(at string, t *TCPHealthCheck) {
	for i, text := range t.Receive {
		if text == "" {
			c.add(fmt.Sprintf("%s.receive[%d]", at, i), "is empty; leave receive out to check the connection alone")
		}
	}
}

func (c *checks) httpCheck(at string, h *HTTPHealthCheck) {
	if p := h.Path; p != "" {
		path, _, _ := strings.Cut(p, "?")
		if c.path(at+".path", path) && (!visible.MatchString(p) || strings.Contains(p, "#")) {
			c.add(at+".path", "%s is not a path with a query: printable characters without spaces and #", quote(p))
		}
	}
	if m := h.RequestHeadersToAdd; m != nil {
		c.checkHeaders(at+".requestHeadersToAdd.set", m.Set)
		c.checkHeaders(at+".requestHeadersToAdd.add", m.Add)
	}
	for i, status := range h.ExpectedStatuses {
		if slices.Contains(h.ExpectedStatuses[:i], status) {
			c.add(fmt.Sprintf("%s.expectedStatuses[%d]", at, i), "is %d, which is there before; leave it out", status)
		}
	}
}

func (c *checks) checkHeaders(at string, headers []CheckHeader) {
	for i, h := range headers {
		field := fmt.Sprintf("%s[%d]", at, i)
		c.checkedHeader(field+".name", strings.ToLower(h.Name))
		if !printable(h.Value) {
			c.add(field+".value", "%s is not the value of a header: printable characters", quote(h.Value))
		}
	}
}

// checkedHeader checks the name of a header of a check. A check has no URL that a user writes, so the host stays.
func (c *checks) checkedHeader(at, name string) {
	if name == "host" || strings.HasPrefix(name, ":") {
		c.add(at, "%s can't be changed: checks have the name of the cluster as their host; leave it out", quote(name))
		return
	}
	c.changedHeader(at, name)
}

// checksOfAll warns of checks that every proxy of a mesh sends to every endpoint.
func checksOfAll(p *MeshHealthCheck) []string {
	if p.TargetRef != nil && p.TargetRef.Kind != "Mesh" {
		return nil
	}
	var warnings []string
	for i := range p.To {
		if p.To[i].TargetRef.Kind == "Mesh" {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d]: every proxy of the mesh checks every endpoint that "+
				"it reaches, in each interval; target some Dataplanes, or the services that need checks", i))
		}
	}
	return warnings
}
