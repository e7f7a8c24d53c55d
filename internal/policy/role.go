package policy

import (
	"slices"

	"weft/kind"
	"weft/resource"
)

// RoleIn returns the role of a policy on Kubernetes, by its namespace and its items: one in the namespace of a workload
// concerns this workload, or the clients of its services. A policy without a namespace has the system's.
func RoleIn(namespace, system string, parts kind.Parts) string {
	switch {
	case namespace == "", namespace == system:
		return SystemRole
	case len(parts.To) == 0:
		return WorkloadOwnerRole
	case slices.ContainsFunc(parts.To, func(part kind.ToPart) bool { return !produces(part, namespace) }):
		return ConsumerRole
	}
	return ProducerRole
}

// produces reports whether an item of `to` is about a service or a route of the policy's namespace.
func produces(part kind.ToPart, namespace string) bool {
	ref := part.TargetRef
	return (ref.Kind == kind.MeshServices.Name || ref.Kind == kind.MeshHTTPRoutes.Name) && ref.Name != "" &&
		(ref.Namespace == "" || ref.Namespace == namespace)
}

// NamespaceProblems returns the problems of a policy in a namespace that its items do not allow. system is the system
// namespace, where every policy may be.
func NamespaceProblems(namespace, system string, parts kind.Parts) (problems resource.Problems) {
	role := RoleIn(namespace, system, parts)
	if role == SystemRole {
		return nil
	}
	if role == ConsumerRole &&
		slices.ContainsFunc(parts.To, func(part kind.ToPart) bool { return produces(part, namespace) }) {
		problems.Add("spec.to",
			"has items about services of the namespace %s and items about others; write two policies", namespace)
	}
	ref := parts.TargetRef
	if role != ProducerRole && ref != nil && ref.Namespace != "" && ref.Namespace != namespace {
		problems.Add("spec.targetRef.namespace", "is %q, and a policy in the namespace %s with the role %s applies to "+
			"Dataplanes of this namespace; write it in the namespace %s, or in %s", ref.Namespace, namespace, role,
			ref.Namespace, system)
	}
	return problems
}
