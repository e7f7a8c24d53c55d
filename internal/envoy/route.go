package envoy

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// safeMethods are those that ask for no change (RFC 9110, 9.2.1). PUT and DELETE, which are idempotent
// too, are left out: too many applications make something of how often they come.
var safeMethods = []string{"GET", "HEAD", "OPTIONS", "TRACE"}

// Route is where the requests of a destination go; nil for one that is bytes. Listeners refer to it by
// the destination's name, so that what becomes of it drains no connection.
func Route(d *graph.Destination) *xds.Resource {
	if !d.Protocol.IsHTTP() {
		return nil
	}
	name := d.Key.String()
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: bySafety(name,
			to(d, retryPolicy(safeCauses, trusted(d, unservedRefused, unservedReset)...)),
			to(d, retryPolicy(unprocessedCauses, trusted(d, unservedRefused)...))),
		ValidateClusters: no(),
	})
}

// trusted are the marks of [unservedHeader] on which requests to a destination are sent elsewhere. None is where an
// inbound does not read requests: an application can write any of them there.
func trusted(d *graph.Destination, marks ...string) []string {
	if d.HasTCPInbound() {
		return nil
	}
	return marks
}

// bySafety sends requests that ask for no change one way, which may try again more often, and all others another.
func bySafety(name string, safe, other *routev3.Route_Route) []*routev3.VirtualHost {
	return []*routev3.VirtualHost{{
		Name:    name,
		Domains: []string{"*"},
		// Envoy removes it after it has decided whether to retry.
		ResponseHeadersToRemove: []string{unservedHeader},
		Routes: []*routev3.Route{
			{
				Name:   "safe",
				Match:  &routev3.RouteMatch{PathSpecifier: anyPath(), Headers: []*routev3.HeaderMatcher{headerIn(":method", safeMethods)}},
				Action: safe,
			},
			{
				Name:   "other",
				Match:  &routev3.RouteMatch{PathSpecifier: anyPath()},
				Action: other,
			},
		},
	}}
}

func to(d *graph.Destination, retry *routev3.RetryPolicy) *routev3.Route_Route {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: d.Key.String()},
		Timeout:          duration(requestTimeout),
		RetryPolicy:      retry,
	}
	if d.Key.Kind == graph.MultiZoneService {
		retry.RetryPriority = otherZoneThen
	}
	if d.Protocol == kind.GRPC {
		action.Timeout = duration(0)
		action.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: duration(0)}
	}
	return &routev3.Route_Route{Route: action}
}

const (
	// safeCauses send a request elsewhere whenever its server went away, whether or not it had begun.
	safeCauses = "connect-failure,refused-stream,reset"
	// unprocessedCauses send one elsewhere only where no application can have seen it.
	unprocessedCauses = "connect-failure,refused-stream,reset-before-request"
)

// retryPolicy sends requests elsewhere for causes, and where the server's proxy says that they are unserved, if one of
// ours is there.
func retryPolicy(causes string, unserved ...string) *routev3.RetryPolicy {
	policy := &routev3.RetryPolicy{
		RetryOn:    causes,
		NumRetries: number(retries),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: previousHosts},
		}},
		HostSelectionRetryMaxAttempts: otherHostAttempts,
	}
	if len(unserved) > 0 {
		policy.RetryOn += ",retriable-headers"
		policy.RetriableHeaders = []*routev3.HeaderMatcher{headerIn(unservedHeader, unserved)}
	}
	return policy
}

var previousHosts = pack(&previoushostsv3.PreviousHostsPredicate{})

func anyPath() *routev3.RouteMatch_Prefix { return &routev3.RouteMatch_Prefix{Prefix: "/"} }

// headerIn matches a header with exactly one of the values, which are no patterns.
func headerIn(name string, values []string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
				Regex: strings.Join(values, "|"),
			}},
		}},
	}
}

// localRoute is the route of an inbound. It is part of the listener, since nothing in it ever changes: how
// long a request may take is for its client to say, and what can't be served here is for the client's
// proxy to send elsewhere.
func localRoute(cluster string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: cluster,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    cluster,
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: anyPath()},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
					Timeout:          duration(0),
				}},
			}},
		}},
		ValidateClusters: no(),
	}
}
