package match

import (
	"slices"

	"weft/kind"
	"weft/resource"
)

// Chains are the rules for one section of a zone proxy, by filter chain.
type Chains struct {
	every    []placed            // rules without matches, which apply to every filter chain
	matching map[string][]placed // the other rules, by SNI
	named    map[string]bool     // SNIs in the entries of every
	shared   *Permissions        // of a filter chain with an SNI in neither; nil: no rule applies
}

// placed is one rule of a policy.
type placed struct {
	policy *resource.Object[kind.MeshTrafficPermission]
	index  int
}

// PermitChains returns the rules of the policies that apply to one section of a zone proxy, by filter chain. Policies
// must be sorted by name.
func PermitChains(policies []*resource.Object[kind.MeshTrafficPermission]) *Chains {
	c := &Chains{matching: map[string][]placed{}, named: map[string]bool{}}
	for _, policy := range policies {
		for i := range policy.Spec.Rules {
			c.addRule(placed{policy, i})
		}
	}
	if len(c.every) > 0 {
		c.shared = joined(c.every, nil)
	}
	return c
}

func (c *Chains) addRule(at placed) {
	rule := &at.policy.Spec.Rules[at.index]
	for _, m := range rule.Matches {
		c.matching[m.SNI.Value] = append(c.matching[m.SNI.Value], at)
	}
	if len(rule.Matches) > 0 {
		return
	}
	c.every = append(c.every, at)
	for _, entry := range rule.Default.Entries() {
		if entry.SNI != nil {
			c.named[entry.SNI.Value] = true
		}
	}
}

// PermissionsOf joins the rules of the filter chain with these SNIs: rules without matches, and rules that match one of
// the SNIs. An entry with an SNI applies where the filter chain has the SNI. It returns nil where no rule applies.
func (c *Chains) PermissionsOf(snis []string) *Permissions {
	rules, own := slices.Clip(c.every), false
	for _, sni := range snis {
		own = own || c.named[sni]
		for _, rule := range c.matching[sni] {
			if !slices.Contains(rules, rule) { // a rule may match several of the SNIs
				rules, own = append(rules, rule), true
			}
		}
	}
	if !own {
		return c.shared
	}
	return joined(rules, snis)
}

func joined(rules []placed, snis []string) *Permissions {
	p := &Permissions{}
	for _, rule := range rules {
		p.join(rule, snis)
	}
	return p
}

// AllowAll returns permissions that allow every trusted caller. Origin is the setting that states it.
func AllowAll(origin string) *Permissions {
	return &Permissions{Allow: []Rule{{Origin: origin, IDPattern: kind.IDPattern{Prefix: anyID}}}}
}
