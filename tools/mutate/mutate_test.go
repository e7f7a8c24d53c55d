package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheTable holds the table against the page and the source of this repository. Whether all mutations compile takes
// longer, and is a part of `make test-real`.
func TestTheTable(t *testing.T) {
	if _, err := applicable("../.."); err != nil {
		t.Error(err)
	}
}

const (
	testPage = "| what is decided | shown by |\n|---|---|\n| a value is positive | `kind` TestValue/small, " +
		"TestSign; `test/e2e` TestAll |\n| colors | later |\n"
	testTable = "# a comment\n\n== a value is positive\nnegative values are accepted\ntest kind " +
		"TestValue/small\ntest kind TestSign\nfile kind/value.go\n if v < 0 {\n-\treturn false\n+return true\n"
	testFile = "package kind\n\nfunc good(v int) bool {\n\tif v < 0 {\n\t\treturn false\n\t}\n\treturn true\n}\n"
)

func TestAMutation(t *testing.T) {
	all, err := readMutations(testTable)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d mutations: %v", len(all), err)
	}
	m := all[0]
	got, err := m.edits[0].apply(testFile)
	if want := strings.Replace(testFile, "\tif v < 0 {\n\t\treturn false", "if v < 0 {\nreturn true", 1); err != nil ||
		got != want {
		t.Errorf("the changed file is %q (%v), want %q", got, err, want)
	}
	if want := "^TestValue$/^small$|^TestSign$"; m.pattern() != want {
		t.Errorf("the tests are selected by %s, want %s", m.pattern(), want)
	}
	for printed, want := range map[string]int{
		"--- FAIL: TestValue (0.00s)\n    --- FAIL: TestValue/small (0.00s)\n--- FAIL: TestSign (0.00s)\n": 0,
		"--- FAIL: TestValue (0.00s)\n    --- FAIL: TestValue/large (0.00s)\n--- FAIL: TestSign (0.00s)\n": 1,
		"ok  \tweft/kind\t0.01s\n": 2,
		"\npanic: no\n":            0,
	} {
		if passed := m.passed(printed); len(passed) != want {
			t.Errorf("of what go test printed as %q, %v passed, want %d", printed, passed, want)
		}
	}
}

func TestWhatIsWrongWithATable(t *testing.T) {
	swap := func(old, by string) string { return strings.Replace(testTable, old, by, 1) }
	for name, c := range map[string]struct{ page, table, file, want string }{
		"nothing":     {testPage, testTable, testFile, ""},
		"no mutation": {testPage, "", testFile, "no mutation for the row: a value is positive"},
		"another row": {testPage, swap("positive", "negative"), testFile,
			"a mutation for a row that docs/requirements.md lacks: a value is negative"},
		"a test of no row": {testPage, swap("TestSign", "TestOther"), testFile,
			"the row does not name the test kind TestOther"},
		"a test without a mutation": {testPage, swap("test kind TestSign\n", ""), testFile,
			"no mutation has the test kind TestSign"},
		"tests of several packages": {testPage, swap("kind TestSign", "test/e2e TestAll"), testFile,
			"of several packages"},
		"the old text is gone": {testPage, testTable, strings.Replace(testFile, "< 0", "<= 0", 1),
			"has the old text 0 times"},
		"the old text is there twice": {testPage, testTable, testFile + testFile, "has the old text 2 times"},
		"no file":                     {testPage, swap("kind/value.go", "kind/other.go"), testFile, "no such file"},
		"no test": {testPage, swap("test kind TestValue/small\ntest kind TestSign\n", ""), testFile,
			"lacks its test or file"},
		"it does not compile": {testPage, swap("+return true", "+return 1"), testFile, "cannot use 1"},
		"a row twice":         {testPage + testPage, testTable, testFile, "this row twice"},
		"a line out of place": {testPage, "test kind TestSign\n", testFile, "no part of a mutation"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{page: c.page, table: c.table, "kind/value.go": c.file,
				"go.mod": "module weft\n"} {
				at := filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := run(t.Context(), options{root: root, checkOnly: true}, io.Discard)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

// TestBuildCache: what builds with a mutation add does not stay, and what other builds added is at hand.
func TestBuildCache(t *testing.T) {
	c := buildCache{base: t.TempDir(), copy: t.TempDir()}
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(c.base, "README"))
	write(filepath.Join(c.base, "01", "first-d"))
	write(filepath.Join(c.base, "01", "program-d", "program"))
	if err := c.update(); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(c.copy, "01", "mutated-d"))
	write(filepath.Join(c.copy, "01", "mutatedprogram-d", "program"))
	write(filepath.Join(c.base, "01", "second-d"))
	write(filepath.Join(c.base, "02", "third-d"))
	if err := c.update(); err != nil {
		t.Fatal(err)
	}
	got, err := filepath.Glob(filepath.Join(c.copy, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"01/first-d", "01/second-d", "02/third-d"} {
		want = append(want, filepath.Join(c.copy, name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the copy has %q, want %q", got, want)
	}
}

// TestNeedsAPIServer: the tests of the repository with an API server are recognized, since a test that is left out
// notices nothing.
func TestNeedsAPIServer(t *testing.T) {
	for pkg, want := range map[string]bool{
		"internal/kube/crd": true, "internal/store/kube": true, "internal/table": false,
	} {
		if got := needsAPIServer("../..", pkg); got != want {
			t.Errorf("%s needs an API server: %t, want %t", pkg, got, want)
		}
	}
}
