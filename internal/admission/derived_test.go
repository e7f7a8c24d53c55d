package admission_test

import (
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestDerivedResources: a user's change or deletion of what the control plane derives from another object has a warning
// with this object. The control plane's own writes, and resources of users, have none.
func TestDerivedResources(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes,
		SystemNamespace: "kuma-system"})
	put(t, w, `{type: Mesh, name: m}`)
	for _, c := range []struct{ what, doc, changed, from string }{
		{"a Dataplane of a Pod", `{type: Dataplane, mesh: m, name: web-1.shop, labels: {k8s.kuma.io/pod-uid: u1}, ` +
			`networking: {address: 10.0.0.1, inbound: [{port: %}]}}`, "81", "the Pod shop/web-1"},
		{"a MeshService of a Service", `{type: MeshService, mesh: m, name: web.shop, labels: {kuma.io/managed-by: ` +
			`weft}, spec: {selector: {dataplaneTags: {k8s.kuma.io/service-name: web, k8s.kuma.io/namespace: shop}}, ports: ` +
			`[{port: %}]}}`, "81", "the Service shop/web"},
		{"a generated MeshService", `{type: MeshService, mesh: m, name: api, labels: {kuma.io/managed-by: weft}, ` +
			`spec: {selector: {dataplaneTags: {kuma.io/service: api}}, ports: [{port: %}]}}`, "81",
			"the tag kuma.io/service: api of Dataplanes"},
		{"a MeshService of a user", `{type: MeshService, mesh: m, name: own.shop, spec: {selector: {dataplaneTags: ` +
			`{kuma.io/service: own}}, ports: [{port: %}]}}`, "81", ""},
		{"a Dataplane of a machine", `{type: Dataplane, mesh: m, name: vm.shop, networking: {address: 10.0.0.1, ` +
			`inbound: [{port: %}]}}`, "81", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			document := func(port string) resource.Any { return parse(t, strings.Replace(c.doc, "%", port, 1)) }
			first := document("80")
			if dp, ok := first.(*resource.Object[kind.Dataplane]); ok {
				dp.Vouched = resource.Vouched{Operator: kind.Facts(dp), Complete: true}
			}
			own, err := w.Put(t.Context(), first, admission.Change{ControlPlane: true})
			if err != nil || len(own.Warnings) > 0 {
				t.Fatalf("the control plane's own write: %v, %v", own.Warnings, err)
			}
			check := func(what string, warnings []string, says string) {
				t.Helper()
				got := strings.Join(warnings, "; ")
				if c.from == "" && got != "" ||
					c.from != "" && !(strings.Contains(got, says) && strings.Contains(got, c.from+" instead")) {
					t.Errorf("%s: the warnings are %q, want %q from %q", what, got, says, c.from)
				}
			}
			same, err := w.Put(t.Context(), document("80"), admission.Change{})
			if err != nil || len(same.Warnings) > 0 {
				t.Errorf("an unchanged write: %v, %v", same.Warnings, err)
			}
			changed, err := w.Put(t.Context(), document(c.changed), admission.Change{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			check("a change", changed.Warnings, "replaces this change")
			check("a deletion", w.DeletionWarnings(t.Context(), own.Object.Key()), "creates it again")
		})
	}
}
