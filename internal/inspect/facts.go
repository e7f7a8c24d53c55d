package inspect

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// byExemption stands in the place of a voucher where the `unvouchedMembers` of the Mesh exempt a fact.
const byExemption identity.Voucher = "unvouchedMembers"

// MaxFacts and MaxFactUses bound the facts in a report, and what it lists for one of them.
const (
	MaxFacts    = 256
	MaxFactUses = 20
)

// AppliedFact is a fact of a Dataplane: its name, a label, a tag or an address of inbounds, or a zone proxy section.
type AppliedFact struct {
	Fact string `json:"fact"` // "tag kuma.io/service: web"
	// Voucher is who vouches for it: "operator", "token", "API server", "connection of the agent" or "vouchedNetworks".
	// It is "unvouchedMembers" where the Mesh exempts the fact, until a time if it has one, and else "none".
	Voucher identity.Voucher `json:"voucher"`
	Until   *kind.Time       `json:"until,omitempty"`
	// RestsOn is what rests on the fact, at most [MaxFactUses] of it; More is the number of the others.
	RestsOn []FactUse `json:"restsOn"`
	More    int       `json:"more,omitempty"`
}

// FactUse is what rests on a fact.
type FactUse struct {
	Object string `json:"object"` // "MeshService default/web"
	// Problem is what the proxy does not have of it; empty: the proxy has all of it.
	Problem string `json:"problem,omitempty"`
}

// factReport collects what rests on the facts of a Dataplane.
type factReport struct {
	dp   *resource.Object[kind.Dataplane]
	uses map[string][]FactUse // by fact
}

// add adds what rests on facts. A fact about the address to which a host name resolves is that of the name.
func (f *factReport) add(facts []string, of fmt.Stringer, hasAll bool, problem string) {
	use := FactUse{of.String(), problem}
	if hasAll {
		use.Problem = ""
	}
	for _, fact := range facts {
		if n := &f.dp.Spec.Networking; kind.ReadFact(fact).Address != "" && kind.NeedsLookup(n.Address) &&
			!slices.ContainsFunc(n.Inbound, func(in kind.Inbound) bool {
				return kind.AddressFact(in.Address) == fact
			}) {
			fact = kind.AddressFact(n.Address)
		}
		i := slices.IndexFunc(f.uses[fact], func(known FactUse) bool { return known.Object == use.Object })
		switch {
		case i < 0:
			f.uses[fact] = append(f.uses[fact], use)
		case hasAll: // by another inbound
			f.uses[fact][i] = use
		}
	}
}

// textOf is the text of an object that is no resource.
type textOf string

func (t textOf) String() string { return string(t) }

// facts returns the facts of a Dataplane with their vouchers and what rests on them, and the number of facts that are
// left out.
func (rs *Reports) facts(dp *resource.Object[kind.Dataplane]) (facts []AppliedFact, more int) {
	all := kind.Facts(dp)
	report := factReport{dp, map[string][]FactUse{}}
	for _, selection := range rs.State.Services.SelectionsOf(rs.r, dp) {
		report.add(selection.Facts, selection.Service.Key(), selection.IsMember, "is no member of it")
	}
	if id := rs.State.Identity.Identity.Get(rs.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}); id != nil {
		of := textOf("mtls of Mesh " + dp.Mesh)
		if id.MeshIdentity != kind.MTLSIdentity {
			of = textOf(kind.MeshIdentities.Key(dp.Mesh, id.MeshIdentity).String())
		}
		report.add(slices.Concat(id.RestsOn.Operator, id.RestsOn.Token, id.Unvouched), of, id.Problem == "",
			"has no SPIFFE ID of it")
	}
	for _, policy := range rs.State.Proxies.TargetingPolicies(rs.r, dp) {
		report.add(policy.Facts, policy.Key, policy.Applies, "does not get all of it")
	}
	excluded := rs.State.Identity.NotAdmittedReason(rs.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
	membership := rs.State.Identity.Membership.Get(rs.r, dp.Mesh)
	for _, rule := range membership.AllowingRules(dp, rs.State.Tables.ZoneOf(&dp.Meta)) {
		report.add(rule.Facts, textOf(fmt.Sprintf("Mesh %s dataplaneProxyMembership.allowed[%d]", dp.Mesh, rule.Index)),
			excluded == "", "is not admitted")
	}
	for _, fact := range all {
		if role := kind.ReadFact(fact).Role; role != "" {
			report.add([]string{fact}, textOf("the role of a zone "+role), kind.Vouches(dp, fact), "may not have it")
		}
	}
	for _, fact := range all[:min(len(all), MaxFacts)] {
		facts = append(facts, rs.factOf(&report, fact))
	}
	return facts, len(all) - len(facts)
}

func (rs *Reports) factOf(report *factReport, fact string) AppliedFact {
	applied := AppliedFact{Fact: strings.TrimPrefix(kind.ReadFact(fact).String(), "the "),
		Voucher: rs.State.Identity.VoucherOf(rs.r, report.dp, fact), RestsOn: []FactUse{}}
	if applied.Voucher == identity.NoVoucher && rs.exempts(report.dp.Mesh, kind.ReadFact(fact)) {
		applied.Voucher, applied.Until = byExemption, rs.exemptUntil(report.dp.Mesh)
	}
	uses := report.uses[fact]
	n := min(len(uses), MaxFactUses)
	applied.RestsOn = append(applied.RestsOn, uses[:n]...)
	applied.More = len(uses) - n
	return applied
}

// exempts reports whether a mesh exempts a fact without a voucher. Zone proxy sections always need one.
func (rs *Reports) exempts(mesh string, fact kind.Fact) bool {
	exempt := rs.State.Identity.Exempt.Get(rs.r, mesh)
	switch {
	case fact.Address != "":
		return exempt.Addresses
	case fact.Role != "":
		return false
	}
	return exempt.Tags
}

// exemptUntil returns the end of the exemption of a mesh; nil where it has none yet.
func (rs *Reports) exemptUntil(mesh string) *kind.Time {
	o, ok := rs.State.Tables.Meshes.Find(rs.r, "", mesh)
	if !ok || !o.Vouched.Complete || o.Spec.UnvouchedMembers == nil {
		return nil
	}
	return &o.Spec.UnvouchedMembers.Until
}
