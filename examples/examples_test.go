package examples_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestEveryFileIsAccepted keeps what users copy valid: each document is parsed, given its defaults and
// validated as a write would be.
func TestEveryFileIsAccepted(t *testing.T) {
	documents := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for i, document := range bytes.Split(content, []byte("\n---\n")) {
			documents++
			object, err := resource.Parse(document, kind.ByName)
			if err != nil {
				t.Errorf("%s, document %d: %s", file, i+1, err)
				continue
			}
			for _, p := range kind.ByName(object.Key().Kind).Prepare(object) {
				t.Errorf("%s, document %d: %s %s", file, i+1, p.Field, p.Reason)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if documents == 0 {
		t.Error("no example was found")
	}
}
