package envoy

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/internal/xds"
)

const (
	httpRBACType = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	decisionType = "type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config"
)

// severalDomains names the rule against a caller with names in two trust domains. Its certificate was
// checked against the roots of the first name's domain, so that the second proves nothing.
const severalDomains = "weft: the caller has names in several trust domains"

// forgedDetails names the rule against a caller with a URI SAN that an application would read in x-forwarded-client-cert
// as several: Envoy writes each URI SAN there and escapes nothing. The rule matches what no SPIFFE ID contains
// (SPIFFE-ID, section 2), and a SPIFFE ID inside another SAN.
const forgedDetails = "weft: a URI SAN of the caller contains another one"

// denyName and allowName name the RBAC filters of a place that reads requests: an inbound's is the same for all
// proxies that listen on a port, so that those with equal rules share the bytes, and whatever inbounds share the
// listener, so that its filter chain stays as it is.
func denyName(place string) string { return "self_permission_deny_http_" + place }

func allowName(place string) string { return "self_permission_allow_http_" + place }

// permissions are the filters of a place, which are there whatever the rules are: a change of the rules is a change
// of these and never of the listener. Requests pass what denies, then what allows; TCP connections a [decision].
func permissions(g graph.Guard) []*xds.Resource {
	rules := g.Permissions
	if rules == nil {
		rules = &match.Permissions{}
	}
	if !g.Protocol.IsHTTP() {
		return []*xds.Resource{extension(decisionName(g.Place), decision(rules, g.TrustDomains))}
	}
	deny := denied(rules, g.TrustDomains)
	deny.Policies[forgedDetails] = policy(matching(`(?s)spiffe://.*[^A-Za-z0-9._/-].*`), matching(`(?s).+spiffe://.*`))
	return []*xds.Resource{
		extension(denyName(g.Place), &httprbacv3.RBAC{Rules: deny, ShadowRules: shadowDenied(rules)}),
		extension(allowName(g.Place), &httprbacv3.RBAC{Rules: allowed(rules, g.TrustDomains)}),
	}
}

// guardedRequests puts the filters of a place before what it leads to.
func guardedRequests(g graph.Guard, manager *hcmv3.HttpConnectionManager) {
	manager.HttpFilters = append([]*hcmv3.HttpFilter{
		discoveredHTTPFilter(evictedHTTPName(g.Mesh)),
		discoveredHTTPFilter(denyName(g.Place)),
		discoveredHTTPFilter(allowName(g.Place)),
	}, manager.HttpFilters...)
}

func extension(name string, filter proto.Message) *xds.Resource {
	return xds.NewResource(xds.Extension, name, &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(filter)})
}

func denied(p *match.Permissions, domains []string) *rbacv3.RBAC {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for _, rule := range p.Deny {
		rules.Policies[rule.Origin] = policy(named(rule)...)
	}
	if several := inTwoOf(domains); len(several) > 0 {
		rules.Policies[severalDomains] = policy(several...)
	}
	return rules
}

// shadowDenied is counted and logged as a denial, and denies nothing.
func shadowDenied(p *match.Permissions) *rbacv3.RBAC {
	if len(p.ShadowDeny) == 0 {
		return nil
	}
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for _, rule := range p.ShadowDeny {
		rules.Policies[rule.Origin] = policy(named(rule)...)
	}
	return rules
}

// allowed lets in whom a rule names, as far as the mesh believes in the name's trust domain: a name of
// another one can only stand beside the one that was checked. Without a rule it lets in nobody.
func allowed(p *match.Permissions, domains []string) *rbacv3.RBAC {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW, Policies: map[string]*rbacv3.Policy{}}
	for _, list := range [][]match.Rule{p.ShadowDeny, p.Allow} {
		for _, rule := range list {
			if principals := believed(rule, domains); len(principals) > 0 {
				rules.Policies[rule.Origin] = policy(principals...)
			}
		}
	}
	return rules
}

// believed narrows a rule to the names of the domains: it is kept where it lies within one of them, and
// where it spans some it becomes each of those.
func believed(rule match.Rule, domains []string) []*rbacv3.Principal {
	within := func(pattern string) bool {
		return slices.ContainsFunc(domains, func(domain string) bool { return strings.HasPrefix(pattern, idPrefix(domain)) })
	}
	kept := match.Rule{}
	for _, name := range rule.Also {
		if within(name) {
			kept.Also = append(kept.Also, name)
		}
	}
	var principals []*rbacv3.Principal
	switch {
	case within(rule.Exact + rule.Prefix): // one of them is empty
		kept.Exact, kept.Prefix = rule.Exact, rule.Prefix
	case rule.Exact == "":
		for _, domain := range domains {
			if prefix := idPrefix(domain); strings.HasPrefix(prefix, rule.Prefix) {
				principals = append(principals, under(prefix))
			}
		}
	}
	return append(principals, named(kept)...)
}

// inTwoOf matches a caller with names in two of the domains, in a size that grows hardly faster than
// their number: one in each half, or two in either half.
func inTwoOf(domains []string) []*rbacv3.Principal {
	if len(domains) < 2 {
		return nil
	}
	left, right := domains[:len(domains)/2], domains[len(domains)/2:]
	across := &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{
		Ids: []*rbacv3.Principal{inOneOf(left), inOneOf(right)},
	}}}
	return append(append([]*rbacv3.Principal{across}, inTwoOf(left)...), inTwoOf(right)...)
}

func inOneOf(domains []string) *rbacv3.Principal {
	set := &rbacv3.Principal_Set{}
	for _, domain := range domains {
		set.Ids = append(set.Ids, under(idPrefix(domain)))
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: set}}
}

func idPrefix(domain string) string { return "spiffe://" + domain + "/" }

// named matches all whom a rule names, and for whom it holds also.
func named(rule match.Rule) []*rbacv3.Principal {
	var principals []*rbacv3.Principal
	if rule.Prefix != "" {
		principals = append(principals, under(rule.Prefix))
	}
	for _, name := range append([]string{rule.Exact}, rule.Also...) {
		if name != "" {
			principals = append(principals, authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}))
		}
	}
	return principals
}

func under(prefix string) *rbacv3.Principal {
	return authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
}

func matching(expression string) *rbacv3.Principal {
	return authenticated(&matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expression}},
	})
}

func authenticated(name *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: name},
	}}
}

func policy(principals ...*rbacv3.Principal) *rbacv3.Policy {
	return &rbacv3.Policy{
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
		Principals:  principals,
	}
}
