package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestServerNames: the owner of an SNI is found by it, and the format is the first one until another is stored.
func TestServerNames(t *testing.T) {
	g := graph.NewState("east")
	names := state.SNIs{Tables: g.Tables}
	ports := []kind.ServicePort{{Port: 80, SNIs: []kind.SNI{{Value: "new.80.ms"}, {Value: "old.80.ms"}}}}
	external := kind.MeshExternalServices.Make("m", "api",
		kind.MeshExternalService{Match: kind.ExternalMatch{Port: 443}})
	g.Tables.DB.Commit(func(tx *table.Tx) {
		g.Tables.Put(tx, kind.MeshServices.Make("m", "web", kind.MeshService{Ports: ports}))
		g.Tables.Put(tx,
			kind.MeshMultiZoneServices.Make("m", "web",
				kind.MeshMultiZoneService{Ports: []kind.ServicePort{{Port: 80,
					SNIs: []kind.SNI{{Value: "a.80.mzms"}}}}}))
		g.Tables.Put(tx, external)
	})
	for name, want := range map[string][]resource.Key{
		sni.V1.Name(sni.PortOf(external, 443)): {kind.MeshExternalServices.Key("m", "api")},
		sni.V2.Name(sni.PortOf(external, 443)): {kind.MeshExternalServices.Key("m", "api")},
		sni.V1.Name(sni.PortOf(external, 444)): nil,
		"old.80.ms":                            {kind.MeshServices.Key("m", "web")},
		"a.80.mzms":                            {kind.MeshMultiZoneServices.Key("m", "web")},
		"other.ms":                             nil,
	} {
		if d := cmp.Diff(want, names.Owners(name)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, test := range []struct {
		said string
		want sni.Format
	}{{"", sni.V1}, {"v2", sni.V2}, {"v9", sni.V1}} {
		if test.said != "" {
			g.Tables.DB.Commit(func(tx *table.Tx) {
				g.Tables.Put(tx, kind.SNIFormats.Make("", kind.TheSNIFormat, kind.SNIFormat{Format: test.said}))
			})
		}
		if got := names.Format(); got != test.want {
			t.Errorf("told %q, the format is %s", test.said, got)
		}
	}
}
