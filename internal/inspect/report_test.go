package inspect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden"
	"weft/internal/graph/graphtest"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// TestApplied: every file of testdata/applied is a world, and each of its sections "NAME.json" has what configures a
// Dataplane.
func TestApplied(t *testing.T) {
	compareReports(t, "testdata/applied", func(reports *inspect.Reports, name string) any {
		return reports.AppliedConfs(state.ProxyKey{Mesh: "default", Name: name})
	})
}

// TestFactsAreBounded: a report lists a part of the facts of a Dataplane, and of what rests on one, with the number of
// the others.
func TestFactsAreBounded(t *testing.T) {
	const more = 3
	dp := kind.Dataplanes.Make("default", "web", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
		Inbound: []kind.Inbound{{Port: 80}}}})
	dp.Labels = map[string]string{}
	for i := range inspect.MaxFacts + more - 2 { // beside the name and the address
		dp.Labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	objects := []resource.Any{dp}
	for i := range inspect.MaxFactUses + more {
		objects = append(objects, kind.MeshServices.Make("default", fmt.Sprintf("service-%d", i), kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneRef: &kind.NameRef{Name: "web"}}}))
	}
	w := world(objects...)
	applied := w.Reports().AppliedConfs(state.ProxyKey{Mesh: "default", Name: "web"})
	if len(applied.Facts) != inspect.MaxFacts || applied.MoreFacts != more {
		t.Errorf("%d facts and %d more, want %d and %d", len(applied.Facts), applied.MoreFacts, inspect.MaxFacts, more)
	}
	address := applied.Facts[0] // sorted
	if len(address.RestsOn) != inspect.MaxFactUses || address.More != more {
		t.Errorf("%d services and %d more rest on the %s, want %d and %d", len(address.RestsOn), address.More,
			address.Fact, inspect.MaxFactUses, more)
	}
}

// TestReportServices: every file of testdata/services is a world, and each of its sections "NAME.json" has the reports
// of the services of a name.
func TestReportServices(t *testing.T) {
	compareReports(t, "testdata/services", func(reports *inspect.Reports, name string) any {
		return reports.Services(inspect.ServiceQuery{Mesh: "default", Name: name})
	})
}

// compareReports compares each section "NAME.json" of each world of a folder with its report.
func compareReports(t *testing.T, folder string, reportOf func(reports *inspect.Reports, name string) any) {
	golden.Run(t, folder+"/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		s := graphtest.Load(t, archive)
		for i := range archive.Files {
			section := &archive.Files[i]
			name, ok := strings.CutSuffix(section.Name, ".json")
			if !ok {
				continue
			}
			report, err := json.MarshalIndent(reportOf(inspect.NewReports(s, s.Tables.DB.Snapshot()), name), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			section.Data = append(report, '\n')
		}
	})
}
