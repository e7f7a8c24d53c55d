package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/schema"
)

// TestKumaFieldsAreCurrent: the tables of the page equal what the kinds say about the fields of Kuma's types, and each
// field that a kind lacks has a word of what to do.
func TestKumaFieldsAreCurrent(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "internal/rest/testdata/kumactl/fields.txt"))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := schema.KumaTables(schema.ParseKumaFields(string(list)))
	if err != nil {
		t.Error(err)
	}
	file := filepath.Join(root, "docs/coming-from-kuma.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- generated: fields -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("the page has no generated part")
	}
	want := before + begin + tables + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/coming-from-kuma.md is not what the kinds say; `make generate` writes it")
	}
}

// TestAFieldOfKumaWithoutAWord: a field that Kuma adds, and that no kind says anything about, is an error.
func TestAFieldOfKumaWithoutAWord(t *testing.T) {
	_, err := schema.KumaTables(schema.ParseKumaFields("MeshTimeout to 2.14\nMeshTimeout to[].unheard 2.14\n"))
	if err == nil || !strings.Contains(err.Error(), "MeshTimeout to[].unheard") {
		t.Errorf("the error is %v", err)
	}
}
