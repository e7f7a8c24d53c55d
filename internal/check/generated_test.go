package check_test

import (
	"fmt"
	"testing"

	"weft/internal/check"
	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

func TestAMeshThatIsFullOfGeneratedServicesIsFound(t *testing.T) {
	state := graph.NewState("east")
	put := func(n int) {
		state.Tables.DB.Commit(func(tx *table.Tx) {
			state.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			for i := range n {
				name := fmt.Sprint("s-", i)
				service := kind.MeshServices.Make("default", name, kind.MeshService{
					Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}}})
				service.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
				state.Tables.Put(tx, service)
			}
		})
	}
	full := func() bool {
		for _, f := range check.Run(check.World{State: state, Snapshot: state.Tables.DB.Snapshot()}).Findings {
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
