package envoy

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// localRoute is the route of an inbound to its application. Without a policy, the client sets the timeout; the client's
// proxy retries, except for [repeatUnbegun]. Callers with timeouts of their own have routes of their own, the most
// specific match first. It enables the slots that are in use.
func localRoute(l *proxy.InboundListener, secured bool, inUse []slotFilters) *xds.Resource {
	name, received := InboundName(l.Address, l.Port), proxy.ReceivedOf(l.Confs)
	var routes []*routev3.Route
	if secured {
		for _, c := range received.Timeout.Some() {
			for _, caller := range matchesOfCaller(c.Match) {
				routes = append(routes, toApplicationWithin(name, &c.Conf, caller))
			}
		}
	}
	all := received.Timeout.All()
	routes = append(routes, toApplicationWithin(name, &all))
	if l.Protocol != kind.HTTP {
		repeatUnbegun(routes)
	}
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    name,
			Domains: []string{"*"},
			Routes:  routes,
		}},
		ValidateClusters:     boolFalse(),
		TypedPerFilterConfig: enabled(inUse),
	})
}

// toApplicationWithin forwards the requests with all of the headers within the timeouts.
func toApplicationWithin(cluster string, t *kind.TimeoutConf, headers ...*routev3.HeaderMatcher) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: anyPath(), Headers: headers},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			Timeout:          timeout(t.Requests().RequestTimeout, 0),
			IdleTimeout:      optional(t.Requests().StreamIdleTimeout),
		}},
	}
}

// repeatUnbegun repeats the requests that an application of HTTP/2 has not begun: those that it resets, and those that
// it has not reached when it closes a connection (RFC 9113, 6.8 and 8.7). A connection on which it does so gets no
// further request. A request with a longer body than the proxy keeps is marked instead, for the client's proxy.
func repeatUnbegun(routes []*routev3.Route) {
	for _, r := range routes {
		r.RequestBodyBufferLimit = wrapperspb.UInt64(repeatedBody)
		r.GetRoute().RetryPolicy = &routev3.RetryPolicy{RetryOn: "refused-stream",
			NumRetries: uint32Value(unbegunRetries)}
	}
}

// clientCertHeader is the header in which the proxy itself writes the SPIFFE IDs of a caller, after the handshake and
// before it chooses a route: "By=ID;Hash=HASH;URI=ID", with a further ";URI=ID" for each further ID. A value of the
// caller is removed before. The characters of a SPIFFE ID need no escape.
const clientCertHeader = "x-forwarded-client-cert"

// matchesOfCaller returns matches of a caller of which any one suffices: its ID is the last one, or another follows.
func matchesOfCaller(m proxy.Match) []*routev3.HeaderMatcher {
	const uri = ";URI="
	contains := func(text string) *routev3.HeaderMatcher {
		return clientCert(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: text}})
	}
	var matchers []*routev3.HeaderMatcher
	if id := m.ID.Exact; id != "" {
		matchers = append(matchers, clientCert(&matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: uri + id},
		}), contains(uri+id+";"))
	}
	if m.ID.Prefix != "" {
		matchers = append(matchers, contains(uri+m.ID.Prefix))
	}
	return matchers
}

func clientCert(value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 clientCertHeader,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value},
	}
}
