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
	files, err := filepath.Glob("testdata/applied/*.txtar")
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
			applied, err := json.MarshalIndent(s.Applied(table.Eval(s.DB.Snapshot()), graph.ProxyKey{Mesh: "default", Name: name}), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			applied = append(applied, '\n')
			if *update {
				section.Data = applied
			} else if diff := cmp.Diff(string(section.Data), string(applied)); diff != "" {
				t.Errorf("%s: to %s something else applies (-want +got); if that is right, run with -update:\n%s", file, name, diff)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
