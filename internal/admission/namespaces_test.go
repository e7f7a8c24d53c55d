package admission_test

import (
	"slices"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// A write that leaves out the namespaces of a MeshMultiZoneService keeps them, and one that states others replaces
// them. Its row says that it is of a release that lists namespaces.
func TestNamespacesOfMembersAreKept(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w := admission.New(rows, admission.Options{})
	put := func(namespaces string) *resource.Object[kind.MeshMultiZoneService] {
		t.Helper()
		result, err := w.Put(t.Context(), parse(t, `{type: MeshMultiZoneService, mesh: m, name: web, spec: {selector: {`+
			namespaces+`meshService: {matchLabels: {app: web}}}, ports: [{port: 80}]}}`), admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		return result.Object.(*resource.Object[kind.MeshMultiZoneService])
	}
	if _, err := w.Put(t.Context(), parse(t, `{type: Mesh, name: m}`), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	if o := put(""); len(o.Spec.Selector.Namespaces) > 0 || !o.Vouched.Complete {
		t.Errorf("a new one lists %q, complete: %t", o.Spec.Selector.Namespaces, o.Vouched.Complete)
	}
	for _, c := range []struct {
		write string
		want  []string
	}{{"namespaces: [shop], ", []string{"shop"}}, {"", []string{"shop"}}, {"namespaces: [pay], ", []string{"pay"}}} {
		if o := put(c.write); !slices.Equal(o.Spec.Selector.Namespaces, c.want) {
			t.Errorf("%q leaves %q, want %q", c.write, o.Spec.Selector.Namespaces, c.want)
		}
	}
}
