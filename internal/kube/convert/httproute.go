package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weft/kind"
	"weft/resource"
)

// Reasons of the conditions of routes. (Gateway API, RouteConditionReason; the last one is ours.)
const (
	routeAccepted       = "Accepted"
	noMatchingParent    = "NoMatchingParent"
	unsupportedValue    = "UnsupportedValue"
	resolvedRefs        = "ResolvedRefs"
	invalidKind         = "InvalidKind"
	backendNotFound     = "BackendNotFound"
	refNotPermitted     = "RefNotPermitted"
	unsupportedProtocol = "UnsupportedProtocol"
	conflicted          = "Conflicted"
)

// unresolvedLabel is the label of a reference to a backend that a route may not have. No service has it, so that the
// share of the backend gets 500. Its value is the reason.
const unresolvedLabel = gatewayGroup + "/unresolved"

// RouteAround is what the conversion of a route reads beside the route.
type RouteAround struct {
	// HasService reports whether there is a Service, NAME.NAMESPACE.
	HasService func(key string) bool
	// MeshService returns the MeshService NAME.NAMESPACE of this zone; nil: none.
	MeshService func(key string) *resource.Object[kind.MeshService]
	// Routed reports whether routes make a port of the Service NAME.NAMESPACE HTTP: see [RoutedProtocols].
	Routed func(key string, port uint32) bool
	// Grants returns the ReferenceGrants of a namespace.
	Grants func(namespace string) []*ReferenceGrant
}

// RouteParent is the conversion of a route for one parent.
type RouteParent struct {
	Ref ParentRef
	// Service and Namespace name the parent, and Mesh is its mesh. Rules has the rules, Backends those of the
	// connections of a TCPRoute or a TLSRoute in place of rules, and Ports the names of the ports for which they are.
	// Without ports, the route is not accepted there. HTTP are those ports of a TLSRoute that do not take it, since
	// they are HTTP.
	Service, Namespace, Mesh string
	Ports, HTTP              []string
	Rules                    []kind.HTTPRouteRule
	Backends                 []kind.RouteBackendRef
	Accepted, ResolvedRefs   RouteCondition
	// Pending is true while a MeshService lacks the protocol that routes give its port: the conversion is not final.
	Pending bool
}

// ParentsOf returns the conversion of a route for each of its parents in the mesh.
func ParentsOf(route *Route, around *RouteAround) []RouteParent {
	var parents []RouteParent
	for _, ref := range route.Parents {
		c := &routeConversion{route: route, around: around, ref: ref}
		parents = append(parents, c.parent(ref))
	}
	return parents
}

// routeConversion is the conversion of a route for one parent.
type routeConversion struct {
	route  *Route
	around *RouteAround
	ref    ParentRef
	mesh   string
	// http and other are the first ports of the parent that have the rules and are HTTP, and that are not.
	http, other string
	// httpPorts are the HTTP ports of the parent of a TLSRoute.
	httpPorts []string
	// pending is true while a MeshService lacks the protocol that routes give its port.
	pending bool
	// problems are the reasons not to accept the route, and unresolved those of references without a backend. reason is
	// that of the first of these.
	problems, unresolved []string
	reason               string
}

func (c *routeConversion) condition(of, reason string, holds bool, message string) RouteCondition {
	status := "False"
	if holds {
		status = "True"
	}
	const maxMessage = 32768 // (Kubernetes API, metav1.Condition.)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	return RouteCondition{Type: of, Status: status, Reason: reason, Message: message,
		ObservedGeneration: c.route.Generation}
}

func (c *routeConversion) parent(ref ParentRef) RouteParent {
	p := RouteParent{Ref: ref, Service: ref.Name, Namespace: cmp.Or(ref.Namespace, c.route.Namespace)}
	service, missing := c.service(ref.Kind, ref.Name, p.Namespace)
	if service != nil {
		c.mesh, p.Mesh = service.Mesh, service.Mesh
	}
	reason, message := noMatchingParent, missing
	if service != nil {
		p.Ports, reason, message = c.ports(&ref, service)
		p.HTTP = c.httpPorts
	}
	c.convert(&p)
	p.ResolvedRefs = c.condition(resolvedRefs, resolvedRefs, true, "all references are resolved")
	if len(c.unresolved) > 0 {
		p.ResolvedRefs = c.condition(resolvedRefs, c.reason, false, strings.Join(c.unresolved, "; "))
	}
	if len(p.Ports) > 0 {
		c.validate(&p)
	}
	if len(c.problems) > 0 && service != nil {
		p.Ports, reason, message = nil, unsupportedValue, strings.Join(c.problems, "; ")
	}
	p.Accepted, p.Pending = c.condition(routeAccepted, reason, len(p.Ports) > 0, message), c.pending
	return p
}

// service returns the MeshService of a Service, or one that is referred to itself; nil with the reason for which there
// is none.
func (c *routeConversion) service(of, name, namespace string) (*resource.Object[kind.MeshService], string) {
	key := name + "." + namespace
	service := c.around.MeshService(key)
	switch {
	case of == "Service" && !c.around.HasService(key):
		return nil, fmt.Sprintf("there is no Service %s in the namespace %s", name, namespace)
	case service == nil && of == "Service":
		return nil, fmt.Sprintf("the Service %s in the namespace %s has no MeshService: none of its Pods has a "+
			"sidecar that serves, or it is headless; give it the label kuma.io/mesh, or its Pods a sidecar", name,
			namespace)
	case service == nil:
		return nil, fmt.Sprintf("there is no MeshService %s in the namespace %s", name, namespace)
	}
	return service, ""
}

// ports returns the names of the ports of a parent for which the rules are, and the reason and message of Accepted.
func (c *routeConversion) ports(ref *ParentRef, service *resource.Object[kind.MeshService]) (names []string,
	reason, message string) {
	found := false
	for _, port := range service.Spec.Ports {
		if ref.Port != 0 && ref.Port != port.Port || ref.SectionName != "" && ref.SectionName != port.Name {
			continue
		}
		found = true
		name, http := cmp.Or(port.Name, number(port.Port)), c.isHTTP(service, &port)
		switch {
		case http && c.route.Kind == TLSRoute:
			c.httpPorts = append(c.httpPorts, name)
		case http:
			c.http = cmp.Or(c.http, name)
		case c.ofConnections():
			c.other = cmp.Or(c.other, name)
		default:
			continue
		}
		names = append(names, name)
	}
	switch {
	case !found:
		return nil, noMatchingParent, "the Service has no such port"
	case len(names) == 0:
		return nil, unsupportedValue, "the parent has no HTTP port: " + howHTTP
	}
	return names, routeAccepted, "the route is attached to the ports " + strings.Join(names, ", ")
}

// howHTTP says what makes a port HTTP.
const howHTTP = "set appProtocol of the Service's port to http, http2, grpc or kubernetes.io/h2c; a port without " +
	"appProtocol is HTTP where a route of the Service's namespace names it"

// isHTTP reports whether a port of a service is HTTP, or will be: routes give the port of its Service a protocol.
func (c *routeConversion) isHTTP(service *resource.Object[kind.MeshService], port *kind.ServicePort) bool {
	if port.AppProtocol.IsHTTP() {
		return true
	}
	later := service.Label(kind.ManagedBy) == kind.GeneratedBy && c.around.Routed(service.Name, port.Port)
	c.pending = c.pending || later
	return later
}

// ofConnections reports whether the route is about connections, which all ports have, and not about requests.
func (c *routeConversion) ofConnections() bool {
	return c.route.Kind == TCPRoute || c.route.Kind == TLSRoute
}

// convert sets the rules of the parent, or the backends of its connections.
func (c *routeConversion) convert(p *RouteParent) {
	c.problems = append(c.problems, c.route.Problems...)
	if c.ofConnections() {
		p.Backends = c.connections()
	} else {
		p.Rules = distinct(c.rules())
	}
}

// validate adds the problems of the rules as those of a MeshHTTPRoute or a MeshTCPRoute.
func (c *routeConversion) validate(p *RouteParent) {
	to := kind.RoutedRef{Kind: kind.MeshServices.Name, Name: p.Service}
	var problems resource.Problems
	if c.ofConnections() {
		problems = problemsOf(&kind.MeshTCPRoutes.Kind, p.Mesh, kind.MeshTCPRoute{To: []kind.TCPRouteTo{{TargetRef: to,
			Rules: []kind.TCPRouteRule{connectionRule(c.route.Hostnames, p.Backends)}}}})
	} else {
		problems = problemsOf(&kind.MeshHTTPRoutes.Kind, p.Mesh, kind.MeshHTTPRoute{
			To: []kind.HTTPRouteTo{{TargetRef: to, Rules: p.Rules}}})
	}
	for _, problem := range problems {
		c.problem("%s: %s", c.route.routeField(problem.Field), problem.Reason)
	}
}

// problemsOf returns the problems of a policy that is made from a route.
func problemsOf[S any](of *resource.Kind[S], mesh string, spec S) resource.Problems {
	o := of.Make(mesh, "route", spec)
	o.Labels = map[string]string{kind.EnvLabel: kind.Kubernetes}
	problems := of.Prepare(o)
	if len(problems) == 0 {
		problems, _ = kind.CheckRegexes(nil, o)
	}
	return problems
}

// distinct returns the rules without those whose matches an earlier rule has: that rule counts. (Gateway API,
// HTTPRouteRule.)
func distinct(rules []kind.HTTPRouteRule) []kind.HTTPRouteRule {
	seen := map[string]bool{}
	return slices.DeleteFunc(rules, func(rule kind.HTTPRouteRule) bool {
		key := kind.MatchesKey(rule.Matches)
		again := seen[key]
		seen[key] = true
		return again
	})
}

func (c *routeConversion) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// rules returns the rules of the route.
func (c *routeConversion) rules() []kind.HTTPRouteRule {
	var rules []kind.HTTPRouteRule
	for i := range c.route.Rules {
		rules = append(rules, c.rule(fmt.Sprintf("rules[%d]", i), &c.route.Rules[i]))
	}
	if len(rules) == 0 {
		// A route without rules matches every request, and has no backend.
		rules = append(rules, c.rule("rules[0]", &GatewayRule{}))
	}
	return rules
}

func (c *routeConversion) rule(at string, from *GatewayRule) (rule kind.HTTPRouteRule) {
	for _, field := range []struct {
		name    string
		present bool
		instead string
	}{
		{"timeouts", from.Timeouts != nil, "write a MeshTimeout for the Service"},
		{"retry", from.Retry != nil, "write a MeshRetry for the Service"},
		{"sessionPersistence", from.SessionPersistence != nil, "write a MeshLoadBalancingStrategy for the Service"},
	} {
		if field.present {
			c.problem("%s.%s: is not supported; %s", at, field.name, field.instead)
		}
	}
	rule.Matches = matchesOf(from.Matches)
	filters := c.filters(at+".filters", from.Filters)
	redirects := slices.ContainsFunc(filters, func(f kind.HTTPFilter) bool { return f.Type == kind.RedirectFilter })
	for i := range from.BackendRefs {
		ref, field := &from.BackendRefs[i], fmt.Sprintf("%s.backendRefs[%d]", at, i)
		rule.Default.BackendRefs = append(rule.Default.BackendRefs, c.backend(field, ref))
		switch {
		case len(ref.Filters) == 0:
		case len(from.BackendRefs) > 1:
			c.problem("%s.filters: are supported where the backend is the only one of its rule; write a rule for each "+
				"backend", field)
		default:
			filters = append(filters, c.filters(field+".filters", ref.Filters)...)
		}
	}
	if len(from.BackendRefs) == 0 && !redirects {
		rule.Default.BackendRefs = []kind.RouteBackendRef{unresolvedRef("NoBackendRefs", nil)}
	}
	rule.Default.Filters = filters
	return rule
}

// matchesOf returns the matches of a rule; without any, that of every request.
func matchesOf(from []kind.HTTPMatch) []kind.HTTPMatch {
	every := kind.HTTPMatch{Path: &kind.PathMatch{Type: kind.PathPrefix, Value: "/"}}
	if len(from) == 0 {
		return []kind.HTTPMatch{every}
	}
	matches := slices.Clone(from)
	for i := range matches {
		m := &matches[i]
		if m.Path == nil {
			m.Path = every.Path
		}
		path := kind.PathMatch{Type: cmp.Or(m.Path.Type, kind.PathPrefix), Value: cmp.Or(m.Path.Value, "/")}
		if path.Type == kind.PathPrefix {
			path.Value = withoutSlash(path.Value)
		}
		m.Path = &path
		headers := m.Headers
		m.Headers = nil
		for _, h := range headers {
			h.Name = strings.ToLower(h.Name)
			// Of several matches of one name, the first counts. (Gateway API, HTTPHeaderMatch.)
			if !slices.ContainsFunc(m.Headers, func(had kind.HeaderMatch) bool { return had.Name == h.Name }) {
				m.Headers = append(m.Headers, h)
			}
		}
		params := m.QueryParams
		m.QueryParams = nil
		for _, q := range params {
			q.Type = cmp.Or(q.Type, kind.PathExact)
			if !slices.ContainsFunc(m.QueryParams, func(had kind.QueryMatch) bool { return had.Name == q.Name }) {
				m.QueryParams = append(m.QueryParams, q)
			}
		}
	}
	return matches
}

// withoutSlash returns a prefix without its last slash, which does not count. (Gateway API, PathMatchPathPrefix.)
func withoutSlash(prefix string) string { return cmp.Or(strings.TrimSuffix(prefix, "/"), "/") }

func (c *routeConversion) filters(at string, from []GatewayFilter) []kind.HTTPFilter {
	var filters []kind.HTTPFilter
	for i := range from {
		field := fmt.Sprintf("%s[%d]", at, i)
		f := kind.HTTPFilter{Type: from[i].Type}
		switch f.Type {
		case kind.RequestHeaderFilter:
			f.RequestHeaderModifier = literal(from[i].RequestHeaderModifier)
		case kind.ResponseHeaderFilter:
			f.ResponseHeaderModifier = literal(from[i].ResponseHeaderModifier)
		case kind.RedirectFilter:
			if r := from[i].RequestRedirect; r != nil {
				redirect := *r
				redirect.Path = rewriteOf(r.Path)
				f.RequestRedirect = &redirect
			}
		case kind.RewriteFilter:
			if r := from[i].URLRewrite; r != nil {
				f.URLRewrite = &kind.URLRewrite{Hostname: r.Hostname, Path: rewriteOf(r.Path)}
			}
		case kind.MirrorFilter:
			f.RequestMirror = c.mirror(field+".requestMirror", &from[i])
		default:
			c.problem("%s.type: is %s, which is not supported; leave it out", field, f.Type)
			continue
		}
		filters = append(filters, f)
	}
	return filters
}

// literal returns a modifier whose values have no operators: a percent sign is a character in the Gateway API.
func literal(from *kind.HeaderModifier) *kind.HeaderModifier {
	if from == nil {
		return nil
	}
	escaped := func(values []kind.HeaderValue) []kind.HeaderValue {
		values = slices.Clone(values)
		for i := range values {
			values[i].Value = strings.ReplaceAll(values[i].Value, "%", "%%")
		}
		return values
	}
	return &kind.HeaderModifier{Set: escaped(from.Set), Add: escaped(from.Add), Remove: from.Remove}
}

func rewriteOf(from *kind.PathRewrite) *kind.PathRewrite {
	if from == nil || from.Type != kind.ReplacePrefixMatch {
		return from
	}
	return &kind.PathRewrite{Type: from.Type, ReplacePrefixMatch: withoutSlash(from.ReplacePrefixMatch)}
}

func (c *routeConversion) mirror(at string, f *GatewayFilter) *kind.RequestMirror {
	from := f.RequestMirror
	if from == nil {
		return nil
	}
	mirror := &kind.RequestMirror{BackendRef: c.backend(at+".backendRef", &from.BackendRef)}
	mirror.BackendRef.Weight = nil
	share := kind.Decimal(100)
	switch {
	case from.Percent != nil:
		share = kind.Decimal(*from.Percent)
	case from.Fraction != nil && from.Fraction.Denominator == nil:
		share = kind.Decimal(from.Fraction.Numerator)
	case from.Fraction != nil && *from.Fraction.Denominator > 0:
		share = kind.Decimal(100 * float64(from.Fraction.Numerator) / float64(*from.Fraction.Denominator))
	}
	mirror.Percentage = &share
	return mirror
}

// unresolvedRef returns a reference to a backend that does not exist. Its share of the requests gets 500.
func unresolvedRef(reason string, weight *uint32) kind.RouteBackendRef {
	return kind.RouteBackendRef{Kind: kind.MeshServices.Name, Labels: map[string]string{unresolvedLabel: reason},
		Port: 80, Weight: weight}
}

// backend returns the backend of a reference, an unresolved one with the reason for which there is none.
func (c *routeConversion) backend(at string, ref *BackendRef) kind.RouteBackendRef {
	reason, message := c.unresolvedReason(ref)
	if reason != "" {
		c.reason = cmp.Or(c.reason, reason)
		c.unresolved = append(c.unresolved, at+": "+message)
		if reason != unsupportedProtocol || !c.ofConnections() { // another port of the parent may have its protocol
			return unresolvedRef(reason, ref.Weight)
		}
	}
	return kind.RouteBackendRef{Kind: kind.MeshServices.Name, Name: ref.Name,
		Namespace: cmp.Or(ref.Namespace, c.route.Namespace), Port: ref.Port, Weight: ref.Weight}
}

func (c *routeConversion) unresolvedReason(ref *BackendRef) (reason, message string) {
	of, namespace := cmp.Or(ref.Kind, "Service"), cmp.Or(ref.Namespace, c.route.Namespace)
	if (ref.Group != "" || of != "Service") && (ref.Group != meshGroup || of != kind.MeshServices.Name) {
		return invalidKind, fmt.Sprintf("is the %s %s; want a Service, or a MeshService of the group %s",
			strings.Trim(of+"."+ref.Group, "."), ref.Name, meshGroup)
	}
	// Clients reach the parent anyway.
	parent := c.ref.Kind == of && c.ref.Name == ref.Name && cmp.Or(c.ref.Namespace, c.route.Namespace) == namespace
	if !parent && !granted(c.around.Grants(namespace), c.route, namespace, GrantTo{ref.Group, of, ref.Name}) {
		return refNotPermitted, fmt.Sprintf("no ReferenceGrant in the namespace %s lets %ss of the namespace %s "+
			"refer to the %s %s", namespace, c.route.Kind, c.route.Namespace, of, ref.Name)
	}
	service, missing := c.service(of, ref.Name, namespace)
	switch {
	case service == nil:
		return backendNotFound, missing
	case c.mesh != "" && service.Mesh != c.mesh:
		return backendNotFound, fmt.Sprintf("the %s %s is in the mesh %s, and the parent in the mesh %s", of, ref.Name,
			service.Mesh, c.mesh)
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, ref.Port)
	switch {
	case !ok:
		return backendNotFound, fmt.Sprintf("the %s %s has no port %s", of, ref.Name, strconv.Itoa(int(ref.Port)))
	}
	switch http := c.isHTTP(service, &port); {
	case !http && c.ofConnections() && c.http != "":
		return unsupportedProtocol, fmt.Sprintf("port %d of the %s %s is %s, and the parent's port %s is HTTP: %s",
			ref.Port, of, ref.Name, cmp.Or(port.AppProtocol, kind.TCP), c.http, sameKind)
	case !http && !c.ofConnections():
		return unsupportedProtocol, fmt.Sprintf("port %d of the %s %s is %s: %s", ref.Port, of, ref.Name,
			cmp.Or(port.AppProtocol, kind.TCP), howHTTP)
	case http && c.other != "":
		return unsupportedProtocol, fmt.Sprintf("port %d of the %s %s is HTTP, and the parent's port %s is not: %s",
			ref.Port, of, ref.Name, c.other, sameKind)
	}
	return "", ""
}
