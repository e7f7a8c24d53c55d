package migrate

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestAnEmptyControlPlaneTakesTheTranslation writes the translation of each export in testdata to an empty store, as
// `weft apply` does: Meshes first.
func TestAnEmptyControlPlaneTakesTheTranslation(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	written := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Translate(split("export", string(archive.Files[0].Data)), time.Time{})
		if err != nil {
			continue
		}
		rows := memory.New(memory.Options{})
		w := admission.New(rows, admission.Options{Zone: "default"})
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
