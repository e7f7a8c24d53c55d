package graph_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"weft/internal/graph"
	"weft/internal/table"
)

// Every file of testdata/applied is a world and what applies to some of its Dataplanes: each section
// "NAME.json" is of one.
func TestApplied(t *testing.T) {
	compareReports(t, "testdata/applied", func(s *graph.State, name string) any {
		return s.Applied(table.Eval(s.DB.Snapshot()), graph.ProxyKey{Mesh: "default", Name: name})
	})
}

// Every file of testdata/services is a world and what is known of some of its services: each section
// "NAME.json" is of one name.
func TestReportServices(t *testing.T) {
	compareReports(t, "testdata/services", func(s *graph.State, name string) any {
		return s.ReportServices(s.DB.Snapshot(), graph.ServiceQuery{Mesh: "default", Name: name})
	})
}

// compareReports compares each section "NAME.json" of each world of a folder with its report.
func compareReports(t *testing.T, folder string, reportOf func(s *graph.State, name string) any) {
	files, err := filepath.Glob(folder + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := load(t, archive)
		for i := range archive.Files {
			section := &archive.Files[i]
			name, ok := strings.CutSuffix(section.Name, ".json")
			if !ok {
				continue
			}
			report, err := json.MarshalIndent(reportOf(s, name), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			report = append(report, '\n')
			if *update {
				section.Data = report
			} else if diff := cmp.Diff(string(section.Data), string(report)); diff != "" {
				t.Errorf("%s: the report of %s differs (-want +got); if that is right, run with -update:\n%s", file,
					name, diff)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
