package inject

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/internal/kube/podmeta"
)

// TestDocumentedAnnotationsAreKnown: each annotation in the tables of the page has an effect, or a warning or a denial
// of its own.
func TestDocumentedAnnotationsAreKnown(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubernetes-injection.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Annotations of Pods\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names := regexp.MustCompile("(?m)`([a-z0-9.]*kuma\\.io/[a-z-]+)`").FindAllStringSubmatch(section, -1)
	if len(names) < len(podmeta.Annotations)/2 {
		t.Fatalf("the section has %d annotations", len(names))
	}
	for _, name := range names {
		if !slices.Contains(podmeta.Annotations, name[1]) && !isMeaningless(name[1]) {
			t.Errorf("the page has the annotation %s, which is unknown", name[1])
		}
	}
}
