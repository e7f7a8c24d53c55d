package check_test

import (
	"fmt"
	"testing"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

func TestAMeshThatIsFullOfGeneratedServicesIsFound(t *testing.T) {
	w := newScene("east")
	put := func(n int) {
		w.stage.Tables.DB.Commit(func(tx *table.Tx) {
			w.stage.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			for i := range n {
				name := fmt.Sprint("s-", i)
				service := kind.MeshServices.Make("default", name, kind.MeshService{
					Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}}})
				service.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
				w.stage.Tables.Put(tx, service)
			}
		})
	}
	full := func() bool {
		w.snapshot = w.stage.Tables.DB.Snapshot()
		for _, f := range w.run().Findings {
			if f.Problem == "generated-services-full" {
				return f.Object.Name == "default"
			}
		}
		return false
	}
	put(service.MaxGenerated - 1)
	if full() {
		t.Error("a mesh with one less is full")
	}
	put(service.MaxGenerated)
	if !full() {
		t.Error("nothing is found")
	}
}
