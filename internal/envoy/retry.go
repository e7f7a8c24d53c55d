package envoy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"

	"weft/internal/service"
	"weft/kind"
)

const (
	// safeRetryOn retries a request at another endpoint after any failure of its server.
	safeRetryOn = "connect-failure,refused-stream,reset"
	// unprocessedRetryOn retries a request only where no application can have seen it.
	unprocessedRetryOn = "connect-failure,refused-stream,reset-before-request"
)

// safeMethods are the methods that request no change (RFC 9110, 9.2.1). PUT and DELETE are idempotent but excluded,
// since many applications count them.
var safeMethods = []string{"GET", "HEAD", "OPTIONS", "TRACE"}

// retriesOf returns the retries of requests that policies set for a protocol. A gRPC call has the fields that it shares
// with other requests, and its statuses are the RetryOn.
func retriesOf(protocol kind.Protocol, conf *kind.RetryConf) kind.HTTPRetries {
	switch {
	case protocol == kind.GRPC && conf.GRPC != nil:
		return kind.HTTPRetries{RequestRetries: conf.GRPC.RequestRetries, RetryOn: conf.GRPC.RetryOn}
	case protocol != kind.GRPC && conf.HTTP != nil:
		return *conf.HTTP
	}
	return kind.HTTPRetries{}
}

// retryTokens are Envoy's words for the causes of retries.
var retryTokens = map[string]string{
	"5xx": "5xx", "GatewayError": "gateway-error", "Reset": "reset", "Retriable4xx": "retriable-4xx",
	"ConnectFailure": "connect-failure", "EnvoyRatelimited": "envoy-ratelimited", "RefusedStream": "refused-stream",
	"Http3PostConnectFailure": "http3-post-connect-failure",
}

// statusTokens are Envoy's words for the statuses of gRPC.
var statusTokens = map[string]string{
	"Canceled": "cancelled", "DeadlineExceeded": "deadline-exceeded", "Internal": "internal",
	"ResourceExhausted": "resource-exhausted", "Unavailable": "unavailable",
}

// retryCauses are the causes of retries that policies set, in Envoy's words.
type retryCauses struct {
	tokens []string // in place of the default causes; none: the default ones
	added  []string // beside them
	codes  []uint32
	// headers of responses are causes beside all others.
	headers []*routev3.HeaderMatcher
}

// retryCausesOf returns the causes of a conf, and the methods that have them; none: every method.
func retryCausesOf(conf *kind.HTTPRetries) (causes retryCauses, methods []string) {
	for _, cause := range conf.RetryOn {
		if method, found := strings.CutPrefix(cause, kind.HTTPMethodPrefix); found {
			methods = append(methods, strings.ToUpper(method))
		} else if code, err := strconv.ParseUint(cause, 10, 32); err == nil {
			causes.codes = append(causes.codes, uint32(code))
		} else if token := statusTokens[cause]; token != "" {
			causes.added = append(causes.added, token)
		} else {
			causes.tokens = append(causes.tokens, retryTokens[cause])
		}
	}
	if len(causes.codes) > 0 {
		causes.tokens = append(causes.tokens, "retriable-status-codes")
	}
	causes.headers = headerMatchers(conf.RetriableResponseHeaders)
	return causes, methods
}

// ruleRetries makes the routes of a rule.
type ruleRetries struct {
	to   *service.Route
	rule *service.RouteRule
	conf kind.HTTPRetries
}

// retriedRoutes returns the routes of a rule. Requests of safe methods are retried on more causes than others. Where
// policies set causes for some methods, these have routes of their own before the others.
func retriedRoutes(to *service.Route, rule *service.RouteRule) []*routev3.Route {
	r := ruleRetries{to, rule, retriesOf(to.Protocol, &to.EffectiveOf(rule).Retry)}
	causes, methods := retryCausesOf(&r.conf)
	if method := rule.Match.Method; method != "" {
		if len(methods) > 0 && !slices.Contains(methods, method) {
			causes = retryCauses{}
		}
		return []*routev3.Route{route(rule, "", r.action(slices.Contains(safeMethods, method), causes))}
	}
	var routes []*routev3.Route
	if len(methods) > 0 {
		isSafe := func(method string) bool { return slices.Contains(safeMethods, method) }
		unsafe := slices.DeleteFunc(slices.Clone(methods), isSafe)
		safe := slices.DeleteFunc(methods, func(method string) bool { return !isSafe(method) })
		if len(safe) > 0 {
			routes = append(routes, methodRoute(rule, "retried-safe", safe, r.action(true, causes)))
		}
		if len(unsafe) > 0 {
			routes = append(routes, methodRoute(rule, "retried-other", unsafe, r.action(false, causes)))
		}
		causes = retryCauses{}
	}
	return append(routes, bySafety(rule, r.action(true, causes), r.action(false, causes))...)
}

func (r *ruleRetries) action(safe bool, causes retryCauses) *routev3.Route_Route {
	return routeAction(r.to, r.rule, r.policy(safe, causes))
}

// policy returns the retries of requests of safe methods, or of other ones; nil where a policy turns them off.
func (r *ruleRetries) policy(safe bool, causes retryCauses) *routev3.RetryPolicy {
	if n := r.conf.NumRetries; n != nil && *n == 0 {
		return nil
	}
	tokens, marks := []string{unprocessedRetryOn}, []string{unservedNotReached}
	if safe {
		tokens, marks = []string{safeRetryOn}, []string{unservedNotReached, unservedReset}
	}
	if len(causes.tokens) > 0 {
		tokens = causes.tokens
	}
	policy := retryPolicy(strings.Join(slices.Concat(tokens, causes.added), ","), trustedMarks(r.rule, marks...)...)
	policy.RetriableStatusCodes = causes.codes
	if len(causes.headers) > 0 {
		if len(policy.RetriableHeaders) == 0 {
			policy.RetryOn += ",retriable-headers"
		}
		policy.RetriableHeaders = append(policy.RetriableHeaders, causes.headers...)
	}
	policy.RetriableRequestHeaders = headerMatchers(r.conf.RetriableRequestHeaders)
	if crossesZones(r.rule) {
		policy.NumRetries = uint32Value(crossZoneRetries)
	}
	if toManyZones(r.rule) {
		policy.RetryPriority = otherPriority(localAttempts)
		policy.NumRetries = uint32Value(zoneRetries(&r.to.EffectiveOf(r.rule).LoadBalancing))
	}
	setRetries(policy, &r.conf.RequestRetries)
	setHostSelection(policy, &r.conf)
	return policy
}

// zoneRetries returns the number of retries with which a request has its attempts in each priority of zones.
func zoneRetries(conf *kind.LoadBalancingConf) uint32 {
	priorities := 1 + len(conf.Locality().Priorities())
	return min(max(crossZoneRetries, uint32(priorities)*localAttempts-1), maxZoneRetries)
}

// retryPolicy retries requests on causes, and on a response of the server's proxy with one of the unserved marks.
func retryPolicy(causes string, unserved ...string) *routev3.RetryPolicy {
	policy := &routev3.RetryPolicy{
		RetryOn:                       causes,
		NumRetries:                    uint32Value(retries),
		RetryHostPredicate:            []*routev3.RetryPolicy_RetryHostPredicate{previousHosts},
		HostSelectionRetryMaxAttempts: otherHostAttempts,
	}
	if len(unserved) > 0 {
		policy.RetryOn += ",retriable-headers"
		policy.RetriableHeaders = []*routev3.HeaderMatcher{headerIn(unservedHeader, unserved)}
	}
	return policy
}

var previousHosts = &routev3.RetryPolicy_RetryHostPredicate{
	Name: "envoy.retry_host_predicates.previous_hosts",
	ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
		TypedConfig: toAny(&previoushostsv3.PreviousHostsPredicate{}),
	},
}

// setRetries sets the number and the times of retries to those of policies.
func setRetries(policy *routev3.RetryPolicy, conf *kind.RequestRetries) {
	if conf.NumRetries != nil {
		policy.NumRetries = uint32Value(*conf.NumRetries)
	}
	policy.PerTryTimeout = limit(conf.PerTryTimeout, 0)
	if b := conf.BackOff; b != nil {
		base := retryBaseInterval
		if b.MaxInterval != nil {
			base = min(base, time.Duration(*b.MaxInterval))
		}
		policy.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: timeout(b.BaseInterval, base)}
		if b.MaxInterval != nil {
			policy.RetryBackOff.MaxInterval = timeout(b.MaxInterval, 0)
		}
	}
	if b := conf.RateLimitedBackOff; b != nil {
		policy.RateLimitedRetryBackOff = rateLimitedBackOff(b)
	}
}

func rateLimitedBackOff(conf *kind.RateLimitedBackOff) *routev3.RetryPolicy_RateLimitedRetryBackOff {
	backOff := &routev3.RetryPolicy_RateLimitedRetryBackOff{MaxInterval: limit(conf.MaxInterval, 0)}
	for _, header := range conf.ResetHeaders {
		format := routev3.RetryPolicy_SECONDS
		if header.Format == "UnixTimestamp" {
			format = routev3.RetryPolicy_UNIX_TIMESTAMP
		}
		backOff.ResetHeaders = append(backOff.ResetHeaders, &routev3.RetryPolicy_ResetHeader{Name: header.Name,
			Format: format})
	}
	return backOff
}

// setHostSelection sets the choice of the endpoint of a retry to that of policies.
func setHostSelection(policy *routev3.RetryPolicy, conf *kind.HTTPRetries) {
	if n := conf.HostSelectionMaxAttempts; n != nil {
		policy.HostSelectionRetryMaxAttempts = *n
	}
	if conf.HostSelection == nil {
		return
	}
	policy.RetryHostPredicate = nil
	for _, rule := range conf.HostSelection {
		switch {
		case rule.Predicate == kind.OmitPreviousHosts:
			policy.RetryHostPredicate = append(policy.RetryHostPredicate, previousHosts)
		case rule.UpdateFrequency != nil:
			policy.RetryPriority = otherPriority(*rule.UpdateFrequency)
		default:
			policy.RetryPriority = otherPriority(localAttempts)
		}
	}
}

// otherPriority sends the retries of a request to another priority after some attempts at one: to remote zones, or to
// the next endpoints of an external service.
func otherPriority(attempts int32) *routev3.RetryPolicy_RetryPriority {
	return &routev3.RetryPolicy_RetryPriority{
		Name: "envoy.retry_priorities.previous_priorities",
		ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
			TypedConfig: toAny(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: attempts}),
		},
	}
}
