package convert

import (
	"fmt"

	"weft/kind"
)

// serverNames says what to use in place of a TLSRoute.
const serverNames = "the mesh does not route by the server name of TLS (SNI), and the route has no effect; write a " +
	"TCPRoute, which routes all connections of a port, and give each host name a Service of its own"

// sameKind says which backends a route of connections can have.
const sameKind = "HTTP ports have HTTP backends, and other ports none of these; for a Service with ports of both " +
	"kinds, write a route for each port, and set port in parentRefs"

// connections returns the backends of the connections of a TCPRoute or a TLSRoute.
func (c *routeConversion) connections() []kind.RouteBackendRef {
	if c.route.Kind == TLSRoute {
		c.problem("hostnames: %s", serverNames)
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

// connectionsTo returns the to item that sends the connections to a service to backends.
func connectionsTo(service kind.RoutedRef, backends []kind.RouteBackendRef) kind.TCPRouteTo {
	return kind.TCPRouteTo{TargetRef: service,
		Rules: []kind.TCPRouteRule{{Default: kind.TCPRouteAction{BackendRefs: backends}}}}
}
