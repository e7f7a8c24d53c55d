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

// addPolicies adds the rows of every kind of policies that no other function adds.
func (t *Tables) addPolicies() {
	AddPolicies(t, kind.MeshTimeouts)
	AddPolicies(t, kind.MeshTLSes)
	AddPolicies(t, kind.MeshRateLimits)
	AddPolicies(t, kind.MeshFaultInjections)
	t.HTTPRoutes, _ = AddPolicies(t, kind.MeshHTTPRoutes)
	t.TCPRoutes, _ = AddPolicies(t, kind.MeshTCPRoutes)
	AddPolicies(t, kind.MeshCircuitBreakers)
	AddPolicies(t, kind.MeshLoadBalancingStrategies)
	AddPolicies(t, kind.MeshRetries)
	AddPolicies(t, kind.MeshHealthChecks)
	AddPolicies(t, kind.MeshPassthroughs)
	AddPolicies(t, kind.MeshProxyPatches)
}

// AddPolicies adds the rows of a kind of policies and their statuses, and an index by their [MeshKey]. It panics for a
// kind whose confs do not merge.
func AddPolicies[S, C any](t *Tables, k *kind.PolicyKind[S, C]) (Rows[S], table.Index[*resource.Object[S]]) {
	plan, err := policy.NewPlan(k.Conf())
	if err != nil {
		panic(err)
	}
	if c := k.Combination; c != nil {
		plan.Combination = &policy.Combination{
			Partial:  func(conf any) bool { return c.Partial(conf.(*C)) },
			Conflict: func(conf any) string { return c.Conflict(conf.(*C)) },
		}
	}
	rows := addRows(t, &k.Kind)
	index := byMesh(rows)
	withoutConfs := func(o *resource.Object[S]) (*policy.Policy, kind.Parts) {
		parts := k.Split(&o.Spec)
		p := policy.New(o.Key(), &o.Meta, policy.TargetOf(parts.TargetRef))
		p.Outbound, p.Inbound = len(parts.To) > 0, len(parts.Rules) > 0 && !k.JoinsRules
		p.WholeProxy = parts.Default != nil
		return p, parts
	}
	t.PolicyRows[k.Name] = PolicyRows{
		List: func(r *table.Reader, mesh string) []*policy.Policy {
			var policies []*policy.Policy
			for _, o := range index.List(r, MeshKey(mesh)) {
				if !policy.Shadow(&o.Meta) {
					p, _ := withoutConfs(o)
					policies = append(policies, p)
				}
			}
			return policies
		},
		Parts: func(r *table.Reader, mesh, name string) []policy.Part {
			o, ok := rows.Find(r, mesh, name)
			if !ok || policy.Shadow(&o.Meta) {
				return nil
			}
			p, parts := withoutConfs(kind.Affordable(o).(*resource.Object[S]))
			return policy.PartsOf(p, &o.Meta, parts)
		},
		Plan:     plan,
		Costs:    k.PortCosts(),
		Statuses: addRows(t, k.Statuses),
		InNamespaces: table.NewSum(rows, func(o *resource.Object[S]) (string, int) {
			namespace := o.Label(kind.NamespaceLabel)
			if t.OwnerOf(&o.Meta).Zone != t.Zone || !t.IsBounded(namespace) {
				return "", 0
			}
			return RowKey(o.Mesh, namespace), 1
		}),
		Keep: func(d table.Kept, key func(resource.Key) any) {
			rows.KeepFor(d, func(o *resource.Object[S]) []any { return []any{key(o.Key())} })
		},
	}
	return rows, index
}
