package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// AttachedRoute is a route with its conversion for a parent.
type AttachedRoute struct {
	Route  *Route
	Parent *RouteParent
}

// maxRouteRules is how many rules a service port has at most. (HTTPRouteTo.Rules)
const maxRouteRules = 256

// AttachedName returns the name of the policies that have the rules of a route for a parent: a MeshHTTPRoute and a
// MeshTCPRoute for all routes of the namespace.
func (r *Route) AttachedName(parent *ParentRef) string {
	service := hashedName("gateway-api-"+parent.Name, cmp.Or(parent.Namespace, r.Namespace), parent.Name)
	return service + "." + r.Namespace
}

// Attached are the policies of the routes of one namespace for one Service.
type Attached struct {
	HTTP *resource.Object[kind.MeshHTTPRoute] // nil without a route of requests
	TCP  *resource.Object[kind.MeshTCPRoute]  // nil without a TCPRoute
	// Rejected are the ports at which a route is not attached, by [Route.RowKey] and the port, with the reasons.
	Rejected map[[2]string]string
}

// AttachRoutes returns the policies of the routes of one namespace for one Service.
//
// For equal matches the rule of the oldest route counts, of equally old ones that of the first by name. A port has
// routes of one kind: that of the oldest, and TCPRoutes where it has no other. Of several TCPRoutes the oldest counts.
// (Gateway API, HTTPRouteRule and GRPCRouteSpec; GEP-1294, Route types.)
func AttachRoutes(name string, routes []AttachedRoute) Attached {
	b := &attachment{Attached: Attached{Rejected: map[[2]string]string{}}}
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b AttachedRoute) int { return a.Route.compareAge(b.Route) })
	var ports []string
	for _, a := range routes {
		ports = append(ports, a.Parent.Ports...)
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		b.port(port, slices.DeleteFunc(slices.Clone(routes), func(a AttachedRoute) bool {
			return !slices.Contains(a.Parent.Ports, port)
		}))
	}
	if len(b.http.To) > 0 {
		b.HTTP = madeFrom(routes, &kind.MeshHTTPRoutes.Kind, name, b.http)
	}
	if len(b.tcp.To) > 0 {
		b.TCP = madeFrom(routes, &kind.MeshTCPRoutes.Kind, name, b.tcp)
	}
	return b.Attached
}

// madeFrom returns a policy that is made from routes.
func madeFrom[S any](routes []AttachedRoute, of *resource.Kind[S], name string, spec S) *resource.Object[S] {
	o := of.Make(routes[0].Parent.Mesh, name, spec)
	o.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
	return o
}

// attachment makes the policies of routes.
type attachment struct {
	Attached
	http kind.MeshHTTPRoute
	tcp  kind.MeshTCPRoute
}

// port adds the to item of a port, from the routes that name it, the oldest first.
func (b *attachment) port(port string, routes []AttachedRoute) {
	target := kind.RoutedRef{Kind: kind.MeshServices.Name, Name: routes[0].Parent.Service,
		Namespace: routes[0].Parent.Namespace, SectionName: port}
	first := routes[0]
	if i := slices.IndexFunc(routes, func(a AttachedRoute) bool { return a.Route.Kind != TCPRoute }); i >= 0 {
		first = routes[i]
	}
	var rules []kind.HTTPRouteRule
	for _, a := range routes {
		reject := func(format string, args ...any) {
			b.Rejected[[2]string{a.Route.RowKey(), port}] = "the port " + port + " has " + fmt.Sprintf(format, args...)
		}
		switch {
		case a.Route.Kind == TCPRoute && first.Route.Kind != TCPRoute:
			reject("the %s %s, and takes no TCPRoute beside it", first.Route.Kind, first.Route.Name)
		case a.Route.Kind != first.Route.Kind:
			reject("the older %s %s, and takes no %s", first.Route.Kind, first.Route.Name, a.Route.Kind)
		case a.Route.Kind == TCPRoute && a.Route != first.Route:
			reject("the older TCPRoute %s, and takes one TCPRoute", first.Route.Name)
		case len(rules)+len(a.Parent.Rules) > maxRouteRules:
			reject("%d rules of older routes, and takes %d at most", len(rules), maxRouteRules)
		default:
			rules = append(rules, a.Parent.Rules...)
		}
	}
	if first.Route.Kind == TCPRoute {
		b.tcp.To = append(b.tcp.To, connectionsTo(target, first.Parent.Backends))
	} else {
		b.http.To = append(b.http.To, kind.HTTPRouteTo{TargetRef: target, Rules: distinct(rules)})
	}
}

// StatusOf returns the status of a route, from its conversions and the reasons for which ports do not take it.
func StatusOf(route *Route, parents []RouteParent, rejected map[[2]string]string) *RouteStatus {
	status := &RouteStatus{Kind: route.Kind, Namespace: route.Namespace, Name: route.Name}
	for _, p := range parents {
		accepted := p.Accepted
		var lost []string
		for _, port := range p.Ports {
			if reason, ok := rejected[[2]string{route.RowKey(), port}]; ok {
				lost = append(lost, reason)
			}
		}
		if len(lost) > 0 {
			accepted.Message = strings.Join(lost, "; ")
			if len(lost) == len(p.Ports) {
				accepted.Status, accepted.Reason = "False", conflictingRouteKind
			}
		}
		status.Parents = append(status.Parents, ParentStatus{ParentRef: p.Ref, ControllerName: RouteController,
			Conditions: []RouteCondition{accepted, p.ResolvedRefs}})
	}
	return status
}
