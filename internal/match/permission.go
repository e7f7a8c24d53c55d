// Package match decides which policies hit which proxy, and how those that do merge. It is pure.
package match

import (
	"fmt"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// Permissions are the joined MeshTrafficPermissions of one inbound: deny over shadow deny over allow,
// and a caller whom no rule names is denied.
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

// Names says whether the rule itself names a SPIFFE ID.
func (r Rule) Names(id string) bool {
	if r.Exact != "" {
		return id == r.Exact
	}
	return strings.HasPrefix(id, r.Prefix)
}

// Permit joins the policies that hit one section of a proxy, but for rules that are about what a zone proxy tells
// apart by server name. Policies come in the order of their names, so that equal sets give equal results.
func Permit(policies []*resource.Object[kind.MeshTrafficPermission], proxy *resource.Meta, section string) *Permissions {
	return PermitChains(policies, proxy, section).everywhere
}

// join adds what one rule of a policy says.
func (p *Permissions) join(rule placed) {
	at := fmt.Sprintf("%s rules[%d].default", rule.policy.Key(), rule.index)
	says := &rule.policy.Spec.Rules[rule.index].Default
	p.Deny = appendRules(p.Deny, at+".deny", says.Deny)
	p.ShadowDeny = appendRules(p.ShadowDeny, at+".allowWithShadowDeny", says.AllowWithShadowDeny)
	p.Allow = appendRules(p.Allow, at+".allow", says.Allow)
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

func appendRules(rules []Rule, at string, callers []kind.CallerMatch) []Rule {
	for i, caller := range callers {
		rule := Rule{Origin: fmt.Sprintf("%s[%d]", at, i)}
		switch caller.SpiffeID.Type {
		case "Prefix":
			rule.Prefix = caller.SpiffeID.Prefix()
		default:
			rule.Exact = caller.SpiffeID.Value
		}
		rules = append(rules, rule)
	}
	return rules
}

// Hits says whether a target selects a section of a proxy. Section is the inbound's name, or several
// joined with "+" where inbounds share a listener.
func Hits(target *kind.TargetRef, proxy *resource.Meta, section string) bool {
	if target == nil || target.Kind == "Mesh" {
		return true
	}
	if target.Name != "" && target.Name != proxy.Name {
		return false
	}
	if target.SectionName != "" && !slices.Contains(strings.Split(section, "+"), target.SectionName) {
		return false
	}
	return kind.Subset(target.Labels, proxy.Labels)
}
