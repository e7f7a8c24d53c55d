package resource_test

import (
	"reflect"
	"strings"
	"testing"

	"weft/resource"
)

// ruled has a field for each word of the tag.
type ruled struct {
	Words     string            `schema:"required readonly deprecated pattern=name default=a b"`
	Enum      string            `schema:"enum=A|B"`
	Number    int               `schema:"min=0 max=5"`
	List      []string          `schema:"minItems=1 maxItems=2 maxLength=3"`
	Map       map[string]string `schema:"tags"`
	Object    map[string]int    `schema:"minProperties=1 maxProperties=4"`
	Address   string            `schema:"host"`
	Unlimited string
}

func TestRulesOf(t *testing.T) {
	for name, want := range map[string]resource.Rules{
		"Words": {Required: true, ReadOnly: true, Deprecated: true, Pattern: "name", Default: "a b",
			Bound: resource.Bound{Length: 253}},
		"Enum":    {Enum: []string{"A", "B"}, Bound: resource.Bound{Length: 64}},
		"Number":  {Min: "0", Max: "5"},
		"Map":     {Tags: true, Bound: resource.Bound{Properties: 64, Length: 253, Name: 317}},
		"Address": {Host: true, Bound: resource.Bound{Length: 253}},
	} {
		f, _ := reflect.TypeFor[ruled]().FieldByName(name)
		if got := resource.RulesOf(f); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for name, want := range map[string]resource.Bound{"List": {Items: 2, Length: 3}, "Object": {Properties: 4},
		"Unlimited": {}} {
		f, _ := reflect.TypeFor[ruled]().FieldByName(name)
		if got := resource.RulesOf(f).Bound; got != want {
			t.Errorf("%s: the bound is %+v, want %+v", name, got, want)
		}
	}
}

// A word that has no meaning is an error of the program.
func TestRulesOfUnknownWords(t *testing.T) {
	for _, word := range []string{"requird", "required=yes", "pattern=nothing", "min=a", "enum"} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, word) {
					t.Errorf("%q: the panic says %q", word, said)
				}
			}()
			resource.RulesOf(reflect.StructField{Name: "F", Type: reflect.TypeFor[string](),
				Tag: reflect.StructTag(`schema:"` + word + `"`)})
		}()
	}
}
