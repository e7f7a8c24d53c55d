// Package match merges the policies that apply to a proxy. Its functions are pure.
package match

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// Permissions are the joined MeshTrafficPermissions of one inbound. A deny takes precedence over a shadow deny, and
// that over an allow. A caller without a matching rule is denied.
type Permissions struct {
	Deny       []Rule
	ShadowDeny []Rule
	Allow      []Rule
}

// Rule is one caller match of one policy.
type Rule struct {
	// Origin is the policy and the rule's place in it: "MeshTrafficPermission default/web rules[0].default.allow[1]".
	Origin string
	// IDPattern is the SPIFFE IDs that the match has.
	kind.IDPattern
	// OtherIDs are further SPIFFE IDs that the rule matches.
	OtherIDs []string
}

// Permit joins the policies that apply to one section of a proxy. It omits rules and entries with an SNI, which apply
// to zone egresses only. Policies must be sorted by name, so that equal sets have equal results.
func Permit(policies []*resource.Object[kind.MeshTrafficPermission]) *Permissions {
	if everywhere := PermitChains(policies).shared; everywhere != nil {
		return everywhere
	}
	return &Permissions{}
}

// join adds one rule of a policy for callers with one of the SNIs.
func (p *Permissions) join(rule placed, snis []string) {
	at := fmt.Sprintf("%s rules[%d].default", rule.policy.Key(), rule.index)
	says := &rule.policy.Spec.Rules[rule.index].Default
	meta := &rule.policy.Meta
	p.Deny = appendRules(p.Deny, meta, at+".deny", says.Deny, snis)
	p.ShadowDeny = appendRules(p.ShadowDeny, meta, at+".allowWithShadowDeny", says.AllowWithShadowDeny, snis)
	p.Allow = appendRules(p.Allow, meta, at+".allow", says.Allow, snis)
}

func appendRules(rules []Rule, policy *resource.Meta, at string, entries []kind.CallerMatch, snis []string) []Rule {
	for i, entry := range entries {
		if entry.SNI != nil && !slices.Contains(snis, entry.SNI.Value) {
			continue
		}
		rule := Rule{Origin: fmt.Sprintf("%s[%d]", at, i)}
		rule.Prefix = anyID
		if id := entry.SpiffeID; id != nil {
			rule.IDPattern = id.Pattern(policy)
		}
		rules = append(rules, rule)
	}
	return rules
}

// anyID is the prefix of every SPIFFE ID.
const anyID = "spiffe://"

// Selects reports whether a target selects a section of a proxy. Section is the inbound's name, or several joined with
// "+" where inbounds share a listener.
func Selects(ref *kind.TargetRef, proxy *resource.Meta, section string) bool {
	target, p := policy.TargetOf(ref), policy.Proxy{Name: kind.DisplayNameOf(proxy), Labels: proxy.Labels}
	if target.Section != "" {
		for name := range strings.SplitSeq(section, "+") {
			p.Sections = append(p.Sections, policy.Section{Name: name})
		}
	}
	sections, all := target.Selects(&p)
	return all || len(sections) > 0
}
