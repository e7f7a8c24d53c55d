package pki

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

func (c *DataplaneClaims) has(role string) bool { return slices.Contains(RolesOf(c.Type), role) }

// Vouches reports whether the token claims a fact of a Dataplane (see [kind.Facts]). An absent claim vouches for no
// fact, not even for a label with an empty value.
func (c *DataplaneClaims) Vouches(fact string) bool {
	switch f := kind.ReadFact(fact); {
	case f.Name != "":
		return c.Name == f.Name
	case f.Service != "":
		return c.hasTag(kind.ServiceTag, f.Service)
	case f.Tag != "":
		return c.hasTag(f.Tag, f.Value)
	case f.Address != "":
		return c.hasAddress(f.Address)
	case f.Label == kind.WorkloadLabel:
		return f.Value != "" && c.Workload == f.Value
	case f.Label != "":
		return hasLabel(c.Labels, f) || hasLabel(c.DataplaneLabels, f)
	default:
		return c.has(f.Role)
	}
}

func hasLabel(labels map[string]string, f kind.Fact) bool {
	value, claimed := labels[f.Label]
	return claimed && value == f.Value
}

func (c *DataplaneClaims) hasTag(tag, value string) bool {
	return slices.Contains(c.Tags[tag], value) || slices.Contains(c.InboundTags[tag], value)
}

// hasAddress reports whether the token claims an address by itself or by a network.
func (c *DataplaneClaims) hasAddress(address string) bool {
	if slices.Contains(c.Addresses, address) {
		return true
	}
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(c.Addresses, func(claimed string) bool {
		network, err := netip.ParsePrefix(claimed)
		return err == nil && network.Contains(ip.Unmap())
	})
}

// ClaimedFacts returns the facts of a Dataplane that the token vouches for, sorted.
func (c *DataplaneClaims) ClaimedFacts(o *resource.Object[kind.Dataplane]) []string {
	return slices.DeleteFunc(kind.Facts(o), func(fact string) bool { return !c.Vouches(fact) })
}

// CheckEntitlement returns nil if the token's holder is entitled to an identity that depends on vouched facts of the
// Dataplane o: the token claims each of them. Facts that an operator vouches for count for a token with the Dataplane's
// name only. The error names the missing facts, and the command that generates a sufficient token.
func (c *DataplaneClaims) CheckEntitlement(o *resource.Object[kind.Dataplane], rests resource.Vouched) error {
	missing := slices.DeleteFunc(slices.Concat(rests.Operator, rests.Token), func(fact string) bool {
		return c.Vouches(fact) || c.Name == o.Name && slices.Contains(rests.Operator, fact)
	})
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the token does not vouch for %s of %s; make one that does with `%s`", factsText(missing),
		o.Key(),
		tokenCommand(o, missing))
}

// Sections returns nil if the token's holder may run the zone proxy sections of a Dataplane. operator are the sections
// that operators vouch for.
func (c *DataplaneClaims) Sections(o *resource.Object[kind.Dataplane], operator []string) error {
	var rests resource.Vouched
	for _, fact := range kind.SectionFacts(&o.Spec.Networking) {
		if slices.Contains(operator, fact) {
			rests.Operator = append(rests.Operator, fact)
		} else {
			rests.Token = append(rests.Token, fact)
		}
	}
	return c.CheckEntitlement(o, rests)
}

// Replaces returns nil if the token's holder may replace a stored Dataplane. Vouched facts of the stored one must stay,
// unless the token claims other values: a token without a workload cannot remove or change the workload of a Dataplane.
// Facts on which membership alone rests may go, since their proxy then leaves its services. A token with the name of a
// Dataplane that tokens without it registered takes it over: what those vouched for binds it to nothing. Another token
// without the name leaves the inbounds as they are, unless it claims what the first one vouched for: otherwise it would
// bring an address of its own into the services of that one.
func (c *DataplaneClaims) Replaces(stored, next *resource.Object[kind.Dataplane]) error {
	has, takesOver := kind.Facts(next), kind.TakesOver(stored, c.ClaimedFacts(next))
	for _, fact := range kind.Facts(stored) {
		vouched := slices.Contains(stored.Vouched.Operator, fact) ||
			!takesOver && slices.Contains(stored.Vouched.Token, fact)
		f := kind.ReadFact(fact)
		if !vouched || f.SelectsOnly() || c.claimsInPlaceOf(f) || f.Name == "" && slices.Contains(has, fact) {
			continue
		}
		by := "the token that registered it"
		if slices.Contains(stored.Vouched.Operator, fact) {
			by = "an operator"
		}
		if f.Name != "" {
			return fmt.Errorf("%s exists, and %s vouches for its name: registering it takes a token with that name; "+
				"make one with `%s`", stored.Key(), by, tokenCommand(next, nil))
		}
		return fmt.Errorf("%s vouches for %s of %s: an agent changes that only with a token that says what it is to "+
			"be; make one with `%s`, or change it through the API",
			by, f, stored.Key(), tokenCommand(next, []string{fact}))
	}
	if missing := c.unclaimed(stored); !takesOver && len(missing) > 0 && !kind.SameInbounds(stored, next) {
		return fmt.Errorf("the token that registered %s vouches for %s, and this one does not: it may register the "+
			"Dataplane with the same inbounds only; make one that does with `%s`, or choose another name",
			stored.Key(), factsText(missing), tokenCommand(next, missing))
	}
	return nil
}

// unclaimed returns the facts of a Dataplane for which another token vouches, and the token does not. A token that has
// the name of the Dataplane is no other one.
func (c *DataplaneClaims) unclaimed(stored *resource.Object[kind.Dataplane]) []string {
	if c.Name == stored.Name {
		return nil
	}
	return slices.DeleteFunc(kind.Facts(stored), func(fact string) bool {
		return !slices.Contains(stored.Vouched.Token, fact) || c.Vouches(fact) ||
			c.claimsInPlaceOf(kind.ReadFact(fact))
	})
}

// claimsInPlaceOf reports whether the token has a claim for the kind of a fact, with any value.
func (c *DataplaneClaims) claimsInPlaceOf(f kind.Fact) bool {
	_, label := c.Labels[f.Label]
	switch {
	case f.Name != "":
		return c.Name == f.Name
	case f.Service != "":
		return len(c.Tags[kind.ServiceTag]) > 0
	case f.Label == kind.WorkloadLabel:
		return c.Workload != ""
	case f.Label != "":
		return label
	}
	return c.has(f.Role)
}

// ErrorOfUnvouched returns the error for facts of a Dataplane without a voucher, with advice.
func ErrorOfUnvouched(o *resource.Object[kind.Dataplane], missing []string) error {
	return fmt.Errorf("neither the token of the Dataplane nor an operator vouches for %s; make a token that does "+
		"with `%s`, or write the Dataplane through the API",
		factsText(missing), tokenCommand(o, missing))
}

// UnvouchedMember returns why an inbound of a Dataplane is no member of a service, with the command that generates a
// token which vouches for the missing facts.
func UnvouchedMember(o *resource.Object[kind.Dataplane], missing []string) string {
	return fmt.Sprintf("neither its token nor an operator vouches for %s; make a token that does with `%s`, or write "+
		"the Dataplane through the API", factsText(missing), tokenCommand(o, missing))
}

func factsText(facts []string) string {
	var words []string
	for _, fact := range facts {
		words = append(words, kind.ReadFact(fact).String())
	}
	return strings.Join(words, " and ")
}

// TokenFor returns the claims of a token that vouches for a Dataplane: its name, its workload, its labels, the tags and
// addresses of its inbounds, and its roles.
func TokenFor(o *resource.Object[kind.Dataplane]) *DataplaneClaims {
	claims := &DataplaneClaims{Mesh: o.Mesh, Name: o.Name, Workload: o.Label(kind.WorkloadLabel)}
	claims.Type, _ = TypeOf(o.Spec.Networking.Roles()) // they exist
	claims.addInbounds(&o.Spec.Networking)
	for label, value := range o.Labels {
		if label != kind.WorkloadLabel && !kind.IsComputedLabel(label) {
			setLabel(&claims.DataplaneLabels, label, value)
		}
	}
	return claims
}

func setLabel(labels *map[string]string, label, value string) {
	if *labels == nil {
		*labels = map[string]string{}
	}
	(*labels)[label] = value
}

// addInbounds adds the claims that vouch for inbounds. The tag kuma.io/service is required where each inbound has it;
// other tags may change without another token where nothing selects them, so they are vouched for only.
func (c *DataplaneClaims) addInbounds(n *kind.Networking) {
	values := map[string][]string{}
	for _, in := range n.Inbound {
		for tag, value := range in.Tags {
			if value != "" && !kind.IsComputedTag(tag) && !slices.Contains(values[tag], value) {
				values[tag] = append(values[tag], value)
			}
		}
		if address := cmp.Or(in.Address, n.Address); address != "" && !slices.Contains(c.Addresses, address) {
			c.Addresses = append(c.Addresses, address)
		}
	}
	everywhere := !slices.ContainsFunc(n.Inbound, func(in kind.Inbound) bool { return in.Tags[kind.ServiceTag] == "" })
	if services := values[kind.ServiceTag]; everywhere && len(services) > 0 {
		c.Tags = map[string][]string{kind.ServiceTag: services}
		delete(values, kind.ServiceTag)
	}
	if len(values) > 0 {
		c.InboundTags = values
	}
}

// tokenCommand returns the command that generates a token with the given facts of a Dataplane, and its name, workload,
// services and roles. Other tags and addresses are left out: what was vouched for once stays so.
func tokenCommand(o *resource.Object[kind.Dataplane], facts []string) string {
	claims := TokenFor(o)
	claims.DataplaneLabels = nil
	facts = slices.Concat(facts, o.Vouched.Token) // what rests on these stays
	for _, fact := range facts {
		if label := kind.ReadFact(fact).Label; label != "" && label != kind.WorkloadLabel && o.Label(label) != "" {
			setLabel(&claims.Labels, label, o.Label(label))
		}
	}
	for tag, values := range claims.InboundTags {
		claims.InboundTags[tag] = slices.DeleteFunc(values, func(value string) bool {
			return tag != kind.ServiceTag && !slices.Contains(facts, kind.TagFact(tag, value))
		})
	}
	claims.Addresses = slices.DeleteFunc(claims.Addresses, func(address string) bool {
		return !slices.Contains(facts, kind.AddressFact(address))
	})
	return claims.Command()
}

// Command returns the command that generates a token with these claims.
func (c *DataplaneClaims) Command() string {
	command := "weft generate dataplane-token --mesh " + c.Mesh
	add := func(flag, value string) {
		if value != "" {
			command += " --" + flag + " " + value
		}
	}
	add("name", c.Name)
	add("workload", c.Workload)
	for _, tag := range slices.Sorted(maps.Keys(c.Tags)) {
		for _, value := range c.Tags[tag] {
			add("tag", tag+"="+value)
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(c.InboundTags)) {
		for _, value := range c.InboundTags[tag] {
			add("inbound-tag", tag+"="+value)
		}
	}
	for _, address := range c.Addresses {
		add("address", address)
	}
	for _, label := range slices.Sorted(maps.Keys(c.Labels)) {
		add("label", label+"="+c.Labels[label])
	}
	if c.Type != kind.DataplaneRole {
		add("proxy-type", c.Type)
	}
	return command
}
