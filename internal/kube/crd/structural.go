package crd

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weft/internal/schema"
	"weft/resource"
)

// Structural is a structural schema: the part of JSON Schema that the API server reads, and its own words.
type Structural struct {
	Type        string `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
	Default     any    `json:"default,omitempty"`

	Enum      []string `json:"enum,omitempty"`
	Format    string   `json:"format,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	MaxLength int      `json:"maxLength,omitempty"`
	Minimum   *int     `json:"minimum,omitempty"`
	Maximum   *int     `json:"maximum,omitempty"`

	Items    *Structural `json:"items,omitempty"`
	MinItems int         `json:"minItems,omitempty"`
	MaxItems int         `json:"maxItems,omitempty"`

	Properties    map[string]*Structural `json:"properties,omitempty"`
	Additional    *Structural            `json:"additionalProperties,omitempty"`
	Required      []string               `json:"required,omitempty"`
	MinProperties int                    `json:"minProperties,omitempty"`
	MaxProperties int                    `json:"maxProperties,omitempty"`

	AnyOf []*Structural `json:"anyOf,omitempty"`

	IntOrString     bool   `json:"x-kubernetes-int-or-string,omitempty"`
	PreserveUnknown bool   `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	Rules           []Rule `json:"x-kubernetes-validations,omitempty"`
}

// Rule is a rule in CEL.
type Rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// structural returns the schema in the API server's words. defaults are the defaults of the value's fields that do not
// depend on other fields.
func structural(s *schema.Schema, defaults *fieldDefaults) *Structural {
	out := &Structural{
		Type: s.Type, Description: s.Description, Enum: s.Enum, Format: s.Format, Pattern: s.Pattern,
		MaxLength: s.MaxLength, Minimum: s.Minimum, Maximum: s.Maximum, MinItems: s.MinItems, MaxItems: s.MaxItems,
		Required: s.Required, MinProperties: s.MinProperties, MaxProperties: s.MaxProperties,
	}
	switch {
	case s.Type == "":
		out.untyped(s)
	case len(s.AnyOf) > 0:
		for _, one := range s.AnyOf {
			out.AnyOf = append(out.AnyOf, &Structural{Format: one.Format, Pattern: one.Pattern})
		}
	}
	if s.Items != nil {
		out.Items = structural(s.Items, defaults.of("[]"))
	}
	if values, ok := s.Additional.(*schema.Schema); ok {
		out.Additional = structural(values, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if out.Properties == nil {
			out.Properties = map[string]*Structural{}
		}
		field := structural(s.Properties[name], defaults.of(name))
		field.Default = defaults.value(name)
		out.Properties[name] = field
	}
	if s.MinProperties == 1 && s.MaxProperties == 1 && len(s.Properties) > 0 {
		out.MinProperties, out.MaxProperties, out.Rules = 0, 0, []Rule{exactlyOne(out.Properties)}
	}
	return out
}

// untyped writes a value of several types. The API server has one for a number or a text; it cannot check a fraction
// or a text, nor any value.
func (out *Structural) untyped(s *schema.Schema) {
	for _, one := range s.AnyOf {
		if one.Type == "integer" {
			out.IntOrString, out.Minimum, out.Maximum = true, one.Minimum, one.Maximum
		}
	}
	for _, one := range s.AnyOf {
		if one.Type == "string" && out.IntOrString {
			out.Pattern = one.Pattern
		}
	}
	out.PreserveUnknown = !out.IntOrString
}

// exactlyOne is the rule for an object that has one of its fields.
func exactlyOne(fields map[string]*Structural) Rule {
	names := slices.Sorted(maps.Keys(fields))
	var has []string
	for _, name := range names {
		has = append(has, "has(self."+name+")")
	}
	return Rule{
		Rule:    "[" + strings.Join(has, ", ") + "].exists_one(x, x)",
		Message: "must have exactly one of " + strings.Join(names, ", "),
	}
}

// preserveUnknown keeps fields that this release does not know, at any depth.
func (out *Structural) preserveUnknown() {
	if out == nil {
		return
	}
	if out.Type == "object" && out.Additional == nil {
		out.PreserveUnknown = true
	}
	out.Items.preserveUnknown()
	out.Additional.preserveUnknown()
	for _, field := range out.Properties {
		field.preserveUnknown()
	}
}

// fieldDefaults are the defaults below one place of a kind's spec. A nil one has none.
type fieldDefaults struct {
	kind resource.Descriptor
	path []string
	// fields has the schema of the place.
	fields *schema.Schema
}

func defaultsOf(d resource.Descriptor, spec *schema.Schema) *fieldDefaults {
	return &fieldDefaults{kind: d, fields: spec}
}

// of returns the defaults below a field, or with "[]" below the items of a list.
func (f *fieldDefaults) of(name string) *fieldDefaults {
	if f == nil {
		return nil
	}
	below := f.fields.Properties[name]
	if name == "[]" {
		below = f.fields.Items
	}
	return &fieldDefaults{f.kind, append(slices.Clone(f.path), name), below}
}

// value returns the default of a field if admission sets it, whatever stands beside it. A field whose absence has a
// meaning of its own, such as "as a less specific policy says", has a documented default that admission does not set.
func (f *fieldDefaults) value(name string) any {
	if f == nil || f.fields.Properties[name].Default == nil {
		return nil
	}
	want := f.fields.Properties[name].Default
	o := f.kind.New()
	written, _ := json.Marshal(along(f.path, map[string]any{}))
	if json.Unmarshal(written, resource.SpecOf(o)) != nil {
		return nil
	}
	f.kind.Prepare(o)
	var prepared any
	read, _ := json.Marshal(resource.SpecOf(o))
	_ = json.Unmarshal(read, &prepared)
	if got := at(prepared, append(slices.Clone(f.path), name)); !equalJSON(got, want) {
		return nil
	}
	return want
}

// along returns a document that has a value at a path.
func along(path []string, value any) any {
	switch {
	case len(path) == 0:
		return value
	case path[0] == "[]":
		return []any{along(path[1:], value)}
	}
	return map[string]any{path[0]: along(path[1:], value)}
}

// at returns the value at a path of a document, or nil.
func at(document any, path []string) any {
	for _, name := range path {
		switch in := document.(type) {
		case map[string]any:
			document = in[name]
		case []any:
			if len(in) == 0 {
				return nil
			}
			document = in[0]
		default:
			return nil
		}
	}
	return document
}

func equalJSON(a, b any) bool {
	raw, _ := json.Marshal(b)
	var decoded any
	return json.Unmarshal(raw, &decoded) == nil && reflect.DeepEqual(a, decoded)
}
