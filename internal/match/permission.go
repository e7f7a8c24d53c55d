// Package match decides which policies hit which proxy, and how those that do merge. It is pure.
package match

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// Permissions are the joined MeshTrafficPermissions of one inbound: deny over shadow deny over allow,
// and a caller that no rule matches is denied.
type Permissions struct {
	Deny       []Rule
	ShadowDeny []Rule
	Allow      []Rule
}

// Rule is one caller match of one policy.
type Rule struct {
	// Origin tells the policy and the place in it: "MeshTrafficPermission default/web rules[0].default.allow[1]".
	Origin string
	// Exact SPIFFE ID, or prefix of one, whichever is not empty.
	Exact, Prefix string
	// Also are further SPIFFE IDs for which it holds.
	Also []string
}

// Matches says whether the rule itself names a SPIFFE ID.
func (r Rule) Matches(id string) bool {
	if r.Exact != "" {
		return id == r.Exact
	}
	return strings.HasPrefix(id, r.Prefix)
}

// Permit joins the policies that apply to one section of a proxy, without the rules and the entries that are about an
// SNI: only a zone egress tells SNIs apart. Policies come in the order of their names, so that equal sets give equal
// results.
func Permit(policies []*resource.Object[kind.MeshTrafficPermission], proxy *resource.Meta, section string) *Permissions {
	if everywhere := PermitChains(policies, proxy, section).shared; everywhere != nil {
		return everywhere
	}
	return &Permissions{}
}

// join adds what one rule of a policy says of callers that come with one of the SNIs.
func (p *Permissions) join(rule placed, snis []string) {
	at := fmt.Sprintf("%s rules[%d].default", rule.policy.Key(), rule.index)
	says := &rule.policy.Spec.Rules[rule.index].Default
	p.Deny = appendRules(p.Deny, at+".deny", says.Deny, snis)
	p.ShadowDeny = appendRules(p.ShadowDeny, at+".allowWithShadowDeny", says.AllowWithShadowDeny, snis)
	p.Allow = appendRules(p.Allow, at+".allow", says.Allow, snis)
}

// Applying are the policies that hit one section of a proxy, in their order.
func Applying(policies []*resource.Object[kind.MeshTrafficPermission], proxy *resource.Meta, section string) []*resource.Object[kind.MeshTrafficPermission] {
	var hit []*resource.Object[kind.MeshTrafficPermission]
	for _, policy := range policies {
		if Hits(policy.Spec.TargetRef, proxy, section) {
			hit = append(hit, policy)
		}
	}
	return hit
}

func appendRules(rules []Rule, at string, entries []kind.CallerMatch, snis []string) []Rule {
	for i, entry := range entries {
		if entry.SNI != nil && !slices.Contains(snis, entry.SNI.Value) {
			continue
		}
		rule := Rule{Origin: fmt.Sprintf("%s[%d]", at, i)}
		switch id := entry.SpiffeID; {
		case id == nil:
			rule.Prefix = anyID
		case id.Type == "Prefix":
			rule.Prefix = id.Prefix()
		default:
			rule.Exact = id.Value
		}
		rules = append(rules, rule)
	}
	return rules
}

// anyID is the prefix of every SPIFFE ID.
const anyID = "spiffe://"

// Hits says whether a target selects a section of a proxy. Section is the inbound's name, or several
// joined with "+" where inbounds share a listener.
func Hits(ref *kind.TargetRef, proxy *resource.Meta, section string) bool {
	target, p := policy.TargetOf(ref), policy.Proxy{Name: proxy.Name, Labels: proxy.Labels}
	if target.Section != "" {
		for name := range strings.SplitSeq(section, "+") {
			p.Sections = append(p.Sections, policy.Section{Name: name})
		}
	}
	sections, all := target.Selects(&p)
	return all || len(sections) > 0
}
