package check_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestANamespaceFullOfPoliciesIsFound: policies of every kind count, those of other namespaces, of other control planes
// and of the system namespace do not.
func TestANamespaceFullOfPoliciesIsFound(t *testing.T) {
	for _, test := range []struct {
		namespace, origin string
		timeouts, routes  int
		full              bool
	}{
		{"shop", kind.OriginZone, 5, 4, false},
		{"shop", kind.OriginZone, 5, 5, true},
		{"kuma-system", kind.OriginZone, 5, 6, false},
		{"shop", kind.OriginGlobal, 5, 6, false},
	} {
		w := newScene("east")
		world := w.stage
		world.Tables.SystemNamespace = "kuma-system"
		world.Tables.NamespaceBound = state.NamespaceBound{MeshServices: 10, Ports: 400, Policies: 10}
		world.Tables.DB.Commit(func(tx *table.Tx) {
			world.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			put := func(o resource.Any) {
				o.Envelope().Labels = map[string]string{kind.NamespaceLabel: test.namespace,
					kind.OriginLabel: test.origin}
				if test.origin == kind.OriginZone {
					o.Envelope().Labels[kind.ZoneLabel] = "east"
				}
				world.Tables.Put(tx, o)
			}
			for i := range test.timeouts {
				put(kind.MeshTimeouts.Make("default", fmt.Sprint("t-", i, ".", test.namespace), kind.MeshTimeout{}))
			}
			for i := range test.routes {
				put(kind.MeshHTTPRoutes.Make("default", fmt.Sprint("r-", i, ".", test.namespace), kind.MeshHTTPRoute{}))
			}
			other := kind.MeshTimeouts.Make("default", "t.other", kind.MeshTimeout{})
			other.Labels = map[string]string{kind.NamespaceLabel: "other"}
			world.Tables.Put(tx, other)
		})
		w.snapshot = world.Tables.DB.Snapshot()
		var found []string
		for _, f := range w.run().Findings {
			if f.Problem == "namespace-full" {
				found = append(found, f.Detail)
			}
		}
		full := len(found) == 1 && strings.Contains(found[0], "the namespace shop may have 10 policies")
		if full != test.full {
			t.Errorf("%+v: found is %q", test, found)
		}
	}
}

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
		w := newScene("east")
		world := w.stage
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
		w.snapshot = world.Tables.DB.Snapshot()
		full := false
		for _, f := range w.run().Findings {
			full = full || f.Problem == "namespace-full" && f.Object.Name == "default"
		}
		if full != test.full {
			t.Errorf("%+v: full is %t", test, full)
		}
	}
}
