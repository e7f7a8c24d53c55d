package envoy

import (
	"net/http"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// Route returns the configuration of a route: a route configuration, or the TCP proxy to the clusters of the last rule.
// Listeners refer to it by its name, so its changes drain no connection.
func Route(to *service.Route) *xds.Resource {
	name := to.Destination.String()
	if !to.Protocol.IsHTTP() {
		return tcpProxy(name, routedConnections(name, to, to.Last()))
	}
	routes := []*routev3.Route{malformedHost()}
	for i := range to.Rules {
		routes = append(routes, ruleRoutes(to, &to.Rules[i])...)
	}
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{
		Name: name, VirtualHosts: everyHost(name, routes), ValidateClusters: boolFalse(),
	})
}

// malformedHost rejects the hosts that Envoy accepts in HTTP/1.1 and rejects in HTTP/2: an empty one (RFC 9110, 4.2.1),
// and one with user information (RFC 9113, 8.3.1). A request that the next proxy rejects would be retried.
func malformedHost() *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: anyPath(), Headers: []*routev3.HeaderMatcher{
			headerIn(":authority", []string{"", ".*@.*"})}},
		Action: directResponse(http.StatusBadRequest, "the request has no valid host"),
	}
}

// everyHost returns the virtual host of a destination, which has all its host names.
func everyHost(name string, routes []*routev3.Route) []*routev3.VirtualHost {
	return []*routev3.VirtualHost{{
		Name:    name,
		Domains: []string{"*"},
		// Envoy removes it after its decision about a retry.
		ResponseHeadersToRemove: []string{unservedHeader},
		Routes:                  routes,
	}}
}

// trustedMarks returns the values of [unservedHeader] on which requests of a rule are retried. It returns none where an
// inbound does not read requests, since an application can write any of them there.
func trustedMarks(rule *service.RouteRule, marks ...string) []string {
	if slices.ContainsFunc(rule.Backends, func(b service.RouteBackend) bool { return b.TCPInbound }) {
		return nil
	}
	return marks
}

// bySafety routes requests of safe methods by one route, which may retry more often, and all others by another.
func bySafety(rule *service.RouteRule, safe, other *routev3.Route_Route) []*routev3.Route {
	return []*routev3.Route{methodRoute(rule, "safe", safeMethods, safe), methodRoute(rule, "other", nil, other)}
}

// methodRoute returns the route of the requests of a rule with some methods; without methods, of all.
func methodRoute(rule *service.RouteRule, part string, methods []string, action *routev3.Route_Route) *routev3.Route {
	r := route(rule, part, action)
	if len(methods) > 0 {
		r.Match.Headers = append(r.Match.Headers, headerIn(":method", methods))
	}
	return r
}

// routeAction sends the requests of a rule to its backends. retry is nil where they are not retried.
func routeAction(to *service.Route, rule *service.RouteRule, retry *routev3.RetryPolicy) *routev3.Route_Route {
	effective := to.EffectiveOf(rule)
	requests := effective.Timeout.Requests()
	action := &routev3.RouteAction{Timeout: timeout(requests.RequestTimeout, requestTimeout), RetryPolicy: retry,
		HashPolicy: hashed(&effective.LoadBalancing)}
	if requests.StreamIdleTimeout != nil {
		action.IdleTimeout = timeout(requests.StreamIdleTimeout, streamIdleTimeout)
	}
	if len(rule.Backends) == 1 {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: rule.Backends[0].Destination.String()}
	} else {
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted(rule)}
	}
	rewrite(action, rule)
	if slices.ContainsFunc(rule.Backends, func(b service.RouteBackend) bool { return !b.Exists() }) {
		action.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR
	}
	if to.Protocol == kind.GRPC {
		action.Timeout = timeout(requests.RequestTimeout, 0)
		action.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: duration(0)}
	}
	return &routev3.Route_Route{Route: action}
}

func weighted(rule *service.RouteRule) *routev3.WeightedCluster {
	clusters := &routev3.WeightedCluster{}
	for _, b := range rule.Backends {
		clusters.Clusters = append(clusters.Clusters,
			&routev3.WeightedCluster_ClusterWeight{Name: clusterOf(&b), Weight: uint32Value(b.Weight)})
	}
	return clusters
}

// clusterOf returns the name of the cluster of a backend.
func clusterOf(b *service.RouteBackend) string {
	if !b.Exists() {
		return unresolvedCluster
	}
	return b.Destination.String()
}

// toManyZones reports whether a backend of the rule is an aggregate of the clusters of several zones.
func toManyZones(rule *service.RouteRule) bool {
	return slices.ContainsFunc(rule.Backends, func(b service.RouteBackend) bool {
		return b.Destination.Kind == service.MultiZoneService
	})
}

// crossesZones reports whether a backend of the rule has servers in a remote zone.
func crossesZones(rule *service.RouteRule) bool {
	return slices.ContainsFunc(rule.Backends, func(b service.RouteBackend) bool { return b.CrossZone })
}

func anyPath() *routev3.RouteMatch_Prefix { return belowPath("/") }

func belowPath(prefix string) *routev3.RouteMatch_Prefix {
	return &routev3.RouteMatch_Prefix{Prefix: prefix}
}

// headerIn matches a header that equals one of the values.
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

// headerMatchers returns the matches of policies.
func headerMatchers(matches []kind.HeaderMatch) []*routev3.HeaderMatcher {
	var matchers []*routev3.HeaderMatcher
	for _, m := range matches {
		matcher := &routev3.HeaderMatcher{Name: m.Name}
		if m.Type == kind.HeaderPresent || m.Type == kind.HeaderAbsent {
			matcher.HeaderMatchSpecifier =
				&routev3.HeaderMatcher_PresentMatch{PresentMatch: m.Type == kind.HeaderPresent}
		} else {
			matcher.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: stringMatcher(m)}
		}
		matchers = append(matchers, matcher)
	}
	return matchers
}

func stringMatcher(m kind.HeaderMatch) *matcherv3.StringMatcher {
	switch m.Type {
	case kind.HeaderPrefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: m.Value}}
	case kind.HeaderRegex:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
			SafeRegex: &matcherv3.RegexMatcher{Regex: m.Value}}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: m.Value}}
}
