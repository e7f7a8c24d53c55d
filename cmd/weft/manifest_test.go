package main

import (
	"strings"
	"testing"
)

// TestDocumentsOfALongFile: the bounds of a document do not count the lines before it, and its errors do.
func TestDocumentsOfALongFile(t *testing.T) {
	read := func(text string) ([]manifest, error) {
		return readManifests(t.Context(), &sources{files: []string{"-"}}, strings.NewReader(text), "default")
	}
	before := strings.Repeat("---\n# of a long file\n", 30_000) + "---\n" + "type: Mesh\nname: a\n---\n"
	if manifests, err := read(before + "type: Mesh\nname: b\n"); err != nil || len(manifests) != 2 {
		t.Errorf("%d documents: %v", len(manifests), err)
	}
	_, err := read(before + "type: Mesh\nname: a\n---\ntype: Mesh\nname: [\n")
	for _, want := range []string{"standard input:60005: Mesh a stands at standard input:60002 already",
		"standard input:60008: not YAML: line 60009: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
