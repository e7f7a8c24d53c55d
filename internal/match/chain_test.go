package match

import (
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

const (
	apiSNI   = "a0123456789abcdef.api.443.default.mes"
	newerSNI = "b0123456789abcdef0123456789abcdef.443.mes"
	otherSNI = "afedcba9876543210.other.443.default.mes"
)

// rule allows a caller, or with "!" denies it, for every filter chain or for those with the SNIs.
func rule(caller string, snis ...string) kind.PermissionRule {
	caller, denied := strings.CutPrefix(caller, "!")
	matches := []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: caller}}}
	r := kind.PermissionRule{}
	if denied {
		r.Default.Deny = matches
	} else if caller != "" {
		r.Default.Allow = matches
	}
	return at(r, snis...)
}

// entry is rule for callers with an SNI. An empty caller means every caller with it.
func entry(caller, sni string) kind.PermissionRule {
	r := rule(caller)
	if caller == "" {
		r.Default.Allow = []kind.CallerMatch{{}}
	}
	for _, entries := range [][]kind.CallerMatch{r.Default.Allow, r.Default.Deny} {
		for i := range entries {
			entries[i].SNI = &kind.SNIMatch{Type: "Exact", Value: sni}
		}
	}
	return r
}

func at(r kind.PermissionRule, snis ...string) kind.PermissionRule {
	for _, sni := range snis {
		r.Matches = append(r.Matches, kind.PermissionMatch{SNI: &kind.SNIMatch{Type: "Exact", Value: sni}})
	}
	return r
}

// The rules of a policy, for a filter chain with two SNIs and for an inbound of a sidecar.
func TestRulesOfChains(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []kind.PermissionRule
		// the allowed callers, and with "!" the denied ones; "no caller reaches it" without a rule
		chain, inbound string
	}{
		{"none", nil, "no rule reaches it", ""},
		{"everywhere", []kind.PermissionRule{rule("a")}, "a", "a"},
		{"at this chain", []kind.PermissionRule{rule("a", apiSNI)}, "a", ""},
		{"at this chain by its newer name", []kind.PermissionRule{rule("a", newerSNI)}, "a", ""},
		{"at this chain by both names, once", []kind.PermissionRule{rule("a", apiSNI, newerSNI)}, "a", ""},
		{"at another chain", []kind.PermissionRule{rule("a", otherSNI)}, "no rule reaches it", ""},
		{"here and everywhere", []kind.PermissionRule{rule("a"), rule("!b", apiSNI)}, "!b a", "a"},
		{"that say nothing reach it too", []kind.PermissionRule{rule("", apiSNI)}, "", ""},
		{"for callers with its SNI", []kind.PermissionRule{entry("a", apiSNI)}, "a", ""},
		{"for callers with its other SNI", []kind.PermissionRule{entry("!a", newerSNI)}, "!a", ""},
		{"for callers with another SNI", []kind.PermissionRule{entry("a", otherSNI)}, "", ""},
		{"for every caller with its SNI", []kind.PermissionRule{entry("", apiSNI)}, "spiffe://", ""},
		{"for callers with its SNI, and for others", []kind.PermissionRule{entry("!a", apiSNI), rule("b")}, "!a b",
			"b"},
		{"at this chain for callers with its SNI", []kind.PermissionRule{at(entry("a", newerSNI), apiSNI)}, "a",
			""},
		{"at another chain for callers with its SNI", []kind.PermissionRule{at(entry("a", apiSNI), otherSNI)},
			"no rule reaches it", ""},
		{"at this chain for callers with another SNI", []kind.PermissionRule{at(entry("a", otherSNI), apiSNI)}, "",
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			policies := []*resource.Object[kind.MeshTrafficPermission]{
				kind.MeshTrafficPermissions.Make("default", "p", kind.MeshTrafficPermission{Rules: c.rules}),
			}
			chain := PermitChains(policies).PermissionsOf([]string{apiSNI, newerSNI})
			if got := describePermissions(chain); got != c.chain {
				t.Errorf("of the chain they say %q, want %q", got, c.chain)
			}
			if got := describePermissions(Permit(policies)); got != c.inbound {
				t.Errorf("of the inbound they say %q, want %q", got, c.inbound)
			}
		})
	}
}

// Filter chains share the rules without matches; a rule for one of them does not apply to the others.
func TestChainsDoNotShareTheirOwnRules(t *testing.T) {
	policies := []*resource.Object[kind.MeshTrafficPermission]{
		kind.MeshTrafficPermissions.Make("default", "p", kind.MeshTrafficPermission{
			Rules: []kind.PermissionRule{rule("a"), rule("b", apiSNI), rule("c", otherSNI)},
		}),
	}
	chains := PermitChains(policies)
	got := []string{describePermissions(chains.PermissionsOf([]string{apiSNI})),
		describePermissions(chains.PermissionsOf([]string{otherSNI})),
		describePermissions(chains.PermissionsOf([]string{newerSNI}))}
	if want := []string{"a b", "a c", "a"}; !slices.Equal(got, want) {
		t.Errorf("the chains let in %q, want %q", got, want)
	}
}

func describePermissions(p *Permissions) string {
	if p == nil {
		return "no rule reaches it"
	}
	var all []string
	for _, r := range p.Deny {
		all = append(all, "!"+r.Exact+r.Prefix)
	}
	for _, r := range p.Allow {
		all = append(all, r.Exact+r.Prefix)
	}
	return strings.Join(all, " ")
}
