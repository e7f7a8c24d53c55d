package envoysim

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// routeFor returns the route that a request takes, or nil where none matches.
func routeFor(config *routev3.RouteConfiguration, call Call) (*routev3.Route, error) {
	for _, host := range config.VirtualHosts {
		for _, route := range host.Routes {
			matched, err := matchRoute(route.Match, call)
			if err != nil {
				return nil, fmt.Errorf("route %s: %w", config.Name, err)
			}
			if matched {
				return route, nil
			}
		}
	}
	return nil, nil
}

// noRoute is the reason for which a request without a route is not forwarded.
func noRoute(config *routev3.RouteConfiguration, call Call) error {
	return fmt.Errorf("no route of %s matches %s %s", config.Name, orElse(call.Method, "GET"), orElse(call.Path, "/"))
}

// matchRoute reports whether a route matches a request. A path is matched without its query.
func matchRoute(match *routev3.RouteMatch, call Call) (bool, error) {
	target, _ := call.header(":path")
	path, query, _ := strings.Cut(target, "?")
	if matched, err := matchPath(match, path); !matched || err != nil {
		return false, err
	}
	for _, header := range match.Headers {
		if matched, err := matchHeader(header, call); !matched || err != nil {
			return false, err
		}
	}
	values, _ := url.ParseQuery(query) // what does not parse is no parameter
	for _, parameter := range match.QueryParameters {
		matched, err := matchString(parameter.GetStringMatch(), values.Get(parameter.Name))
		if !matched || err != nil || !values.Has(parameter.Name) {
			return false, err
		}
	}
	return true, nil
}

func matchPath(match *routev3.RouteMatch, path string) (bool, error) {
	switch m := match.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(path, m.Prefix), nil
	case *routev3.RouteMatch_Path:
		return path == m.Path, nil
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return path == m.PathSeparatedPrefix || strings.HasPrefix(path, m.PathSeparatedPrefix+"/"), nil
	case *routev3.RouteMatch_SafeRegex:
		return matchRegex(m.SafeRegex.Regex, path)
	}
	return false, fmt.Errorf("a path match of type %T is not understood", match.PathSpecifier)
}

func matchHeader(header *routev3.HeaderMatcher, call Call) (bool, error) {
	value, present := call.header(header.Name)
	if p, ok := header.HeaderMatchSpecifier.(*routev3.HeaderMatcher_PresentMatch); ok {
		return (present == p.PresentMatch) != header.InvertMatch, nil
	}
	if !present && !header.TreatMissingHeaderAsEmpty {
		return false, nil // inverted or not
	}
	matched, err := matchString(header.GetStringMatch(), value)
	return matched != header.InvertMatch, err
}

// matchRegex matches a whole value.
func matchRegex(expression, value string) (bool, error) {
	compiled, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	if err != nil {
		return false, err
	}
	return compiled.MatchString(value), nil
}

// matchString matches a whole string, as Envoy does.
func matchString(matcher *matcherv3.StringMatcher, value string) (bool, error) {
	folded := func(s string) string { return s }
	if matcher.GetIgnoreCase() {
		folded = strings.ToLower
	}
	switch pattern := matcher.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return folded(value) == folded(pattern.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(folded(value), folded(pattern.Prefix)), nil
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(folded(value), folded(pattern.Suffix)), nil
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(folded(value), folded(pattern.Contains)), nil
	case *matcherv3.StringMatcher_SafeRegex:
		return matchRegex(pattern.SafeRegex.Regex, value)
	}
	return false, fmt.Errorf("a string match of type %T is not understood", matcher.GetMatchPattern())
}

// matchPolicies returns the first policy by name that matches the caller, or an empty string.
func matchPolicies(rules *rbacv3.RBAC, names []string) (string, error) {
	for _, origin := range sortedKeys(rules.GetPolicies()) {
		policy := rules.Policies[origin]
		for _, permission := range policy.Permissions {
			if !permission.GetAny() {
				return "", fmt.Errorf("%s: a permission of type %T is not understood", origin, permission.Rule)
			}
		}
		matched, err := matchAny(policy.Principals, names)
		if err != nil {
			return "", fmt.Errorf("%s: %w", origin, err)
		}
		if matched {
			return origin, nil
		}
	}
	return "", nil
}

func matchPrincipal(principal *rbacv3.Principal, names []string) (bool, error) {
	switch id := principal.Identifier.(type) {
	case *rbacv3.Principal_AndIds:
		return matchAll(id.AndIds.Ids, names)
	case *rbacv3.Principal_OrIds:
		return matchAny(id.OrIds.Ids, names)
	case *rbacv3.Principal_Authenticated_:
		return matchNames(id.Authenticated.PrincipalName, names)
	}
	return false, fmt.Errorf("a principal of type %T is not understood", principal.Identifier)
}

func matchAny(principals []*rbacv3.Principal, names []string) (bool, error) {
	for _, principal := range principals {
		if matched, err := matchPrincipal(principal, names); matched || err != nil {
			return matched, err
		}
	}
	return false, nil
}

func matchAll(principals []*rbacv3.Principal, names []string) (bool, error) {
	for _, principal := range principals {
		if matched, err := matchPrincipal(principal, names); !matched || err != nil {
			return false, err
		}
	}
	return true, nil
}

// matchNames reports whether any of a caller's SANs matches, since Envoy compares all of them.
func matchNames(matcher *matcherv3.StringMatcher, names []string) (bool, error) {
	for _, name := range names {
		if matched, err := matchString(matcher, name); matched || err != nil {
			return matched, err
		}
	}
	return false, nil
}
