package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/schema"
)

// TestBoundsPageIsCurrent: the tables of the page, between its marks, equal those of the kinds.
func TestBoundsPageIsCurrent(t *testing.T) {
	const begin, end = "<!-- generated: kinds -->\n", "<!-- end -->\n"
	file := filepath.Join(root, "docs/operations/bounds.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("the page has no generated part")
	}
	want := before + begin + schema.BoundsTables() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/operations/bounds.md is not what the kinds say; `make generate` writes it")
	}
}
