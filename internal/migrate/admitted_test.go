package migrate

import (
	"testing"

	"weft/internal/admission"
	"weft/internal/envoy"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestAnEmptyControlPlaneTakesTheTranslation writes the translation of each export in testdata to an empty store, as
// `weft apply` does: Meshes first.
func TestAnEmptyControlPlaneTakesTheTranslation(t *testing.T) {
	written := 0
	for _, e := range exports(t) {
		result, err := e.translate()
		if err != nil {
			continue
		}
		for key, err := range admitted(t, result, e.options().Kubernetes) {
			if written++; err != nil {
				t.Errorf("%s: %s: %v", e.path, key, err)
			}
		}
	}
	if written == 0 {
		t.Error("nothing is written")
	}
}

// admitted writes the resources of a translation to an empty store, and returns the error of each.
func admitted(t *testing.T, result Result, onKubernetes bool) map[resource.Key]error {
	rows := memory.New(memory.Options{})
	defer func() { _ = rows.Close() }()
	options := admission.Options{Zone: "default"}
	if onKubernetes {
		options.Environment, options.SystemNamespace = kind.Kubernetes, result.system
	}
	options.Patches = envoy.TypeNames(nil)
	w := admission.New(rows, options)
	errs := map[resource.Key]error{}
	put := func(o resource.Any) {
		_, err := w.Put(t.Context(), o, admission.Change{})
		errs[o.Key()] = err
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
	for _, o := range result.Resources {
		if o.Key().Kind != kind.Meshes.Name {
			put(o)
		}
	}
	return errs
}
