package admission_test

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// A value beyond the bound of what proxies pay is rejected when a user writes it, and stays with a warning where it is
// stored.
func TestCostsOfProxies(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east"})
	const stored = `{type: MeshHealthCheck, mesh: m, name: p, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
		`{interval: 1ms, tcp: {}}}]}}`
	const field = "spec.to[0].default.interval"
	_, err := w.Put(t.Context(), parse(t, stored), admission.Change{})
	wantError(t, err, resource.Invalid, field+": is 1ms, want at least 100ms")
	if _, err := w.Put(t.Context(), parse(t, stored), admission.Change{ControlPlane: true}); err != nil {
		t.Fatal(err)
	}
	for step, doc := range []string{
		stored, // completes the labels
		stored,
		strings.Replace(stored, "tcp: {}", "tcp: {}, timeout: 2s", 1),
	} {
		if result := put(t, w, doc); !slices.ContainsFunc(result.Warnings, func(text string) bool {
			return text == field+" is 1ms, and proxies have its bound, 100ms"
		}) {
			t.Errorf("step %d: the warnings are %q", step, result.Warnings)
		}
	}
	_, err = w.Put(t.Context(), parse(t, strings.Replace(stored, "1ms", "2ms", 1)), admission.Change{})
	wantError(t, err, resource.Invalid, field+": is 2ms")
}

// A policy of a namespace about its clients has the bound of a producer.
func TestCostsOfProducers(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Environment: kind.Kubernetes,
		SystemNamespace: "kuma-system"})
	policy := func(namespace, ref string) error {
		_, err := w.Put(t.Context(), parse(t, `{type: MeshRetry, mesh: m, name: p.`+namespace+`, spec: {to: [{targetRef: `+
			ref+`, default: {http: {numRetries: 50}}}]}}`), admission.Change{})
		return err
	}
	wantError(t, policy("shop", `{kind: MeshService, name: web}`), resource.Invalid,
		"spec.to[0].default.http.numRetries: is 50, want at most 10 in a policy about the clients of a service")
	for namespace, ref := range map[string]string{"shop": `{kind: Mesh}`, "kuma-system": `{kind: Mesh}`} {
		if err := policy(namespace, ref); err != nil {
			t.Errorf("%s: %v", namespace, err)
		}
	}
}
