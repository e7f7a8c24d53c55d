package admission

import (
	"context"
	"errors"
	"strings"

	"weft/internal/policy"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Namespaces looks up what namespaces of Kubernetes may have in the meshes of a zone.
type Namespaces interface {
	// Labels returns the labels of a namespace; none where there is no such namespace.
	Labels(ctx context.Context, name string) (map[string]string, error)
	// ExceededBound returns why the namespace of a MeshService may not have it in place of the stored one, nil where it
	// is new; empty where it may.
	ExceededBound(stored, next *resource.Object[kind.MeshService]) string
	// FullOfPolicies returns why a namespace may not have a further policy in a mesh; empty where it may.
	FullOfPolicies(mesh, namespace string) string
}

// checkNamespace rejects a MeshService of a namespace of which its mesh admits no Pod, and a MeshService or a policy
// beyond the bound of its namespace: Forbidden. What is stored stays, and may be written again as long as it gets no
// further port. The control plane has its own check for the MeshServices that it makes from Services.
func (w *Writer) checkNamespace(ctx context.Context, o resource.Any, stored *current, controlPlane bool) error {
	_, namespace := w.namespaced(o.Key())
	if controlPlane || w.namespaces == nil || namespace == "" || namespace == w.system {
		return nil
	}
	if _, policy := kind.ByName(o.Key().Kind).(kind.Policy); policy && stored == nil {
		return forbidden(o.Key(), w.namespaces.FullOfPolicies(o.Key().Mesh, namespace))
	}
	next, ok := o.(*resource.Object[kind.MeshService])
	if !ok {
		return nil
	}
	if stored != nil {
		return forbidden(o.Key(), w.namespaces.ExceededBound(stored.object.(*resource.Object[kind.MeshService]), next))
	}
	mesh, err := w.mesh(ctx, next.Mesh)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil // the write is rejected without it
	case err != nil:
		return err
	case mesh.Spec.DataplaneProxyMembership != nil:
		labels, err := w.namespaces.Labels(ctx, namespace)
		if err != nil {
			return err
		}
		reason := mesh.Spec.DataplaneProxyMembership.NotAdmittedNamespace(next.Mesh, namespace, labels, w.zone)
		if reason != "" {
			return forbidden(o.Key(), reason)
		}
	}
	return forbidden(o.Key(), w.namespaces.ExceededBound(nil, next))
}

// forbidden returns an error with the reason for which a resource was not written; nil without a reason.
func forbidden(key resource.Key, reason string) error {
	if reason == "" {
		return nil
	}
	return resource.Errorf(resource.Forbidden, "%s was not written: %s", key, reason)
}

// roleOf returns the role of a policy on Kubernetes, by its namespace and its items: one in the namespace of a workload
// concerns this workload, or the clients of its services. It is empty for every other resource.
func (w *Writer) roleOf(o resource.Any) string {
	d, ok := kind.ByName(o.Key().Kind).(kind.Policy)
	if !ok || w.env != kind.Kubernetes {
		return ""
	}
	_, namespace := w.namespaced(o.Key())
	return policy.RoleIn(namespace, w.system, d.Parts(o))
}

// operatorsName rejects the name of a new resource of [kind.OfOperators] that ends with a namespace other than the
// system namespace. The name would be accepted as a whole, but a user who writes it means the namespace.
func (w *Writer) operatorsName(key resource.Key) resource.Problems {
	var problems resource.Problems
	at := strings.LastIndexByte(key.Name, '.')
	if w.env != kind.Kubernetes || w.system == "" || at < 0 || !kind.OfOperators(key.Kind) ||
		key.Name[at+1:] == w.system {
		return nil
	}
	problems.Add("name", "is in the namespace %s, and a %s concerns the whole mesh; write it in the namespace %s",
		key.Name[at+1:], key.Kind, w.system)
	return problems
}

// namespaceProblems rejects a resource in a namespace that its items do not allow.
func (w *Writer) namespaceProblems(o resource.Any) resource.Problems {
	var problems resource.Problems
	_, namespace := w.namespaced(o.Key())
	if namespace == "" || namespace == w.system || w.system == "" {
		return nil
	}
	d, ok := kind.ByName(o.Key().Kind).(kind.Policy)
	if !ok {
		return nil
	}
	if w.self().Global() {
		problems.Add("name", "is in the namespace %s, and a policy of the global control plane concerns all zones; "+
			"write it in the namespace %s", namespace, w.system)
		return problems
	}
	return append(problems, policy.NamespaceProblems(namespace, w.system, d.Parts(o))...)
}
