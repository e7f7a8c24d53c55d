package match

import (
	"slices"

	"weft/kind"
	"weft/resource"
)

// Chains are the rules that hit one section of a zone proxy, by the filter chains that they are about.
type Chains struct {
	everywhere *Permissions
	reaching   bool // some rule is about every chain
	named      map[string][]placed
}

// placed is one rule of a policy.
type placed struct {
	policy *resource.Object[kind.MeshTrafficPermission]
	index  int
}

// PermitChains sorts the rules of the policies that hit one section of a zone proxy. Policies come in the order of
// their names.
func PermitChains(policies []*resource.Object[kind.MeshTrafficPermission], proxy *resource.Meta, section string) *Chains {
	c := &Chains{everywhere: &Permissions{}, named: map[string][]placed{}}
	for _, policy := range Applying(policies, proxy, section) {
		for i, rule := range policy.Spec.Rules {
			at := placed{policy, i}
			if len(rule.Matches) == 0 {
				c.reaching = true
				c.everywhere.join(at)
			}
			for _, m := range rule.Matches {
				c.named[m.SNI.Value] = append(c.named[m.SNI.Value], at)
			}
		}
	}
	return c
}

// Of joins the rules of the chain that has these server names: those about every chain, and those that match one
// of the names. It is nil where no rule reaches the chain.
func (c *Chains) Of(snis []string) *Permissions {
	var own []placed
	for _, sni := range snis {
		for _, rule := range c.named[sni] {
			if !slices.Contains(own, rule) { // which may match several of the names
				own = append(own, rule)
			}
		}
	}
	switch {
	case len(own) == 0 && !c.reaching:
		return nil
	case len(own) == 0:
		return c.everywhere
	}
	joined := &Permissions{
		Deny: slices.Clone(c.everywhere.Deny), ShadowDeny: slices.Clone(c.everywhere.ShadowDeny), Allow: slices.Clone(c.everywhere.Allow),
	}
	for _, rule := range own {
		joined.join(rule)
	}
	return joined
}

// Everybody are the permissions that let in whoever is believed. Origin says whose will that is.
func Everybody(origin string) *Permissions {
	return &Permissions{Allow: []Rule{{Origin: origin, Prefix: "spiffe://"}}}
}
