package convert

import (
	"fmt"

	"weft/kind"
)

// noSNI says which ports take a TLSRoute.
const noSNI = "is HTTP, and its requests have no SNI; set appProtocol of the Service's port to tls, or to tcp"

// sameKind says which backends a route of connections can have.
const sameKind = "HTTP ports have HTTP backends, and other ports none of these; for a Service with ports of both " +
	"kinds, write a route for each port, and set port in parentRefs"

// connections returns the backends of the connections of a TCPRoute or a TLSRoute.
func (c *routeConversion) connections() []kind.RouteBackendRef {
	if c.route.Kind == TLSRoute && len(c.route.Hostnames) == 0 {
		c.problem("hostnames: is required: at least one host name")
	}
	if n := len(c.route.Rules); n > 1 {
		c.problem("rules: has %d rules, want one", n)
	}
	var backends []kind.RouteBackendRef
	for i := range c.route.Rules {
		for j := range c.route.Rules[i].BackendRefs {
			backends = append(backends,
				c.backend(fmt.Sprintf("rules[%d].backendRefs[%d]", i, j), &c.route.Rules[i].BackendRefs[j]))
		}
	}
	if len(backends) == 0 {
		return []kind.RouteBackendRef{unresolvedRef("NoBackendRefs", nil)}
	}
	return backends
}

// connectionRule returns the rule that sends the connections with some SNIs to backends; without SNIs, all connections.
func connectionRule(snis []string, backends []kind.RouteBackendRef) kind.TCPRouteRule {
	rule := kind.TCPRouteRule{Default: kind.TCPRouteAction{BackendRefs: backends}}
	for _, sni := range snis {
		rule.Matches = append(rule.Matches, kind.MatchOfSNI(sni))
	}
	return rule
}
