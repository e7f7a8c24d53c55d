package inspect_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestSectionsAreThoseOfTheWhole: of each proxy of the worlds, a section alone is the field of the whole report, no
// other one is there, and each field is in a section.
func TestSectionsAreThoseOfTheWhole(t *testing.T) {
	worlds, err := filepath.Glob("testdata/applied/*.txtar")
	if err != nil || len(worlds) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, path := range worlds {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := graphtest.Load(t, archive)
		for _, section := range archive.Files {
			if name, ok := strings.CutSuffix(section.Name, ".json"); ok {
				compareSections(t, inspect.NewReports(s, s.Tables.DB.Snapshot()),
					state.ProxyKey{Mesh: "default", Name: name})
			}
		}
	}
}

func compareSections(t *testing.T, reports *inspect.Reports, key state.ProxyKey) {
	t.Helper()
	fields := func(applied *inspect.Applied) map[string]json.RawMessage {
		text, err := json.Marshal(applied)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	whole, joined := fields(reports.AppliedConfs(key)), map[string]json.RawMessage{}
	for _, section := range inspect.AppliedSections() {
		for name, value := range fields(reports.AppliedConfs(key, section)) {
			if name != section && name != "moreFacts" {
				t.Errorf("%s: the section %s has %s", key, section, name)
			}
			joined[name] = value
		}
	}
	if diff := cmp.Diff(whole, joined); diff != "" {
		t.Errorf("%s: the sections are not the whole (-whole +sections):\n%s", key, diff)
	}
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
