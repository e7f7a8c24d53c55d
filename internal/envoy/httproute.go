package envoy

import (
	"net/http"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/service"
	"weft/kind"
)

// unresolvedCluster is the name of the cluster of backends that do not exist. There is none: Envoy responds with 500,
// or closes the connection.
const unresolvedCluster = "unresolved"

// ruleRoutes returns the routes of a rule: one where the proxy responds itself, else those of [retriedRoutes].
func ruleRoutes(to *service.Route, rule *service.RouteRule) []*routev3.Route {
	switch redirect := rule.Redirect(); {
	case redirect != nil:
		return redirectRoutes(rule, redirect)
	case len(rule.Backends) == 0:
		return []*routev3.Route{route(rule, "", directResponse(rule.Status, noBackend(rule.Status)))}
	}
	return retriedRoutes(to, rule)
}

// directResponse is a response of the proxy itself.
func directResponse(status uint32, text string) *routev3.Route_DirectResponse {
	return &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
		Status: status,
		Body:   &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
	}}
}

func noBackend(status uint32) string {
	switch status {
	case http.StatusServiceUnavailable:
		return "all backends of the route have the weight 0"
	case http.StatusNotFound:
		return "no rule of the routes matches the request"
	}
	return "no backend of the route exists"
}

// route returns a route of a rule. part distinguishes the routes of one rule.
func route(rule *service.RouteRule, part string, action any) *routev3.Route {
	r := &routev3.Route{Name: strings.Trim(rule.Name+"_"+part, "_"), Match: requestMatch(&rule.Match)}
	switch a := action.(type) {
	case *routev3.Route_Route:
		r.Action = a
	case *routev3.Route_Redirect:
		r.Action = a
	case *routev3.Route_DirectResponse:
		r.Action = a
	}
	for i := range rule.Filters {
		switch f := &rule.Filters[i]; f.Type {
		case kind.RequestHeaderFilter:
			r.RequestHeadersToAdd, r.RequestHeadersToRemove = changedHeaders(f.RequestHeaderModifier)
		case kind.ResponseHeaderFilter:
			r.ResponseHeadersToAdd, r.ResponseHeadersToRemove = changedHeaders(f.ResponseHeaderModifier)
		}
	}
	return r
}

func requestMatch(m *kind.HTTPMatch) *routev3.RouteMatch {
	match := &routev3.RouteMatch{Headers: headerMatchers(m.Headers)}
	switch path := m.Path; {
	case path == nil || *path == kind.PathMatch{Type: kind.PathPrefix, Value: "/"}:
		match.PathSpecifier = anyPath()
	case path.Type == kind.PathExact:
		match.PathSpecifier = &routev3.RouteMatch_Path{Path: path.Value}
	case path.Type == kind.PathRegex:
		match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: path.Value}}
	default:
		match.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: path.Value}
	}
	if m.Method != "" {
		match.Headers = append(match.Headers, headerIn(":method", []string{m.Method}))
	}
	for _, q := range m.QueryParams {
		match.QueryParameters = append(match.QueryParameters, &routev3.QueryParameterMatcher{
			Name: q.Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: stringMatcher(kind.HeaderMatch{Type: q.Type, Value: q.Value}),
			},
		})
	}
	return match
}

func changedHeaders(m *kind.HeaderModifier) (changes []*corev3.HeaderValueOption, removed []string) {
	add := func(values []kind.HeaderValue, action corev3.HeaderValueOption_HeaderAppendAction) {
		for _, h := range values {
			changes = append(changes, &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: h.Name, Value: kind.EnvoyFormat(h.Value)},
				AppendAction: action,
			})
		}
	}
	add(m.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add(m.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	return changes, m.Remove
}

var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	301: routev3.RedirectAction_MOVED_PERMANENTLY, 0: routev3.RedirectAction_FOUND, 302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER, 307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

// schemePorts are the ports that a URL with the scheme omits.
var schemePorts = map[string]uint32{"http": 80, "https": 443}

// redirectRoutes returns the routes of a redirect. A scheme without a port leads to the scheme's own port, which the
// URL omits. Envoy keeps the port of the request's host, unless it writes another one: a request with a port has a
// route of its own, and gets a URL with the scheme's port.
func redirectRoutes(rule *service.RouteRule, r *kind.RequestRedirect) []*routev3.Route {
	action, own := redirection(r, &rule.Match), schemePorts[r.Scheme]
	others := route(rule, "", &routev3.Route_Redirect{Redirect: action})
	if own == 0 || r.Port != 0 && r.Port != own {
		return []*routev3.Route{others}
	}
	action.PortRedirect = 0
	if r.Hostname != "" {
		return []*routev3.Route{others}
	}
	withPort := redirection(r, &rule.Match)
	withPort.PortRedirect = own
	toPort := route(rule, "port", &routev3.Route_Redirect{Redirect: withPort})
	toPort.Match.Headers = append(toPort.Match.Headers, headerIn(":authority", []string{".*:[0-9]+"}))
	return []*routev3.Route{toPort, others}
}

// redirection returns a redirect, with the port of the policy.
func redirection(r *kind.RequestRedirect, match *kind.HTTPMatch) *routev3.RedirectAction {
	action := &routev3.RedirectAction{HostRedirect: r.Hostname, PortRedirect: r.Port,
		ResponseCode: redirectCodes[r.StatusCode]}
	if r.Scheme != "" {
		action.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	switch {
	case r.Path == nil:
	case r.Path.Type == kind.ReplaceFullPath:
		action.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.Path.ReplaceFullPath}
	default:
		action.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: pathRewrite(r.Path, match)}
	}
	return action
}

// pathRewrite returns the change of a path. The query stays.
func pathRewrite(p *kind.PathRewrite, match *kind.HTTPMatch) *matcherv3.RegexMatchAndSubstitute {
	pattern, replacement := "^/.*$", literal(p.ReplaceFullPath)
	if p.Type == kind.ReplacePrefixMatch {
		matched := ""
		if match.Path != nil {
			matched = strings.TrimSuffix(match.Path.Value, "/")
		}
		// The slash after the prefix belongs to the rest, so that /v1/users becomes /v2/users.
		pattern, replacement = "^"+regexp.QuoteMeta(matched)+"(/.*)?$", literal(p.ReplacePrefixMatch)+`\1`
		if p.ReplacePrefixMatch == "/" {
			pattern, replacement = "^"+regexp.QuoteMeta(matched)+"(?:/(.*))?$", `/\1`
		}
	}
	return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: pattern},
		Substitution: replacement}
}

// literal returns a text as the substitution of a regular expression.
func literal(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

// rewrite applies the filters of a rule to its action.
func rewrite(action *routev3.RouteAction, rule *service.RouteRule) {
	for i := range rule.Filters {
		f := &rule.Filters[i]
		if f.Type != kind.RewriteFilter {
			continue
		}
		if f.URLRewrite.Hostname != "" {
			action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{
				HostRewriteLiteral: f.URLRewrite.Hostname}
		}
		if f.URLRewrite.Path != nil {
			action.RegexRewrite = pathRewrite(f.URLRewrite.Path, &rule.Match)
		}
	}
	for _, m := range rule.Mirrors {
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:         m.Destination.String(),
			RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: share(m.Percentage)},
		})
	}
}
