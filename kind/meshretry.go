package kind

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/resource"
)

// MeshRetry sets the retries of connections and requests that the proxies that it targets send.
//
// For each field and destination, the policy with the most specific target that has the field decides. A field that no
// policy has keeps the default of docs/defaults.md. A policy with the label kuma.io/effect: shadow has no effect.
type MeshRetry struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the retries of the connections and requests that the proxies send; of several items that select a destination,
	// the more specific or later one decides
	To []ToItem[RetryConf] `json:"to,omitempty" schema:"maxItems=256"`
}

// RetryConf has the retries of some traffic. A field that is left out keeps the value of a less specific policy.
type RetryConf struct {
	TCP  *TCPRetries  `json:"tcp,omitempty"`                           // retries of connections: tcp, tls, kafka
	HTTP *HTTPRetries `json:"http,omitempty" schema:"minProperties=1"` // retries of requests: http and http2
	GRPC *GRPCRetries `json:"grpc,omitempty" schema:"minProperties=1"` // retries of requests: grpc
}

// TCPRetries are the retries of connections while they are established.
type TCPRetries struct {
	// MaxConnectAttempt is the number of attempts to connect to an endpoint, including the first.
	MaxConnectAttempt *uint32 `json:"maxConnectAttempt,omitempty" schema:"required min=1" cost:"max=100 producer=10"`
}

// RequestRetries are the retries of requests of any protocol.
type RequestRetries struct {
	// NumRetries is the number of attempts after the first one; 0 turns retries off.
	NumRetries *uint32 `json:"numRetries,omitempty" schema:"min=0" cost:"max=100 producer=10"`
	// PerTryTimeout is the time in which an attempt must have its whole response; 0 for no limit.
	PerTryTimeout *Duration `json:"perTryTimeout,omitempty" schema:"min=1ms max=10y zero"`
	// BackOff is the wait before a retry.
	BackOff *BackOff `json:"backOff,omitempty" schema:"minProperties=1"`
	// RateLimitedBackOff is the wait before the retry of a response that tells the time.
	RateLimitedBackOff *RateLimitedBackOff `json:"rateLimitedBackOff,omitempty"`
}

// BackOff is the wait before a retry: random, and up to twice as long for each further retry.
type BackOff struct {
	// BaseInterval is the longest wait before the first retry; by default 25ms.
	BaseInterval *Duration `json:"baseInterval,omitempty" schema:"min=1ms max=10y"`
	// MaxInterval is the longest wait; by default 10 times the baseInterval.
	MaxInterval *Duration `json:"maxInterval,omitempty" schema:"min=1ms max=10y"`
}

// RateLimitedBackOff is the wait that a header of a response tells. A response without such a header has the wait of
// backOff.
type RateLimitedBackOff struct {
	// ResetHeaders are the headers; the first one that a response has decides.
	ResetHeaders []ResetHeader `json:"resetHeaders,omitempty" schema:"required minItems=1 maxItems=16"`
	// MaxInterval is the longest wait that a header may tell; a header with a longer one does not count. By default 5m.
	MaxInterval *Duration `json:"maxInterval,omitempty" schema:"min=1ms max=10y"`
}

// ResetHeader is a header of a response with a time.
type ResetHeader struct {
	Name string `json:"name" schema:"required maxLength=256"` // the name, in lower case
	// the unit: seconds to wait, or the time since 1970 in seconds
	Format string `json:"format" schema:"required enum=Seconds|UnixTimestamp"`
}

// HTTPRetries are the retries of requests of HTTP and HTTP/2.
type HTTPRetries struct {
	RequestRetries
	// RetryOn are the causes of a retry: 5xx, GatewayError, Reset, Retriable4xx, ConnectFailure, EnvoyRatelimited,
	// RefusedStream, Http3PostConnectFailure, or a status code such as "503". They replace the default causes, for
	// requests of every method, or of the methods that the list has as HttpMethodGet and so on.
	RetryOn []string `json:"retryOn,omitzero" schema:"maxItems=64 maxLength=64"`
	// RetriableResponseHeaders are further causes: a response with one of these headers is retried.
	RetriableResponseHeaders []HeaderMatch `json:"retriableResponseHeaders,omitzero" schema:"maxItems=32"`
	// RetriableRequestHeaders are headers of which a request must have one to be retried.
	RetriableRequestHeaders []HeaderMatch `json:"retriableRequestHeaders,omitzero" schema:"maxItems=32"`
	// HostSelection is the choice of the endpoint of a retry; by default one that was not tried before. An empty list
	// is any endpoint.
	HostSelection []HostSelection `json:"hostSelection,omitzero" schema:"maxItems=2"`
	// HostSelectionMaxAttempts is the number of times that an endpoint is chosen until hostSelection holds. Then the
	// last one is used.
	HostSelectionMaxAttempts *int64 `json:"hostSelectionMaxAttempts,omitempty" schema:"min=1" cost:"max=100 producer=16"`
}

// GRPCRetries are the retries of gRPC calls.
type GRPCRetries struct {
	RequestRetries
	// RetryOn are statuses that are retried: Canceled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable. The
	// default causes stay.
	RetryOn []string `json:"retryOn,omitzero" schema:"maxItems=16 enum=Canceled|DeadlineExceeded|Internal|ResourceExhausted|Unavailable"`
}

// HostSelection is one rule for the choice of the endpoint of a retry.
type HostSelection struct {
	// OmitPreviousHosts for an endpoint that was not tried before. OmitPreviousPriorities for another zone after some
	// attempts, which is so for every MeshMultiZoneService, and has no meaning for other destinations
	Predicate string `json:"predicate" schema:"required enum=OmitPreviousHosts|OmitPreviousPriorities"`
	// UpdateFrequency is the number of attempts before another zone gets one.
	UpdateFrequency *int32 `json:"updateFrequency,omitempty" schema:"min=1 max=1000 default=2"`
}

// defaultUpdateFrequency is the default of HostSelection.UpdateFrequency.
const defaultUpdateFrequency = 2

// Predicates of a [HostSelection].
const (
	OmitPreviousHosts      = "OmitPreviousHosts"
	OmitPreviousPriorities = "OmitPreviousPriorities"
)

// MeshRetries is the kind of [MeshRetry].
var MeshRetries = NewPolicy(PolicyKind[MeshRetry, RetryConf]{
	Costs: &PortCosts[*RetryConf]{Unit: regexUnit, Of: regexCost[RetryConf], EachRoute: true, Most: maxRegexCost,
		Producer: maxRegexCost / 16},
	Kind: resource.Kind[MeshRetry]{
		Info: resource.Info{
			Name: "MeshRetry", Plural: "meshretries", ShortName: "mr",
			Replaces: []resource.OlderKind{{Name: "Retry", Plural: "retries"}},
			Replaced: replacedInTargets(map[string]string{
				"to.default.http.hostSelection.tags": "is not served by this release, in which proxies do not have " +
					"the tags of endpoints; use OmitPreviousHosts",
			}),
		},
		Default:  defaultMeshRetry,
		Validate: validateMeshRetry,
	},
	Combination: &Combination[*RetryConf]{Partial: partialBackOff, Conflict: retryConflict},
	Content:     methodsAlone,
	Fields: []FieldRule[RetryConf]{
		{Prefix: "http.", Protocols: []Protocol{HTTP, HTTP2}},
		{Prefix: "grpc.", Protocols: []Protocol{GRPC}},
		{Prefix: "tcp.", Protocols: []Protocol{TCP, TLS, Kafka}},
		{Prefix: "tcp.maxConnectAttempt", Connections: true},
	},
})

// HTTPMethodPrefix is the beginning of the entries of HTTPRetries.RetryOn that are methods.
const HTTPMethodPrefix = "HttpMethod"

var (
	httpRetryCauses = []string{"5xx", "GatewayError", "Reset", "Retriable4xx", "ConnectFailure", "EnvoyRatelimited",
		"RefusedStream", "Http3PostConnectFailure"}
	httpRetryMethods = []string{"HttpMethodConnect", "HttpMethodDelete", "HttpMethodGet", "HttpMethodHead",
		"HttpMethodOptions", "HttpMethodPatch", "HttpMethodPost", "HttpMethodPut", "HttpMethodTrace"}
)

// defaultMeshRetry removes the frequencies that clients of Kuma fill in for each predicate: 0 where they have none, and
// the default where it has no meaning.
func defaultMeshRetry(o *resource.Object[MeshRetry]) {
	for i := range o.Spec.To {
		http := o.Spec.To[i].Default.HTTP
		if http == nil {
			continue
		}
		for j := range http.HostSelection {
			rule := &http.HostSelection[j]
			if n := rule.UpdateFrequency; n != nil && (*n == 0 || *n == defaultUpdateFrequency &&
				rule.Predicate != OmitPreviousPriorities) {
				rule.UpdateFrequency = nil
			}
		}
	}
}

func validateMeshRetry(o *resource.Object[MeshRetry], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkTo(c, o.Spec.To, (*checks).destinationOrRouteRef, (*checks).retries)
	for i := range o.Spec.To {
		if to := &o.Spec.To[i]; to.TargetRef.Kind == "MeshHTTPRoute" && to.Default.TCP != nil {
			c.add(fmt.Sprintf("spec.to[%d].default.tcp", i), "is about connections, and a MeshHTTPRoute has requests; "+
				"leave it out, or target the service")
		}
	}
	return c.problems
}

func (c *checks) retries(at string, conf *RetryConf) {
	if *conf == (RetryConf{}) {
		c.add(at, "has no field; want tcp, http or grpc")
	}
	if h := conf.HTTP; h != nil {
		c.requestRetries(at+".http", &h.RequestRetries, reflect.ValueOf(*h).IsZero())
		for i, cause := range h.RetryOn {
			c.httpRetryCause(fmt.Sprintf("%s.http.retryOn[%d]", at, i), cause)
		}
		c.headerMatches(at+".http.retriableResponseHeaders", h.RetriableResponseHeaders)
		c.headerMatches(at+".http.retriableRequestHeaders", h.RetriableRequestHeaders)
		c.hostSelection(at+".http.hostSelection", h.HostSelection)
	}
	if g := conf.GRPC; g != nil {
		c.requestRetries(at+".grpc", &g.RequestRetries, reflect.ValueOf(*g).IsZero())
	}
	if reason := retryConflict(conf); reason != "" {
		c.add(at, "%s", reason)
	}
}

func (c *checks) requestRetries(at string, r *RequestRetries, empty bool) {
	if empty {
		c.add(at, "has no field; want numRetries, perTryTimeout, backOff, rateLimitedBackOff, retryOn or another one")
	}
	if b := r.BackOff; b != nil && *b == (BackOff{}) {
		c.add(at+".backOff", "has no field; want baseInterval or maxInterval")
	}
	if b := r.RateLimitedBackOff; b != nil {
		for i, header := range b.ResetHeaders {
			c.headerName(fmt.Sprintf("%s.rateLimitedBackOff.resetHeaders[%d].name", at, i), header.Name)
		}
	}
}

func (c *checks) httpRetryCause(at, cause string) {
	code, err := strconv.Atoi(cause)
	switch {
	case slices.Contains(httpRetryCauses, cause) || slices.Contains(httpRetryMethods, cause):
	case err == nil && strconv.Itoa(code) == cause:
		if code < 100 || code > 599 {
			c.add(at, "is the status code %s, want 100 to 599", cause)
		}
	default:
		c.add(at, "is %s, want one of %s, a status code such as 503, or %s with a method, such as HttpMethodGet",
			quote(cause), strings.Join(httpRetryCauses, ", "), HTTPMethodPrefix)
	}
}

func (c *checks) hostSelection(at string, rules []HostSelection) {
	seen := map[string]bool{}
	for i, rule := range rules {
		each := fmt.Sprintf("%s[%d]", at, i)
		if rule.Predicate == "OmitHostsWithTags" {
			c.instead(each+".predicate", "is OmitHostsWithTags, which is not served by this release, in which proxies "+
				"do not have the tags of endpoints; use OmitPreviousHosts")
			continue
		}
		if seen[rule.Predicate] {
			c.add(each+".predicate", "is %s again; remove one of them", rule.Predicate)
		}
		seen[rule.Predicate] = true
		if rule.UpdateFrequency != nil && rule.Predicate != OmitPreviousPriorities {
			c.add(each+".updateFrequency", "has no meaning here; it belongs to OmitPreviousPriorities")
		}
	}
}

// backOffs returns the waits of a conf by protocol, in a constant order.
func (conf *RetryConf) backOffs() []protocolBackOff {
	var all []protocolBackOff
	if conf.HTTP != nil && conf.HTTP.BackOff != nil {
		all = append(all, protocolBackOff{"http", conf.HTTP.BackOff})
	}
	if conf.GRPC != nil && conf.GRPC.BackOff != nil {
		all = append(all, protocolBackOff{"grpc", conf.GRPC.BackOff})
	}
	return all
}

type protocolBackOff struct {
	protocol string
	*BackOff
}

// partialBackOff reports whether a conf has one interval of a wait and leaves the other to other policies.
func partialBackOff(conf *RetryConf) bool {
	return slices.ContainsFunc(conf.backOffs(), func(b protocolBackOff) bool {
		return (b.BaseInterval == nil) != (b.MaxInterval == nil)
	})
}

// retryConflict returns why the intervals of a wait contradict each other.
func retryConflict(conf *RetryConf) string {
	for _, b := range conf.backOffs() {
		if b.BaseInterval != nil && b.MaxInterval != nil && *b.BaseInterval > *b.MaxInterval {
			return fmt.Sprintf("%s.backOff.maxInterval is %s, which is below the baseInterval of %s", b.protocol,
				time.Duration(*b.MaxInterval), time.Duration(*b.BaseInterval))
		}
	}
	return ""
}

// methodsAlone warns of methods that have no causes of their own.
func methodsAlone(p *MeshRetry) []string {
	var warnings []string
	for i := range p.To {
		h := p.To[i].Default.HTTP
		if h == nil || len(h.RetryOn) == 0 || len(h.RetriableResponseHeaders) > 0 ||
			slices.ContainsFunc(h.RetryOn, isCause) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.http.retryOn: has methods and no cause, so it "+
			"changes nothing; add a cause, such as 5xx", i))
	}
	return warnings
}

// isCause reports whether an entry of HTTPRetries.RetryOn is no method.
func isCause(entry string) bool { return !strings.HasPrefix(entry, HTTPMethodPrefix) }
