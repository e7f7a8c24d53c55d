package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/schema"
)

// TestBoundsPageIsCurrent: the tables of the page, between their marks, equal those of the kinds.
func TestBoundsPageIsCurrent(t *testing.T) {
	file := filepath.Join(root, "docs/operations/bounds.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for _, of := range []struct{ name, tables string }{
		{"kinds", schema.BoundsTables()}, {"costs", schema.CostsTables()},
	} {
		begin, end := "<!-- generated: "+of.name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("the page has no generated part %q", of.name)
		}
		want = before + begin + of.tables + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/operations/bounds.md is not what the kinds say; `make generate` writes it")
	}
}
