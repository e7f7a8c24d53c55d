package envoysim

import (
	"fmt"
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

func matchRoute(match *routev3.RouteMatch, call Call) (bool, error) {
	prefix, ok := match.PathSpecifier.(*routev3.RouteMatch_Prefix)
	if !ok {
		return false, fmt.Errorf("a path match of type %T is not understood", match.PathSpecifier)
	}
	path, _ := call.header(":path")
	if !strings.HasPrefix(path, prefix.Prefix) {
		return false, nil
	}
	for _, header := range match.Headers {
		value, present := call.header(header.Name)
		matched, err := matchString(header.GetStringMatch(), value)
		if err != nil || !present || !matched {
			return false, err
		}
	}
	return true, nil
}

// matchString matches the whole of a string, as Envoy does.
func matchString(matcher *matcherv3.StringMatcher, value string) (bool, error) {
	switch pattern := matcher.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return value == pattern.Exact, nil
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(value, pattern.Prefix), nil
	case *matcherv3.StringMatcher_SafeRegex:
		expression, err := regexp.Compile(`\A(?:` + pattern.SafeRegex.Regex + `)\z`)
		if err != nil {
			return false, err
		}
		return expression.MatchString(value), nil
	}
	return false, fmt.Errorf("a string match of type %T is not understood", matcher.GetMatchPattern())
}

// matchPolicies answers the first policy by name that matches the caller, empty where none does.
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

// matchNames says whether any of a caller's names matches: Envoy looks at all of them.
func matchNames(matcher *matcherv3.StringMatcher, names []string) (bool, error) {
	for _, name := range names {
		if matched, err := matchString(matcher, name); matched || err != nil {
			return matched, err
		}
	}
	return false, nil
}
