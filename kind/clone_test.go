package kind_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"weft/kind"
	"weft/resource"
)

// Every example of a kind has a clone that equals its stored form.
func TestExamplesAreCloned(t *testing.T) {
	files, err := filepath.Glob("../examples/kinds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range resource.SplitYAML(text) {
			o, err := resource.Parse(document.Text, kind.ByName)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			body, err := resource.Body(o)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			want, err := resource.FromBody(kind.ByName(o.Key().Kind), *o.Envelope(), body)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if got := resource.Clone(o); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: the clone is\n%#v\nwant\n%#v", file, got, want)
			}
		}
	}
}
