// Package golden runs tests whose inputs and expectations are files: each file is a scenario (txtar), so a file that is
// dropped into the directory is a new test. The flag -update rewrites the expectations.
//
// A derived section whose first line is "base: SCENARIO" is the difference from that section of another scenario of the
// directory (package difference); "base: SCENARIO/SECTION" names another section. The test compares the whole. The line
// alone is enough for -update to write the rest.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"weft/internal/golden/difference"
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
	if *update {
		if files, err = difference.BasesFirst(files); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { check(t, file, derive) })
	}
}

func check(t *testing.T, file string, derive func(t *testing.T, scenario *txtar.Archive)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := derived(t, text, derive)
	if *update {
		if after, err = difference.FormatFile(file, txtar.Parse(text), after); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, txtar.Format(after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	diff, err := compare(file, after)
	if err != nil {
		t.Fatal(err)
	}
	if diff != "" {
		t.Errorf("%s: the result differs (-want +got); understand why, then run with -update:\n%s", file, diff)
	}
}

// compare returns how a derived scenario differs from the file, with the goldens of the file complete.
func compare(file string, after *txtar.Archive) (string, error) {
	before, err := difference.ReadFile(file)
	if err != nil {
		return "", err
	}
	return cmp.Diff(string(txtar.Format(before)), string(txtar.Format(after))), nil
}

// derived returns the scenario with its derived sections.
func derived(t *testing.T, text []byte, derive func(t *testing.T, scenario *txtar.Archive)) *txtar.Archive {
	scenario := txtar.Parse(text)
	derive(t, scenario)
	return scenario
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
