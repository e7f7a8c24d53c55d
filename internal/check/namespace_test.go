package check_test

import (
	"fmt"
	"testing"

	"weft/internal/check"
	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// TestAFullNamespaceIsFound: a namespace is full where another MeshService with as many ports as one may have exceeds
// its bound. The system namespace never is.
func TestAFullNamespaceIsFound(t *testing.T) {
	for _, test := range []struct {
		namespace       string
		services, ports int
		full            bool
	}{
		{"shop", 9, 1, false},
		{"shop", 10, 1, true},
		{"shop", 2, 200, false},
		{"shop", 3, 200, true},
		{"kuma-system", 10, 200, false},
	} {
		world := graph.NewState("east")
		world.Tables.SystemNamespace = "kuma-system"
		world.Tables.NamespaceBound = state.NamespaceBound{MeshServices: 10, Ports: 400 + kind.MaxServicePorts}
		world.Tables.DB.Commit(func(tx *table.Tx) {
			world.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			for i := range test.services {
				o := kind.MeshServices.Make("default", fmt.Sprint("s-", i, ".", test.namespace), kind.MeshService{
					Ports: make([]kind.ServicePort, test.ports)})
				o.Labels = map[string]string{kind.NamespaceLabel: test.namespace}
				world.Tables.Put(tx, o)
			}
		})
		full := false
		for _, f := range check.Run(check.World{State: world, Snapshot: world.Tables.DB.Snapshot()}).Findings {
			full = full || f.Problem == "namespace-full" && f.Object.Name == "default"
		}
		if full != test.full {
			t.Errorf("%+v: full is %t", test, full)
		}
	}
}
