package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// namespaces are namespaces with the label team, which have no more than a number of ports. A name with "lost" cannot
// be read.
type namespaces struct {
	ports  int
	policy string // why a namespace may not have a further policy
}

func (n namespaces) Labels(_ context.Context, name string) (map[string]string, error) {
	if name == "lost" {
		return nil, resource.Errorf(resource.Unavailable, "no response")
	}
	return map[string]string{"team": name}, nil
}

func (n namespaces) ExceededBound(stored, next *resource.Object[kind.MeshService]) string {
	if len(next.Spec.Ports) > n.ports && (stored == nil || len(next.Spec.Ports) > len(stored.Spec.Ports)) {
		return "the namespace is full"
	}
	return ""
}

func (n namespaces) FullOfPolicies(mesh, namespace string) string {
	if mesh != "m" || namespace != "a" {
		return ""
	}
	return n.policy
}

// TestPoliciesOfNamespaces: a user writes no new policy beyond the bound of the namespace. A stored one may be changed,
// the control plane may write one of routes, and other namespaces have room.
func TestPoliciesOfNamespaces(t *testing.T) {
	timeout := func(name string, seconds int) string {
		return fmt.Sprintf("{type: MeshTimeout, mesh: m, name: %s, spec: {rules: [{default: {idleTimeout: %ds}}]}}",
			name, seconds)
	}
	options := admission.Options{Zone: "east", Environment: kind.Kubernetes, SystemNamespace: "kuma-system",
		Namespaces: namespaces{ports: 2}}
	w, rows := newWriterWithMesh(t, options)
	put(t, w, timeout("stored.a", 1))
	options.Namespaces = namespaces{ports: 2, policy: "the namespace is full of policies"}
	w = admission.New(rows, options)
	_, err := w.Put(t.Context(), parse(t, timeout("new.a", 1)), admission.Change{})
	wantError(t, err, resource.Forbidden, "MeshTimeout m/new.a was not written: the namespace is full of policies")
	put(t, w, timeout("stored.a", 2))
	put(t, w, timeout("new.b", 1))
	put(t, w, timeout("new.kuma-system", 1))
	put(t, w, serviceIn("a", 2))
	if _, err := w.Put(t.Context(), parse(t, timeout("new.a", 1)), admission.Change{ControlPlane: true}); err != nil {
		t.Errorf("the control plane: %v", err)
	}
}

func serviceIn(namespace string, ports int) string {
	var all []string
	for i := range ports {
		all = append(all, fmt.Sprintf("{port: %d}", i+1))
	}
	return fmt.Sprintf("{type: MeshService, mesh: m, name: web.%s, spec: {selector: {dataplaneTags: {app: web}}, "+
		"ports: [%s]}}", namespace, strings.Join(all, ", "))
}

// TestMeshServicesOfNamespaces: a user writes no MeshService in a namespace that the mesh excludes, and none beyond the
// bound of the namespace. A stored one may be written again without further ports, and by the control plane.
func TestMeshServicesOfNamespaces(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Environment: kind.Kubernetes,
		SystemNamespace: "kuma-system", Namespaces: namespaces{ports: 2}})
	put(t, w, serviceIn("b", 1))
	put(t, w, `{type: Mesh, name: m, dataplaneProxyMembership: {allowed: [{kubernetes: {namespace: {labels: `+
		`{team: a}}}}]}}`)
	for name, test := range map[string]struct {
		doc   string
		codes []resource.Code // of the error; none: the write is accepted
	}{
		"admitted":                  {doc: serviceIn("a", 2)},
		"beyond the bound":          {serviceIn("a", 3), []resource.Code{resource.Forbidden}},
		"stored":                    {doc: serviceIn("b", 2)},
		"stored, with further ones": {serviceIn("b", 3), []resource.Code{resource.Forbidden}},
		"excluded":                  {serviceIn("c", 1), []resource.Code{resource.Forbidden}},
		"its labels are not known":  {serviceIn("lost", 1), []resource.Code{resource.Unavailable}},
		"of the system namespace":   {doc: serviceIn("kuma-system", 3)},
		"without a namespace":       {doc: strings.Replace(serviceIn("x", 3), "web.x", "web", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Put(t.Context(), parse(t, test.doc), admission.Change{DryRun: true})
			var codes []resource.Code
			var known *resource.Error
			if errors.As(err, &known) {
				codes = []resource.Code{known.Code}
			}
			if err != nil && known == nil || !slices.Equal(codes, test.codes) {
				t.Errorf("the error is %v, want %v", err, test.codes)
			}
		})
	}
	if _, err := w.Put(t.Context(), parse(t, serviceIn("c", 3)), admission.Change{ControlPlane: true}); err != nil {
		t.Errorf("the control plane: %v", err)
	}
}
