package admission_test

import (
	"maps"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// On Kubernetes, a Dataplane and a MeshService have the namespace that their name ends with, and the environment is
// Kubernetes.
func TestNamespaceOfKubernetes(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes, Joined: true})
	if _, err := admission.New(rows, admission.Options{}).Put(t.Context(), parse(t, `{type: Mesh, name: m}`),
		admission.Change{}); err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{
		`{type: Dataplane, mesh: m, name: web.v1.shop, networking: {address: 10.0.0.1, inbound: [{port: 80, ` +
			`servicePort: 81, tags: {k8s.kuma.io/namespace: shop}}]}}`,
		`{type: MeshService, mesh: m, name: web.v1.shop, labels: {k8s.kuma.io/namespace: shop}, spec: {selector: ` +
			`{dataplaneTags: {a: b}}, ports: [{port: 80}]}}`,
	} {
		result, err := w.Put(t.Context(), parse(t, doc), admission.Change{ControlPlane: true})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{kind.DisplayName: "web.v1", kind.NamespaceLabel: "shop", kind.EnvLabel: "kubernetes",
			kind.ZoneLabel: "east", kind.OriginLabel: "zone"}
		if got := result.Object.Envelope().Labels; !maps.Equal(got, want) {
			t.Errorf("%s has the labels %v, want %v", result.Object.Key(), got, want)
		}
		if dp, ok := result.Object.(*resource.Object[kind.Dataplane]); ok {
			want := map[string]string{kind.ZoneLabel: "east", kind.EnvironmentTag: "kubernetes",
				kind.NamespaceLabel: "shop"}
			if got := dp.Spec.Networking.Inbound[0].Tags; !maps.Equal(got, want) {
				t.Errorf("the inbound has the tags %v, want %v", got, want)
			}
		}
	}
	for doc, says := range map[string]string{
		`{type: Dataplane, mesh: m, name: web.shop, labels: {k8s.kuma.io/namespace: x}, networking: {address: ` +
			`10.0.0.1}}`: `labels[k8s.kuma.io/namespace]: is "x", and the control plane sets "shop"`,
		`{type: Dataplane, mesh: m, name: web.shop, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: ` +
			`{k8s.kuma.io/namespace: x}}]}}`: `tags[k8s.kuma.io/namespace]: is "x", and the control plane sets "shop"`,
		`{type: MeshTrust, mesh: m, name: a, labels: {k8s.kuma.io/namespace: x}, spec: {trustDomain: a}}`: "has no meaning",
	} {
		if _, err := w.Put(t.Context(), parse(t, doc), admission.Change{ControlPlane: true}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", doc, err, says)
		}
	}
}
