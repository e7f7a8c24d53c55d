package migrate

import (
	"slices"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestAnEmptyControlPlaneTakesTheTranslation writes the translation of each export in testdata to an empty store, as
// `weft apply` does: Meshes first.
func TestAnEmptyControlPlaneTakesTheTranslation(t *testing.T) {
	written := 0
	for _, e := range exports(t) {
		file := e.path
		result, err := e.translate()
		if err != nil {
			continue
		}
		rows := memory.New(memory.Options{})
		options := admission.Options{Zone: "default"}
		if e.options().Kubernetes {
			options.Environment, options.SystemNamespace = kind.Kubernetes, "kuma-system"
		}
		w := admission.New(rows, options)
		put := func(o resource.Any) {
			if _, err := w.Put(t.Context(), o, admission.Change{}); err != nil {
				t.Errorf("%s: %s: %v", file, o.Key(), err)
			}
			written++
		}
		meshes := map[string]bool{}
		for _, o := range result.Resources {
			if o.Key().Kind == kind.Meshes.Name {
				meshes[o.Key().Name] = true
				put(o)
			}
		}
		for _, o := range result.Resources {
			if mesh := o.Key().Mesh; mesh != "" && !meshes[mesh] { // the notes say that the export lacks it
				meshes[mesh] = true
				o, err := resource.Parse([]byte("{type: Mesh, name: "+mesh+"}"), kind.ByName)
				if err != nil {
					t.Fatal(err)
				}
				put(o)
			}
		}
		for _, o := range slices.DeleteFunc(result.Resources, func(o resource.Any) bool {
			return o.Key().Kind == kind.Meshes.Name
		}) {
			put(o)
		}
		_ = rows.Close()
	}
	if written == 0 {
		t.Error("nothing is written")
	}
}
