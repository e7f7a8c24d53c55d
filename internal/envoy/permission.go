package envoy

import (
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/xds"
)

// severalDomains is the rule that denies a caller with SPIFFE IDs of two trust domains. Its certificate was checked
// against the roots of the first ID's domain, so the second proves nothing.
const severalDomains = "weft: the caller has names in several trust domains"

// forgedDetails is the rule that denies a caller with a URI SAN that an application would read as several in
// x-forwarded-client-cert, where Envoy escapes nothing. The rule matches characters that no SPIFFE ID contains
// (SPIFFE-ID, section 2), and a SPIFFE ID inside another SAN.
const forgedDetails = "weft: a URI SAN of the caller contains another one"

// denyName and allowName return the names of the RBAC filters of a guard that reads requests. The name of an inbound's
// filter is the same for all proxies that listen on a port, so proxies with equal rules share its bytes. It does not
// depend on the inbounds that share the listener, so the filter chain stays unchanged.
func denyName(place string) string { return "self_permission_deny_http_" + place }

func allowName(place string) string { return "self_permission_allow_http_" + place }

// permissions returns the filters of a guard. They exist for any set of rules, so a change of the rules never changes
// the listener. Requests pass the deny filter, then the allow filter; TCP connections a [decision].
func permissions(g proxy.Guard) []*xds.Resource {
	rules := g.Permissions
	if rules == nil {
		rules = &match.Permissions{}
	}
	if !g.Protocol.IsHTTP() {
		return []*xds.Resource{extension(decisionName(g.Place), decision(rules, g.TrustDomains))}
	}
	deny := denied(rules, g.TrustDomains)
	deny.Policies[forgedDetails] = anyPermission(uriPattern(`(?s)spiffe://.*[^A-Za-z0-9._/-].*`),
		uriPattern(`(?s).+spiffe://.*`))
	return []*xds.Resource{
		extension(denyName(g.Place), &httprbacv3.RBAC{Rules: deny, ShadowRules: shadowDenied(rules)}),
		extension(allowName(g.Place), &httprbacv3.RBAC{Rules: allowed(rules, g.TrustDomains)}),
	}
}

// guardedRequests puts the filters of the guard of a place first.
func guardedRequests(mesh, place string, manager *hcmv3.HttpConnectionManager) {
	manager.HttpFilters = append([]*hcmv3.HttpFilter{
		discoveredHTTPFilter(evictedHTTPName(mesh), httpRBACType),
		discoveredHTTPFilter(denyName(place), httpRBACType),
		discoveredHTTPFilter(allowName(place), httpRBACType),
	}, manager.HttpFilters...)
}

func denied(p *match.Permissions, domains []string) *rbacv3.RBAC {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for _, rule := range p.Deny {
		rules.Policies[rule.Origin] = anyPermission(principalsOf(rule)...)
	}
	if several := inTwoDomains(domains); len(several) > 0 {
		rules.Policies[severalDomains] = anyPermission(several...)
	}
	return rules
}

// shadowDenied counts and logs a denial, and denies nothing.
func shadowDenied(p *match.Permissions) *rbacv3.RBAC {
	if len(p.ShadowDeny) == 0 {
		return nil
	}
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for _, rule := range p.ShadowDeny {
		rules.Policies[rule.Origin] = anyPermission(principalsOf(rule)...)
	}
	return rules
}

// allowed accepts the callers of the allow rules, as far as the mesh trusts the trust domains of their SPIFFE IDs: an
// ID of another domain can only stand beside the one that was verified. Without a rule it accepts no caller.
func allowed(p *match.Permissions, domains []string) *rbacv3.RBAC {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW, Policies: map[string]*rbacv3.Policy{}}
	for _, list := range [][]match.Rule{p.ShadowDeny, p.Allow} {
		for _, rule := range list {
			if principals := trustedPrincipals(rule, domains); len(principals) > 0 {
				rules.Policies[rule.Origin] = anyPermission(principals...)
			}
		}
	}
	return rules
}

// trustedPrincipals limits a rule to the SPIFFE IDs of the domains. A rule within one domain is unchanged; a rule that
// spans several becomes one rule for each.
func trustedPrincipals(rule match.Rule, domains []string) []*rbacv3.Principal {
	within := func(pattern string) bool {
		return slices.ContainsFunc(domains, func(domain string) bool {
			return strings.HasPrefix(pattern, idPrefix(domain))
		})
	}
	kept := match.Rule{}
	for _, name := range rule.OtherIDs {
		if within(name) {
			kept.OtherIDs = append(kept.OtherIDs, name)
		}
	}
	var principals []*rbacv3.Principal
	switch {
	case within(rule.Value()):
		kept.IDPattern = rule.IDPattern
	case rule.Exact == "":
		for _, domain := range domains {
			if prefix := idPrefix(domain); strings.HasPrefix(prefix, rule.Prefix) {
				principals = append(principals, uriPrefix(prefix))
			}
		}
	}
	return append(principals, principalsOf(kept)...)
}

// inTwoDomains matches a caller with SPIFFE IDs in two of the domains: one in each half of the list, or two in either
// half. Its size grows hardly faster than their number.
func inTwoDomains(domains []string) []*rbacv3.Principal {
	if len(domains) < 2 {
		return nil
	}
	left, right := domains[:len(domains)/2], domains[len(domains)/2:]
	across := &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{
		Ids: []*rbacv3.Principal{inAnyDomain(left), inAnyDomain(right)},
	}}}
	return append(append([]*rbacv3.Principal{across}, inTwoDomains(left)...), inTwoDomains(right)...)
}

func inAnyDomain(domains []string) *rbacv3.Principal {
	set := &rbacv3.Principal_Set{}
	for _, domain := range domains {
		set.Ids = append(set.Ids, uriPrefix(idPrefix(domain)))
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: set}}
}

func idPrefix(domain string) string { return "spiffe://" + domain + "/" }

// principalsOf returns the principals of a rule, including the conditions that must also hold.
func principalsOf(rule match.Rule) []*rbacv3.Principal {
	var principals []*rbacv3.Principal
	if rule.Prefix != "" {
		principals = append(principals, uriPrefix(rule.Prefix))
	}
	for _, name := range append([]string{rule.Exact}, rule.OtherIDs...) {
		if name != "" {
			principals = append(principals,
				authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}))
		}
	}
	return principals
}

func uriPrefix(prefix string) *rbacv3.Principal {
	return authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
}

func uriPattern(expression string) *rbacv3.Principal {
	return authenticated(&matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expression}},
	})
}

func authenticated(name *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: name},
	}}
}

func anyPermission(principals ...*rbacv3.Principal) *rbacv3.Policy {
	return &rbacv3.Policy{
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
		Principals:  principals,
	}
}
