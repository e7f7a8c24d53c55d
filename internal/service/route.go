package service

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// Route is the decision where the traffic goes that clients address to a destination. The listeners of the destination
// lead to its route, and the route to the clusters of its backends.
type Route struct {
	// Destination is the destination that clients address. Its name is also the name of the route.
	Destination DestinationKey
	Protocol    kind.Protocol
	// Rules are in the order of their precedence: the first rule that matches a request decides. The last one matches
	// every request. Connections of a protocol without requests follow the last rule.
	Rules []RouteRule
	// Effective are the confs of the traffic of some proxies. The stage of routes leaves it empty; see [With].
	Effective Effective
}

// With returns the route as proxies with effective confs take it.
func (r *Route) With(e Effective) *Route {
	with := *r
	with.Effective = e
	return &with
}

// RouteRule is one rule of a route.
type RouteRule struct {
	Match    RequestMatch
	Backends []RouteBackend // at least one
}

// RequestMatch matches requests.
type RequestMatch struct {
	PathPrefix string // "/" matches every path
}

// everyRequest matches every request.
var everyRequest = RequestMatch{PathPrefix: "/"}

// RouteBackend is a destination that gets a share of the traffic of a rule.
type RouteBackend struct {
	Destination DestinationKey
	Weight      uint32 // its share, relative to the sum of the rule's weights
	// TCPInbound is [Destination.HasTCPInbound].
	TCPInbound bool
}

// RouteTo returns the route of a destination that no policy routes: one rule, with the destination as its only backend.
func RouteTo(d *Destination) *Route {
	backend := RouteBackend{Destination: d.Key, Weight: 1, TCPInbound: d.HasTCPInbound()}
	return &Route{Destination: d.Key, Protocol: d.Protocol, Rules: []RouteRule{{everyRequest, []RouteBackend{backend}}}}
}

// route returns the route of a destination; nil where there is no such destination.
func (s *Stage) route(r *table.Reader, key DestinationKey) *Route {
	d := s.DestinationOf(r, key)
	if d == nil {
		return nil
	}
	return RouteTo(d)
}

// Backends returns the destinations of all rules, sorted.
func (r *Route) Backends() []DestinationKey {
	var keys []DestinationKey
	for i := range r.Rules {
		for _, backend := range r.Rules[i].Backends {
			keys = append(keys, backend.Destination)
		}
	}
	slices.SortFunc(keys, CompareDestinations)
	return slices.Compact(keys)
}

// Last returns the rule of the traffic that no other rule matches.
func (r *Route) Last() *RouteRule { return &r.Rules[len(r.Rules)-1] }
