package schema_test

import (
	"reflect"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestEveryFieldHasABound: each field that users write or that other zones send has a bound. A list, a mapping or a
// string without a bound would let its writer decide the work of every reader.
func TestEveryFieldHasABound(t *testing.T) {
	for _, d := range kind.All() {
		info := d.Describe()
		if info.ReadOnly && info.Sync == 0 || info.StatusOf != "" && info.Sync == 0 {
			continue
		}
		wantBounds(t, info.Name, reflect.TypeOf(resource.SpecOf(d.New())).Elem())
	}
}

func wantBounds(t *testing.T, at string, s reflect.Type) {
	unmarshaler := reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()
	for i := range s.NumField() {
		f := s.Field(i)
		name := at + "." + f.Name
		b, inner := resource.RulesOf(f).Bound, f.Type
		for reflect.PointerTo(inner).Kind() == reflect.Pointer {
			switch {
			case inner.Kind() == reflect.Pointer:
			case inner == reflect.TypeFor[[]byte]():
			case inner.Kind() == reflect.Slice && b.Items == 0:
				t.Errorf("%s has no maxItems", name)
			case inner.Kind() == reflect.Map && b.Properties == 0:
				t.Errorf("%s has no maxProperties", name)
			}
			if inner == reflect.TypeFor[[]byte]() || inner.Kind() != reflect.Pointer && inner.Kind() != reflect.Slice &&
				inner.Kind() != reflect.Map {
				break
			}
			inner = inner.Elem()
		}
		switch {
		case reflect.PointerTo(inner).Implements(unmarshaler):
		case (inner.Kind() == reflect.String || inner == reflect.TypeFor[[]byte]()) && b.Length == 0:
			t.Errorf("%s has no maxLength", name)
		case inner.Kind() == reflect.Struct:
			wantBounds(t, name, inner)
		}
	}
}

// TestPatternsHaveALength: a field with a pattern needs no maxLength.
func TestPatternsHaveALength(t *testing.T) {
	for name := range kind.Patterns {
		f := reflect.StructField{Name: "F", Type: reflect.TypeFor[string](),
			Tag: reflect.StructTag(`schema:"pattern=` + name + `"`)}
		if resource.RulesOf(f).Bound.Length == 0 {
			t.Errorf("resource.RulesOf has no length of the pattern %s", name)
		}
	}
}
