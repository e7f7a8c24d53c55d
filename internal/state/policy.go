package state

import (
	"fmt"

	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PolicyRows are the policies of one kind, without the type of their spec.
type PolicyRows struct {
	table.Input[resource.Any]
	// ByMesh finds the policies of a [MeshKey].
	ByMesh table.Index[resource.Any]
	// List returns the policies of a mesh without their confs.
	List func(r *table.Reader, mesh string) []*policy.Policy
	// Parts returns the confs of a policy; none where it has no effect or does not exist.
	Parts func(r *table.Reader, mesh, name string) []policy.Part
	// Plan merges its confs.
	Plan *policy.Plan
	// Costs is what its confs cost a proxy; nil: nothing that has a bound.
	Costs *kind.PortCosts[any]
	// Statuses are their statuses.
	Statuses Rows[kind.PolicyStatus]
	// InNamespaces is the number of policies of this zone in a namespace, the system namespace aside, by [RowKey] with
	// the namespace as the name.
	InNamespaces table.Sum
	// Keep keeps the value of a derived table under the key that key returns, for each policy. It is [table.KeepFor].
	Keep func(d table.Kept, key func(resource.Key) any)
}

// FullOfPolicies returns why a namespace of Kubernetes may not have a further policy in a mesh; empty where it may.
// Policies of every kind count together: each costs the proxies of the namespace, and the clients of its services.
func (t *Tables) FullOfPolicies(r *table.Reader, mesh, namespace string) string {
	bound := t.NamespaceBound.Policies
	if bound == 0 || !t.IsBounded(namespace) {
		return ""
	}
	count := 0
	for _, rows := range t.PolicyRows {
		count += rows.InNamespaces.Get(r, RowKey(mesh, namespace))
	}
	if count < bound {
		return ""
	}
	return fmt.Sprintf("the namespace %s may have %d policies in the mesh %s; delete some of them, write one policy "+
		"with several items, or have an operator raise the setting runtime.kubernetes.namespaceBound.policies",
		namespace, bound, mesh)
}

// AddPolicies adds the rows of a kind of policies and their statuses. It panics for a kind whose confs do not merge.
func (t *Tables) AddPolicies(k kind.Policy) {
	plan, err := policy.NewPlan(k.Conf())
	if err != nil {
		panic(err)
	}
	plan.Combination = k.FieldCombination()
	of := k.Describe().Name
	rows := addTable[resource.Any](t, of)
	index := table.NewIndex(rows, func(o resource.Any) []string { return []string{MeshKey(o.Key().Mesh)} })
	withoutConfs := func(o resource.Any) (*policy.Policy, kind.Parts) {
		parts := k.Parts(o)
		p := policy.New(o.Key(), o.Envelope(), policy.TargetOf(parts.TargetRef))
		p.Outbound, p.Inbound = len(parts.To) > 0, len(parts.Rules) > 0 && !k.RulesAreJoined()
		p.WholeProxy = parts.Default != nil
		return p, parts
	}
	t.PolicyRows[of] = PolicyRows{
		Input:  rows,
		ByMesh: index,
		List: func(r *table.Reader, mesh string) []*policy.Policy {
			var policies []*policy.Policy
			for _, o := range index.List(r, MeshKey(mesh)) {
				if !policy.Shadow(o.Envelope()) {
					p, _ := withoutConfs(o)
					policies = append(policies, p)
				}
			}
			return policies
		},
		Parts: func(r *table.Reader, mesh, name string) []policy.Part {
			o, ok := rows.Get(r, RowKey(mesh, name))
			if !ok || policy.Shadow(o.Envelope()) {
				return nil
			}
			p, parts := withoutConfs(kind.Affordable(o))
			return policy.PartsOf(p, o.Envelope(), parts)
		},
		Plan:     plan,
		Costs:    k.PortCosts(),
		Statuses: addRows(t, k.StatusKind()),
		InNamespaces: table.NewSum(rows, func(o resource.Any) (string, int) {
			namespace := o.Envelope().Label(kind.NamespaceLabel)
			if t.OwnerOf(o.Envelope()).Zone != t.Zone || !t.IsBounded(namespace) {
				return "", 0
			}
			return RowKey(o.Key().Mesh, namespace), 1
		}),
		Keep: func(d table.Kept, key func(resource.Key) any) {
			rows.KeepFor(d, func(o resource.Any) []any { return []any{key(o.Key())} })
		},
	}
}

// Find returns a policy of the kind.
func (p PolicyRows) Find(r *table.Reader, mesh, name string) (resource.Any, bool) {
	return p.Get(r, RowKey(mesh, name))
}
