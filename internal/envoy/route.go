package envoy

import (
	"strings"

	routes "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matchers "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

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
	return xds.NewResource(xds.Route, name, &routes.RouteConfiguration{
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
func bySafety(name string, safe, other *routes.Route_Route) []*routes.VirtualHost {
	return []*routes.VirtualHost{{
		Name:    name,
		Domains: []string{"*"},
		// Envoy removes it after it has decided whether to retry.
		ResponseHeadersToRemove: []string{unservedHeader},
		Routes: []*routes.Route{
			{
				Name:   "safe",
				Match:  &routes.RouteMatch{PathSpecifier: anyPath(), Headers: []*routes.HeaderMatcher{headerIn(":method", safeMethods)}},
				Action: safe,
			},
			{
				Name:   "other",
				Match:  &routes.RouteMatch{PathSpecifier: anyPath()},
				Action: other,
			},
		},
	}}
}

func to(d *graph.Destination, retry *routes.RetryPolicy) *routes.Route_Route {
	action := &routes.RouteAction{
		ClusterSpecifier: &routes.RouteAction_Cluster{Cluster: d.Key.String()},
		Timeout:          duration(requestTimeout),
		RetryPolicy:      retry,
	}
	if d.Key.Kind == graph.MultiZoneService {
		retry.RetryPriority = otherZoneThen
	}
	if d.Protocol == kind.GRPC {
		action.Timeout = duration(0)
		action.MaxStreamDuration = &routes.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: duration(0)}
	}
	return &routes.Route_Route{Route: action}
}

const (
	// safeCauses send a request elsewhere whenever its server went away, whether or not it had begun.
	safeCauses = "connect-failure,refused-stream,reset"
	// unprocessedCauses send one elsewhere only where no application can have seen it.
	unprocessedCauses = "connect-failure,refused-stream,reset-before-request"
)

// retryPolicy sends requests elsewhere for causes, and where the server's proxy says that they are unserved, if one of
// ours is there.
func retryPolicy(causes string, unserved ...string) *routes.RetryPolicy {
	policy := &routes.RetryPolicy{
		RetryOn:    causes,
		NumRetries: number(retries),
		RetryHostPredicate: []*routes.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routes.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: previousHosts},
		}},
		HostSelectionRetryMaxAttempts: otherHostAttempts,
	}
	if len(unserved) > 0 {
		policy.RetryOn += ",retriable-headers"
		policy.RetriableHeaders = []*routes.HeaderMatcher{headerIn(unservedHeader, unserved)}
	}
	return policy
}

var previousHosts = pack(&previous.PreviousHostsPredicate{})

func anyPath() *routes.RouteMatch_Prefix { return &routes.RouteMatch_Prefix{Prefix: "/"} }

// headerIn matches a header with exactly one of the values, which are no patterns.
func headerIn(name string, values []string) *routes.HeaderMatcher {
	return &routes.HeaderMatcher{
		Name: name,
		HeaderMatchSpecifier: &routes.HeaderMatcher_StringMatch{StringMatch: &matchers.StringMatcher{
			MatchPattern: &matchers.StringMatcher_SafeRegex{SafeRegex: &matchers.RegexMatcher{
				Regex: strings.Join(values, "|"),
			}},
		}},
	}
}

// localRoute is the route of an inbound. It is part of the listener, since nothing in it ever changes: how
// long a request may take is for its client to say, and what can't be served here is for the client's
// proxy to send elsewhere.
func localRoute(cluster string) *routes.RouteConfiguration {
	return &routes.RouteConfiguration{
		Name: cluster,
		VirtualHosts: []*routes.VirtualHost{{
			Name:    cluster,
			Domains: []string{"*"},
			Routes: []*routes.Route{{
				Match: &routes.RouteMatch{PathSpecifier: anyPath()},
				Action: &routes.Route_Route{Route: &routes.RouteAction{
					ClusterSpecifier: &routes.RouteAction_Cluster{Cluster: cluster},
					Timeout:          duration(0),
				}},
			}},
		}},
		ValidateClusters: no(),
	}
}
