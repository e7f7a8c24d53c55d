package crd_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/kube/crd"
	"weft/internal/schema/schematest"
	"weft/kind"
	"weft/resource"
)

var update = flag.Bool("update", false, "rewrite the definitions of the chart")

// definitions are the files of the definitions.
const definitions = "../../../deploy/chart/crds"

// TestDefinitionsAreCurrent: a changed definition is a change for every cluster, so it is read before it is committed.
func TestDefinitionsAreCurrent(t *testing.T) {
	var files []string
	for _, d := range crd.All() {
		file := filepath.Join(definitions, d.Metadata.Name+".yaml")
		files = append(files, file)
		got, err := yaml.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the definition of its kind (%v): go generate ./internal/kube/crd, and read the "+
				"difference", file, err)
		}
	}
	found, _ := filepath.Glob(definitions + "/*.yaml")
	for _, file := range found {
		if !slices.Contains(files, file) {
			t.Errorf("%s belongs to no kind", file)
		}
	}
}

// TestColumnsExist: a column whose path is no field is empty for every object.
func TestColumnsExist(t *testing.T) {
	filter := regexp.MustCompile(`\[[^]]*\]`)
	for _, d := range crd.All() {
		version := d.Spec.Versions[0]
		for _, column := range version.Columns {
			if strings.HasPrefix(column.JSONPath, ".metadata.") {
				continue
			}
			s := version.Schema.OpenAPI
			for _, name := range strings.Split(filter.ReplaceAllString(column.JSONPath[1:], ""), ".") {
				if s != nil && s.Items != nil {
					s = s.Items
				}
				if s != nil {
					s = s.Properties[name]
				}
			}
			if s == nil || s.Type != column.Type {
				t.Errorf("%s: the column %s shows %s, which is %v", d.Metadata.Name, column.Name, column.JSONPath, s)
			}
		}
	}
}

// TestDefaultsAreThoseOfAdmission: the API server's defaults change no document that admission accepts, except by what
// admission sets too. The documents are drawn.
func TestDefaultsAreThoseOfAdmission(t *testing.T) {
	const each = 300
	set := map[string]int{}
	for _, d := range crd.Kinds() {
		if d.Describe().ReadOnly {
			continue
		}
		name := d.Describe().Name
		drawing := schematest.NewDrawing(1)
		drawing.Names, drawing.Labels = []string{"a", "b"}, [][2]string{{"app", "web"}}
		definition := crd.DefinitionOf(d).Spec.Versions[0].Schema.OpenAPI.Properties["spec"]
		for range each {
			document := drawing.Document(d, "default", "a")
			if d.Describe().Scope == resource.Global {
				delete(document, "mesh")
			}
			alone, ok := prepared(d, document["spec"])
			if !ok {
				continue
			}
			count := setDefaults(definition, document["spec"])
			set[name] += count
			if both, _ := prepared(d, document["spec"]); !reflect.DeepEqual(alone, both) {
				t.Fatalf("%s: with the API server's defaults\n%s\nadmission has\n%s\nwithout\n%s", name,
					asJSON(document["spec"]), asJSON(both), asJSON(alone))
			}
		}
	}
	for _, name := range []string{kind.Zones.Name, kind.MeshServices.Name, kind.MeshExternalServices.Name} {
		if set[name] == 0 {
			t.Errorf("no default of a %s was set", name)
		}
	}
}

// prepared returns a spec with the defaults of admission. Drawn values that are no value of their field's type are
// skipped.
func prepared(d resource.Descriptor, spec any) (any, bool) {
	o := d.New()
	if json.Unmarshal([]byte(asJSON(spec)), resource.SpecOf(o)) != nil {
		return nil, false
	}
	d.Prepare(o)
	return resource.SpecOf(o), true
}

// setDefaults sets the defaults of a schema, as the API server does, and returns their number.
func setDefaults(s *crd.Structural, value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			field := s.Properties[name]
			if v[name] == nil && field.Default != nil {
				v[name] = field.Default
				n++
			}
			n += setDefaults(field, v[name])
		}
	case []any:
		if s.Items != nil {
			for _, item := range v {
				n += setDefaults(s.Items, item)
			}
		}
	}
	return n
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(raw)
}
