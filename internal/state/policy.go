package state

import (
	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// AddPolicies adds the rows of a kind of policies, and an index by their [MeshKey].
func AddPolicies[S, C any](t *Tables, k *kind.PolicyKind[S, C]) (Rows[S], *table.Index[*resource.Object[S]]) {
	rows := addRows(t, &k.Kind)
	index := byMesh(rows)
	t.PolicyRows[k.Name] = func(r *table.Reader, mesh string) []*policy.Policy {
		var policies []*policy.Policy
		for _, o := range index.List(r, MeshKey(mesh)) {
			if !policy.Shadow(&o.Meta) {
				parts := k.Split(&o.Spec)
				p := policy.New(o.Key(), &o.Meta, policy.TargetOf(parts.TargetRef))
				p.Outbound = len(parts.To) > 0
				policies = append(policies, p)
			}
		}
		return policies
	}
	return rows, index
}
