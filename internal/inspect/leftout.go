package inspect

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// RejectedByProxy is the reason of an [AppliedLeftOut] with which Envoy rejects a resource.
const RejectedByProxy = "RejectedByProxy"

// AppliedLeftOut is a policy that targets a proxy, and that the proxy is without.
type AppliedLeftOut struct {
	Policy string `json:"policy"` // "MeshTimeout default/web"
	// Reason is RejectedByProxy (the Envoy of this proxy rejects a resource with it), InvalidResult (Envoy would) or
	// CostTooHigh (the policies of its owner cost proxies more than their bound).
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// leftOut returns the policies that a proxy is without, by policy.
func (rs *Reports) leftOut(key state.ProxyKey) []AppliedLeftOut {
	var all []AppliedLeftOut
	add := func(of resource.Key, reason, message string) {
		if !slices.ContainsFunc(all, func(a AppliedLeftOut) bool { return a.Policy == of.String() }) {
			all = append(all, AppliedLeftOut{of.String(), reason, message})
		}
	}
	if insight, ok := rs.State.Tables.Insight(rs.r, key); ok {
		for _, e := range rs.State.Tables.PresentExceptions(rs.r, key, insight.Spec.Exceptions) {
			if of := e.Policy.Key(key.Mesh); e.Excludes() && kind.MayBeLeftOut(of.Kind) {
				add(of, RejectedByProxy, fmt.Sprintf("Envoy rejects the %s %s with it: %s; the proxy gets the policy "+
					"again when it is written", e.Type, e.Name, e.Message))
			}
		}
	}
	for _, of := range kind.Policies() {
		for _, costly := range rs.costlyPolicies(proxy.PoliciesKey{Kind: of.Describe().Name, Mesh: key.Mesh}, key) {
			add(costly, kind.CostTooHigh, rs.State.Proxies.CostReason(rs.r, costly))
		}
	}
	for _, m := range rs.modified(proxy.WholeOf(key)) {
		for _, problem := range m.Rejected {
			add(m.Policy, kind.InvalidResult, fmt.Sprintf("appendModifications[%d].%s", m.Index, problem))
		}
	}
	slices.SortStableFunc(all, func(a, b AppliedLeftOut) int { return cmp.Compare(a.Policy, b.Policy) })
	return all
}

// costlyPolicies returns the policies that are left out for what they cost and that would select a proxy otherwise.
func (rs *Reports) costlyPolicies(of proxy.PoliciesKey, key state.ProxyKey) []resource.Key {
	left, selectable := rs.State.Proxies.Costs.Get(rs.r, of), rs.State.Proxies.Selectable.Get(rs.r, key)
	if len(left) == 0 || selectable == nil {
		return nil
	}
	var policies []*policy.Policy
	for _, p := range rs.State.Tables.PolicyRows[of.Kind].List(rs.r, of.Mesh) {
		if slices.ContainsFunc(left, func(c proxy.Costly) bool { return c.Name == p.Key.Name }) {
			policies = append(policies, p)
		}
	}
	var keys []resource.Key
	for _, selected := range policy.NewList(policies).Select(selectable) {
		keys = append(keys, selected.Key)
	}
	return keys
}
