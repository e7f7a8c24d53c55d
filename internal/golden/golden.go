// Package golden runs tests whose inputs and expectations are files: each file is a scenario (txtar), so a file that is
// dropped into the directory is a new test. The flag -update rewrites the expectations.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata; understand each difference first")

// Update returns whether expectations are rewritten.
func Update() bool { return *update }

// Run runs a test for each scenario that the pattern matches. The function sets the derived sections of the scenario,
// from its other sections; the test fails where the result differs from the file.
func Run(t *testing.T, pattern string, derive func(t *testing.T, scenario *txtar.Archive)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { check(t, file, derive) })
	}
}

func check(t *testing.T, file string, derive func(t *testing.T, scenario *txtar.Archive)) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := derived(t, before, derive)
	if *update {
		if err := os.WriteFile(file, after, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("%s: the result differs (-want +got); if it is right, run with -update:\n%s", file, diff)
	}
}

// derived returns the scenario with its derived sections.
func derived(t *testing.T, text []byte, derive func(t *testing.T, scenario *txtar.Archive)) []byte {
	scenario := txtar.Parse(text)
	derive(t, scenario)
	return txtar.Format(scenario)
}

// Section returns the text of a section; empty where there is none.
func Section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// Set sets the text of a section, which is the last one where it is new.
func Set(a *txtar.Archive, name, text string) {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(text)
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}
