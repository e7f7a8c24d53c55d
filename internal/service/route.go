package service

import (
	"slices"

	"weft/internal/interned"
	"weft/internal/table"
	"weft/kind"
)

// Route is the decision where the traffic goes that clients address to a destination. The listeners of the destination
// lead to its route, and the route to the clusters of its backends.
type Route struct {
	// Destination is the destination that clients address. Its name is also the name of the route.
	Destination DestinationKey
	Protocol    kind.Protocol
	// Rules are in the order of their precedence: the first rule that matches a request or a connection decides. The
	// last one matches all of them.
	Rules []RouteRule
	// Effective are the confs of the traffic of some proxies. The stage of routes leaves it empty; see
	// [Route.WithConfs].
	Effective Effective
}

// WithConfs returns the route as proxies with effective confs take it.
func (r *Route) WithConfs(e Effective) *Route {
	with := *r
	with.Effective = e
	return &with
}

// RouteRule is one rule of a route.
type RouteRule struct {
	// Name distinguishes the rules of policies, such as "rule_0"; empty: the rule is of no policy.
	Name  string         `json:",omitempty"`
	Match kind.HTTPMatch // the zero value matches every request
	// SNI is the SNI of the connections, or *.DOMAIN; empty: of all of them. Rules of requests have none.
	SNI string `json:",omitempty"`
	// Backends share the traffic. Without any, requests get Status and connections are closed.
	Backends []RouteBackend
	// Status is the status of the response of the proxy itself, where the rule has no backend.
	Status uint32 `json:",omitempty"`
	// Filters are the changes of requests and responses. Their mirrors are in Mirrors, with resolved backends. A rule
	// with a redirect has no backend.
	Filters []kind.HTTPFilter `json:",omitempty"`
	Mirrors []RouteMirror     `json:",omitempty"`
	// Effective are the confs of the requests of this rule; nil: those of the route.
	Effective *Effective `json:",omitempty"`
}

// RouteBackend is a destination that gets a share of the traffic of a rule.
type RouteBackend struct {
	// Destination is the zero key where the backend does not exist. Its share of the requests gets 500, and its share
	// of the connections is closed.
	Destination DestinationKey
	Weight      uint32 // its share, relative to the sum of the rule's weights
	// TCPInbound is [Destination.HasTCPInbound], CrossZone is [Destination.IsCrossZone].
	TCPInbound bool `json:",omitempty"`
	CrossZone  bool `json:",omitempty"`
}

// RouteMirror is a destination that gets copies of the requests of a rule.
type RouteMirror struct {
	Destination DestinationKey
	Percentage  kind.Decimal
}

// RouteTo returns the route of a destination that no policy routes: one rule, with the destination as its only backend.
func RouteTo(d *Destination) *Route {
	backend := RouteBackend{Destination: d.Key, Weight: 1, TCPInbound: d.HasTCPInbound(),
		CrossZone: d.IsCrossZone()}
	return &Route{Destination: d.Key, Protocol: d.Protocol, Rules: []RouteRule{{Backends: []RouteBackend{backend}}}}
}

// route returns the route of a destination; nil where there is no such destination.
func (s *Stage) route(r *table.Reader, key DestinationKey) *Route {
	d := s.DestinationOf(r, key)
	if d == nil {
		return nil
	}
	return RouteTo(d)
}

// Backends returns the destinations of all rules, with those of mirrors, sorted.
func (r *Route) Backends() []DestinationKey {
	var keys []DestinationKey
	for i := range r.Rules {
		for _, backend := range r.Rules[i].Backends {
			if backend.Exists() {
				keys = append(keys, backend.Destination)
			}
		}
		for _, mirror := range r.Rules[i].Mirrors {
			keys = append(keys, mirror.Destination)
		}
	}
	slices.SortFunc(keys, CompareDestinations)
	return slices.Compact(keys)
}

// Exists reports whether there is such a destination.
func (b *RouteBackend) Exists() bool { return b.Destination != DestinationKey{} }

// EffectiveOf returns the confs of the requests of a rule.
func (r *Route) EffectiveOf(rule *RouteRule) *Effective {
	if rule.Effective != nil {
		return rule.Effective
	}
	return &r.Effective
}

// Redirect returns the redirect that is the response to the requests of a rule; nil: the rule has none.
func (r *RouteRule) Redirect() *kind.RequestRedirect {
	for i := range r.Filters {
		if f := &r.Filters[i]; f.Type == kind.RedirectFilter {
			return f.RequestRedirect
		}
	}
	return nil
}

// Last returns the rule of the connections and requests that no other rule matches.
func (r *Route) Last() *RouteRule { return &r.Rules[len(r.Rules)-1] }

// SNIs returns the SNIs of the rules, in their order.
func (r *Route) SNIs() []string {
	var snis []string
	for i := range r.Rules {
		if sni := r.Rules[i].SNI; sni != "" {
			snis = append(snis, sni)
		}
	}
	return snis
}

// RouteValue is the routing of the traffic of some proxies to a destination, by value: equal routes are equal values,
// of the size of a pointer, whichever policies they are from. The zero value is the route of a destination that no
// policy routes, nil.
type RouteValue = interned.Value[*Route]
