package schema_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/schema"
	"weft/kind"
)

var update = flag.Bool("update", false, "rewrite docs/kinds")

const root = "../.."

func TestPagesAreCurrent(t *testing.T) {
	pages := map[string]string{"README.md": schema.Index()}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden {
			continue
		}
		var example []byte
		if !info.ReadOnly {
			var err error
			if example, err = os.ReadFile(filepath.Join(root, schema.ExampleFile(d))); err != nil {
				t.Fatal(err)
			}
		}
		pages[strings.ToLower(info.Name)+".md"] = schema.Page(d, string(example))
	}
	folder := filepath.Join(root, "docs/kinds")
	for name, page := range pages {
		file := filepath.Join(folder, name)
		if *update {
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if written, err := os.ReadFile(file); err != nil || string(written) != page {
			t.Errorf("docs/kinds/%s is not what the kinds say (%v); `make generate` writes it", name, err)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, ok := pages[file.Name()]; !ok {
			t.Errorf("docs/kinds/%s is of no kind", file.Name())
		}
	}
}
