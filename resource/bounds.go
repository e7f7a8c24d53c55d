package resource

import (
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits of a written resource of any kind. The limits of single fields are in their tag `schema`; see [Rules].
const (
	// MaxBytes is the size of a resource's document, and of its stored body, unless its kind says otherwise.
	MaxBytes = 1 << 20
	// MaxElements is the maximum number of fields and list items of a document. An alias of YAML counts as the nodes
	// that it expands to.
	MaxElements = 16_384
	// MaxDepth is the maximum depth of nested lists and mappings.
	MaxDepth = 32
	// MaxLabels is the maximum number of labels of a resource, including those that the control plane sets, of a
	// selector of labels, and of the tags of an inbound.
	MaxLabels = 64
	// MaxProblems is the maximum number of listed problems of one resource.
	MaxProblems = 100
)

// Bytes returns the maximum size of a document of the kind.
func (i *Info) Bytes() int {
	if i.MaxBytes > 0 {
		return i.MaxBytes
	}
	return MaxBytes
}

// innermost returns the element type of a pointer, list or mapping. For base64 it is the list of bytes.
func innermost(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Map || t.Kind() == reflect.Slice &&
		t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	return t
}

// labelsBound is the limit of a resource's labels.
var labelsBound = Bound{Properties: MaxLabels, Length: 253, Name: 317}

// boundedField is a field of a struct with its limits, and whether its value is secret.
type boundedField struct {
	t      reflect.Type
	bound  Bound
	secret bool
}

var boundedStructs sync.Map // map[string]boundedField by reflect.Type

// fieldsByName returns the fields of a struct by their names in JSON, including those of embedded structs.
func fieldsByName(t reflect.Type) map[string]boundedField {
	if known, ok := boundedStructs.Load(t); ok {
		return known.(map[string]boundedField)
	}
	fields := map[string]boundedField{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for inner, field := range fieldsByName(f.Type) {
				fields[inner] = field
			}
			continue
		}
		rules := RulesOf(f)
		fields[name] = boundedField{f.Type, rules.Bound, rules.Secret}
	}
	boundedStructs.Store(t, fields)
	return fields
}

// within adds a problem where a value exceeds its limit, and reports whether it does not. It skips the items of a list
// that is too long.
func (c *checker) within(v any, b Bound, shown string) bool {
	at := strings.TrimSuffix(shown, ".")
	switch v := v.(type) {
	case []any:
		if b.Items > 0 && len(v) > b.Items {
			c.problems.Add(at, "has %d items, want %d at most", len(v), b.Items)
			return false
		}
	case map[string]any:
		if b.Properties > 0 && len(v) > b.Properties {
			c.problems.Add(at, "has %d entries, want %d at most", len(v), b.Properties)
			return false
		}
		for name := range v {
			if b.Name > 0 && len(name) > b.Name {
				c.problems.Add(at, "has a name of %d characters, want %d at most", len(name), b.Name)
				return false
			}
		}
	case string:
		if b.Length > 0 && len(v) > b.Length && utf8.RuneCountInString(v) > b.Length {
			c.problems.Add(at, "has %d characters, want %d at most", utf8.RuneCountInString(v), b.Length)
			return false
		}
	}
	return true
}

// Base64Length returns the maximum length of base64 for n bytes, with line breaks.
func Base64Length(n int) int { return (n+2)/3*4*66/64 + 8 }

// CheckBody returns Invalid for a stored body of another control plane that exceeds the limits of the kind and its
// fields. Fields that this release does not know count for size and depth only.
func CheckBody(d Descriptor, body []byte) error {
	info := d.Describe()
	if len(body) > info.Bytes() {
		return Errorf(Invalid, "the %s has %d bytes, at most %d are taken", info.Name, len(body), info.Bytes())
	}
	if _, depth := scanJSON(body); depth > MaxDepth+2 {
		return Errorf(Invalid, "the %s is nested %d deep, at most %d are taken", info.Name, depth, MaxDepth)
	}
	var stored struct {
		Labels map[string]any `json:"labels"`
		Spec   any            `json:"spec"`
	}
	if err := unmarshal(body, &stored); err != nil {
		return Errorf(Invalid, "the %s can't be read: %v", info.Name, err)
	}
	var problems Problems
	c := checker{problems: &problems, boundsOnly: true}
	c.check(stored.Labels, reflect.TypeFor[map[string]string](), labelsBound, "labels.", "")
	prefix := "spec."
	if info.Flat {
		prefix = ""
	}
	c.check(stored.Spec, reflect.TypeOf(d.New().spec()).Elem(), Bound{}, prefix, "")
	if len(problems) > 0 {
		return &Error{Code: Invalid, Detail: "the " + info.Name + " is larger than it may be", Problems: problems}
	}
	return nil
}
