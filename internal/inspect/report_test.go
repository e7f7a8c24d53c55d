package inspect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden"
	"weft/internal/graph/graphtest"
	"weft/internal/inspect"
	"weft/internal/state"
)

// TestApplied: every file of testdata/applied is a world, and each of its sections "NAME.json" has what configures a
// Dataplane.
func TestApplied(t *testing.T) {
	compareReports(t, "testdata/applied", func(reports *inspect.Reports, name string) any {
		return reports.Applied(state.ProxyKey{Mesh: "default", Name: name})
	})
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
