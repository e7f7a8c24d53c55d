package kind_test

import (
	"encoding/json"
	"flag"

	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

var updateMessages = flag.Bool("update", false, "write testdata/messages.txt")

// TestMessages: the problems of each kind that users write are those of a list, by field and message. They are those of
// the examples and of a resource with all fields, in which one field after the other has each of some values. A change
// of the list is a change of what users read.
func TestMessages(t *testing.T) {
	const path = "testdata/messages.txt"
	var lines []string
	for _, d := range kind.Written() {
		found := map[string]bool{}
		for _, spec := range specsOf(t, d) {
			collect(d, spec, found)
		}
		lines = append(lines, slices.Sorted(maps.Keys(found))...)
	}
	got := strings.Join(lines, "\n") + "\n"
	if *updateMessages {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("no longer there: %s", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
}

// specsOf returns the specs of the example of a kind, and such with all fields: one for each value of the fields with
// the longest list of values.
func specsOf(t *testing.T, d resource.Descriptor) []any {
	t.Helper()
	var specs []any
	text, err := os.ReadFile("../examples/kinds/" + strings.ToLower(d.Describe().Name) + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range resource.SplitYAML(text) {
		if o, err := resource.Parse(document.Text, kind.ByName); err == nil && o.Key().Kind == d.Describe().Name {
			specs = append(specs, resource.SpecOf(o))
		}
	}
	for variant := range 6 {
		full := d.New()
		fill(reflect.ValueOf(resource.SpecOf(full)).Elem(), "", variant)
		specs = append(specs, resource.SpecOf(full))
	}
	return specs
}

// fill gives each field of a value a value.
func fill(v reflect.Value, schema string, variant int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), schema, variant)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(v.Field(i), f.Tag.Get("schema"), variant)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("text"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), schema, variant)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if v.Type().Elem().Kind() == reflect.String {
			v.SetMapIndex(reflect.ValueOf("a"), reflect.ValueOf("b"))
		}
	case reflect.String:
		v.SetString(sampleText(schema, variant))
	case reflect.Bool:
		v.SetBool(variant%2 == 0)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int64:
		v.SetInt(int64(time.Minute))
	case reflect.Int32:
		v.SetInt(200)
	case reflect.Uint32:
		v.SetUint(302)
	}
}

var enumWord = regexp.MustCompile(`enum=(\S+)`)

func sampleText(schema string, variant int) string {
	if enum := enumWord.FindStringSubmatch(schema); enum != nil {
		options := strings.Split(enum[1], "|")
		return options[variant%len(options)]
	}
	switch {
	case strings.Contains(schema, "ip"), strings.Contains(schema, "host"):
		return "10.0.0.1"
	case strings.Contains(schema, "pattern=duration"):
		return "24h"
	}
	return "a"
}

// collect adds the problems of a spec in which one value after the other is another one.
func collect(d resource.Descriptor, spec any, found map[string]bool) {
	add := func() {
		problems, _ := specProblems(d, spec)
		for _, p := range problems {
			found[d.Describe().Name+" "+position.ReplaceAllString(p.Field, "[]")+": "+formOf(p.Reason)] = true
		}
	}
	add()
	each(reflect.ValueOf(spec).Elem(), add)
}

var (
	position   = regexp.MustCompile(`\[[0-9]+\]`)
	citedValue = regexp.MustCompile(`^(is |write )?("[^"]*"(\.\.\.)?|[-0-9][-0-9.a-zµ]*|::\S*|(has )?[0-9]+)`)
)

// formOf returns a reason without the value that it begins with.
func formOf(reason string) string {
	return position.ReplaceAllString(citedValue.ReplaceAllString(reason, "$1…"), "[]")
}

// each calls a function after each change of one value in v.
func each(v reflect.Value, changed func()) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	try := func(value any) {
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		changed()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			each(v.Elem(), changed)
			v.SetZero()
			changed()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), changed)
			}
		}
		v.SetZero()
		changed()
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				each(v.Index(i), changed)
			}
			if v.Len() > 0 {
				v.Set(reflect.Append(v, v.Index(0))) // again
				changed()
			}
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		changed()
		v.SetZero()
		changed()
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			for _, pair := range [][2]string{{"a", "b c"}, {"a b", "c"}, {"kuma.io/proxy-type", "x"}, {"a", ""},
				{"kuma.io/protocol", "x"}} {
				v.Set(reflect.MakeMap(v.Type()))
				v.SetMapIndex(reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1]))
				changed()
			}
		}
		v.SetZero()
		changed()
	case reflect.String:
		for _, text := range []string{"", "?", "x", "A b", "10.0.0.1", "0.0.0.0", "::", "1", "1ns", "200y", "/a",
			"a.example.com", strings.Repeat("a", 300)} {
			try(text)
		}
	case reflect.Bool:
		try(!v.Bool())
	case reflect.Float64:
		for _, n := range []float64{-1, 0, 0.00001, 101, 1e9} {
			try(n)
		}
	case reflect.Int64, reflect.Int32, reflect.Uint32:
		for _, n := range []int64{-1, 0, 1, 70_000, 1 << 31, int64(20 * 365 * 24 * time.Hour)} {
			if v.Kind() == reflect.Int64 || n >= 0 && n < 1<<31 || v.Kind() == reflect.Uint32 && n == 1<<31 {
				try(n)
			}
		}
	}
	v.Set(before)
}

// TestRequiredFieldsHaveNoDefault: without a field that the schemas and the definitions require, a resource is invalid.
// A field that Default fills is not required.
func TestRequiredFieldsHaveNoDefault(t *testing.T) {
	removed := 0
	for _, d := range kind.Written() {
		for _, spec := range specsOf(t, d) {
			if problems, ok := specProblems(d, spec); !ok || len(problems) > 0 {
				continue // not an example
			}
			required(reflect.ValueOf(spec).Elem(), d.Describe().Name, func(path string) {
				removed++
				if problems, ok := specProblems(d, spec); ok && len(problems) == 0 {
					t.Errorf("%s is required, and a resource without it is valid", path)
				}
			})
		}
	}
	if removed < 100 {
		t.Errorf("%d required fields were removed, want some of each kind", removed)
	}
}

// specProblems returns the problems of a copy of a spec; false where JSON cannot have it.
func specProblems(d resource.Descriptor, spec any) (resource.Problems, bool) {
	o := d.New()
	raw, err := json.Marshal(spec)
	if err != nil || json.Unmarshal(raw, resource.SpecOf(o)) != nil {
		return nil, false
	}
	o.Envelope().Name, o.Envelope().Mesh = "a", "default"
	return d.Prepare(o), true
}

// required calls a function after each removal of one required field.
func required(v reflect.Value, path string, removed func(path string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			required(v.Elem(), path, removed)
		}
	case reflect.Slice:
		for i := range v.Len() {
			required(v.Index(i), path, removed)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			field, at := v.Field(i), path+"."+f.Name
			required(field, at, removed)
			if resource.RulesOf(f).Required && !field.IsZero() {
				before := reflect.New(f.Type).Elem()
				before.Set(field)
				field.SetZero()
				removed(at)
				field.Set(before)
			}
		}
	}
}
