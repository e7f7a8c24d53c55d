package install

import (
	"os"
	"strings"
	"testing"
)

// TestEachValueOfKumaIsKnown: each value of Kuma's chart is one of this chart, or is rejected with what to do. The list
// has the values and the mappings of the chart of Kuma 2.14.3.
func TestEachValueOfKumaIsKnown(t *testing.T) {
	text, err := os.ReadFile("testdata/kuma-values.txt")
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(text))
	for _, path := range paths {
		keys := strings.Split(path, ".")
		given := map[string]any{}
		at := given
		for _, key := range keys[:len(keys)-1] {
			below := map[string]any{}
			at[key], at = below, below
		}
		at[keys[len(keys)-1]] = "x"
		if err := check(given); err != nil && strings.Contains(err.Error(), "is unknown") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(paths) < 300 {
		t.Errorf("the list has %d values", len(paths))
	}
}
