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
	compareAnswers(t, "testdata/applied", func(s *graph.State, name string) any {
		return s.Applied(table.Eval(s.DB.Snapshot()), graph.ProxyKey{Mesh: "default", Name: name})
	})
}

// Every file of testdata/services is a world and what is known of some of its services: each section
// "NAME.json" is of one name.
func TestReportServices(t *testing.T) {
	compareAnswers(t, "testdata/services", func(s *graph.State, name string) any {
		return s.ReportServices(s.DB.Snapshot(), graph.ServiceQuery{Mesh: "default", Name: name})
	})
}

// compareAnswers asks each world of a folder for each of its sections "NAME.json".
func compareAnswers(t *testing.T, folder string, ask func(s *graph.State, name string) any) {
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
			answer, err := json.MarshalIndent(ask(s, name), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			answer = append(answer, '\n')
			if *update {
				section.Data = answer
			} else if diff := cmp.Diff(string(section.Data), string(answer)); diff != "" {
				t.Errorf("%s: of %s something else is answered (-want +got); if that is right, run with -update:\n%s", file, name, diff)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
