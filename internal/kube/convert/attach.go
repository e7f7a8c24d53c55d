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
	TCP  *resource.Object[kind.MeshTCPRoute]  // nil without a TCPRoute and a TLSRoute
	// Rejected are the ports at which a route is not attached, or not with all of its host names, by [Route.RowKey] and
	// the port.
	Rejected map[[2]string]Rejection
}

// Rejection is why a port does not take a route.
type Rejection struct {
	Reason, Message string // of the condition Accepted
	// Partly is true where the port takes the route for some of its host names.
	Partly bool
}

// AttachRoutes returns the policies of the routes of one namespace for one Service.
//
// For equal matches the rule of the oldest route counts, of equally old ones that of the first by name. So does the
// oldest TLSRoute with a host name, and the oldest TCPRoute. A port has routes of one kind: HTTPRoutes or GRPCRoutes,
// whichever has the oldest route, else TLSRoutes, else TCPRoutes. (Gateway API, HTTPRouteRule and GRPCRouteSpec;
// GEP-1294, Route types.)
func AttachRoutes(name string, routes []AttachedRoute) Attached {
	b := &attachment{Attached: Attached{Rejected: map[[2]string]Rejection{}}}
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
	at := &portAttachment{b, port}
	first, taken := at.precedent(routes), routes[:0:0]
	for _, a := range routes {
		switch of := a.Route.Kind; {
		case of == TLSRoute && at.isHTTP(a) && (first == nil || precedence[first.Kind] > precedence[of]):
			at.reject(a.Route, unsupportedValue, noSNI)
		case precedence[of] > precedence[first.Kind]:
			at.reject(a.Route, conflicted, "has the %s %s, and takes no %s beside it", first.Kind, first.Name, of)
		case of != first.Kind:
			at.reject(a.Route, conflicted, "has the older %s %s, and takes no %s", first.Kind, first.Name, of)
		case of == TCPRoute && a.Route != first:
			at.reject(a.Route, conflicted, "has the older TCPRoute %s, and takes one TCPRoute", first.Name)
		default:
			taken = append(taken, a)
		}
	}
	target := kind.RoutedRef{Kind: kind.MeshServices.Name, Name: routes[0].Parent.Service,
		Namespace: routes[0].Parent.Namespace, SectionName: port}
	switch {
	case first == nil:
	case first.Kind == TCPRoute:
		rules := []kind.TCPRouteRule{connectionRule(nil, taken[0].Parent.Backends)}
		b.tcp.To = append(b.tcp.To, kind.TCPRouteTo{TargetRef: target, Rules: rules})
	case first.Kind == TLSRoute:
		b.tcp.To = append(b.tcp.To, kind.TCPRouteTo{TargetRef: target, Rules: at.tlsRules(taken)})
	default:
		b.http.To = append(b.http.To, kind.HTTPRouteTo{TargetRef: target, Rules: at.httpRules(taken)})
	}
}

// precedence orders the kinds of routes at a port.
var precedence = map[string]int{HTTPRoute: 0, GRPCRoute: 0, TLSRoute: 1, TCPRoute: 2}

// portAttachment makes the rules of one port.
type portAttachment struct {
	*attachment
	name string
}

// precedent returns the route that decides the kind of the routes of the port: the oldest one of the kinds that come
// first. It is nil where the port takes none.
func (p *portAttachment) precedent(routes []AttachedRoute) *Route {
	routes = slices.DeleteFunc(slices.Clone(routes), p.isHTTP)
	if len(routes) == 0 {
		return nil
	}
	return slices.MinFunc(routes, func(x, y AttachedRoute) int {
		return cmp.Compare(precedence[x.Route.Kind], precedence[y.Route.Kind])
	}).Route
}

// isHTTP reports whether the port is HTTP, and the route is a TLSRoute.
func (p *portAttachment) isHTTP(a AttachedRoute) bool { return slices.Contains(a.Parent.HTTP, p.name) }

// reject adds why the port does not take a route.
func (p *portAttachment) reject(route *Route, reason, format string, args ...any) {
	p.Rejected[[2]string{route.RowKey(), p.name}] = Rejection{Reason: reason,
		Message: "the port " + p.name + " " + fmt.Sprintf(format, args...)}
}

// httpRules returns the rules of routes of requests.
func (p *portAttachment) httpRules(routes []AttachedRoute) (rules []kind.HTTPRouteRule) {
	for _, a := range routes {
		if len(rules)+len(a.Parent.Rules) > maxRouteRules {
			p.reject(a.Route, conflicted, "has %d rules of older routes, and takes %d at most", len(rules),
				maxRouteRules)
			continue
		}
		rules = append(rules, a.Parent.Rules...)
	}
	return distinct(rules)
}

// tlsRules returns a rule for each TLSRoute, with the host names that no older one has.
func (p *portAttachment) tlsRules(routes []AttachedRoute) (rules []kind.TCPRouteRule) {
	by := map[string]*Route{}
	for _, a := range routes {
		var free, lost []string
		for _, name := range a.Route.Hostnames {
			if older := by[name]; older == nil {
				free = append(free, name)
			} else if older != a.Route { // a route may name the port twice
				lost = append(lost, fmt.Sprintf("the older TLSRoute %s for %s", older.Name, name))
			}
		}
		if len(lost) > 0 {
			p.reject(a.Route, conflicted, "has %s", strings.Join(lost, ", "))
			p.partly(a.Route, len(lost) < len(a.Route.Hostnames))
		}
		switch {
		case len(free) == 0:
			continue
		case len(rules) == maxRouteRules || len(by)+len(free) > kind.MaxTCPMatches:
			p.reject(a.Route, conflicted, "has %d older TLSRoutes with %d host names, and takes %d with %d at most",
				len(rules), len(by), maxRouteRules, kind.MaxTCPMatches)
			continue
		}
		rules = append(rules, connectionRule(free, a.Parent.Backends))
		for _, name := range free {
			by[name] = a.Route
		}
	}
	return rules
}

// partly states whether the port takes a rejected route for a part of its host names.
func (p *portAttachment) partly(route *Route, takes bool) {
	key := [2]string{route.RowKey(), p.name}
	rejection := p.Rejected[key]
	rejection.Partly = takes
	p.Rejected[key] = rejection
}

// StatusOf returns the status of a route, from its conversions and the reasons for which ports do not take it.
func StatusOf(route *Route, parents []RouteParent, rejected map[[2]string]Rejection) *RouteStatus {
	status := &RouteStatus{Kind: route.Kind, Namespace: route.Namespace, Name: route.Name}
	for _, p := range parents {
		accepted := p.Accepted
		var messages []string
		reason, lost := "", 0
		for _, port := range p.Ports {
			rejection, ok := rejected[[2]string{route.RowKey(), port}]
			if !ok {
				continue
			}
			messages = append(messages, rejection.Message)
			if !rejection.Partly {
				reason, lost = cmp.Or(reason, rejection.Reason), lost+1
			}
		}
		if len(messages) > 0 {
			accepted.Message = strings.Join(messages, "; ")
		}
		if lost > 0 && lost == len(p.Ports) {
			accepted.Status, accepted.Reason = "False", reason
		}
		status.Parents = append(status.Parents, ParentStatus{ParentRef: p.Ref, ControllerName: RouteController,
			Conditions: []RouteCondition{accepted, p.ResolvedRefs}})
	}
	return status
}
