// Package schema describes the kinds to those who write them: a JSON Schema of each (draft 2020-12), an
// OpenAPI document of the API's paths for them (3.1), and their pages in the documentation.
//
// All of it is made of the Go types in package kind: names and types of fields by reflection, what they are
// for from their comments, what they may hold from their tag `schema`. A schema takes whatever validation
// takes, in the form in which the API answers it; what only validation knows (two fields that contradict
// each other, a name that is taken) it does not refuse.
package schema

import (
	"reflect"
	"regexp"
	"strings"

	"weft/kind"
	"weft/resource"
)

//go:generate go run -C ../../tools ./gencomments ../kind ../internal/schema/comments.go
//go:generate go test -run "TestPagesAreCurrent|TestBoundsPageIsCurrent" . -update

// Draft is the dialect of every schema here.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON Schema, as far as the kinds need it.
type Schema struct {
	Draft       string `json:"$schema,omitempty"`
	ID          string `json:"$id,omitempty"`
	Ref         string `json:"$ref,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Deprecated  bool   `json:"deprecated,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`

	Type    string   `json:"type,omitempty"`
	Const   string   `json:"const,omitempty"`
	Enum    []string `json:"enum,omitempty"`
	Default any      `json:"default,omitempty"`

	Format          string `json:"format,omitempty"`
	Pattern         string `json:"pattern,omitempty"`
	ContentEncoding string `json:"contentEncoding,omitempty"`
	MaxLength       int    `json:"maxLength,omitempty"`

	Minimum *int `json:"minimum,omitempty"`
	Maximum *int `json:"maximum,omitempty"`

	Items    *Schema `json:"items,omitempty"`
	MinItems int     `json:"minItems,omitempty"`
	MaxItems int     `json:"maxItems,omitempty"`

	Properties    map[string]*Schema `json:"properties,omitempty"`
	PropertyNames *Schema            `json:"propertyNames,omitempty"`
	Additional    any                `json:"additionalProperties,omitempty"` // false, or a *Schema
	Required      []string           `json:"required,omitempty"`
	MinProperties int                `json:"minProperties,omitempty"`
	MaxProperties int                `json:"maxProperties,omitempty"`

	AnyOf []*Schema `json:"anyOf,omitempty"`
	If    *Schema   `json:"if,omitempty"`
	Then  *Schema   `json:"then,omitempty"`
	Else  *Schema   `json:"else,omitempty"`

	Defs map[string]*Schema `json:"$defs,omitempty"`
}

// builder makes the schemas of Go types, each once.
type builder struct {
	prefix string // of references to them
	defs   map[string]*Schema
}

// of answers the schema of a type: a reference where it is a struct.
func (b *builder) of(t reflect.Type) *Schema {
	switch t {
	case reflect.TypeFor[kind.Duration]():
		return &Schema{Type: "string", Pattern: kind.Patterns["duration"].String()}
	case reflect.TypeFor[kind.Time]():
		return &Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[kind.PortRef]():
		return &Schema{AnyOf: []*Schema{portNumber(), {Type: "string", Pattern: kind.Patterns["section"].String()}}}
	case reflect.TypeFor[[]byte]():
		return &Schema{Type: "string", ContentEncoding: "base64", Pattern: base64Pattern}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.of(t.Elem())
	case reflect.Struct:
		return b.reference(t)
	case reflect.Slice:
		return &Schema{Type: "array", Items: b.of(t.Elem())}
	case reflect.Map:
		return &Schema{Type: "object", Additional: b.of(t.Elem())}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.String:
		return &Schema{Type: "string"}
	}
	return &Schema{Type: "integer", Minimum: number(0)}
}

// base64Pattern is that of at least one byte, over several lines if need be.
const base64Pattern = `^[A-Za-z0-9+/\r\n]+={0,2}[\r\n]*$`

func number(n int) *int { return &n }

func portNumber() *Schema {
	return &Schema{Type: "integer", Minimum: number(1), Maximum: number(65535)}
}

// reference answers a reference to a struct's schema.
func (b *builder) reference(t reflect.Type) *Schema {
	name := t.Name()
	if b.defs[name] == nil {
		b.defs[name] = &Schema{} // a name is taken before the fields are looked at
		*b.defs[name] = *b.object(t)
	}
	return &Schema{Ref: b.prefix + name}
}

func (b *builder) object(t reflect.Type) *Schema {
	o := &Schema{Type: "object", Description: describe(t.Name()), Properties: map[string]*Schema{}, Additional: false}
	for i := range t.NumField() {
		f := t.Field(i)
		name := jsonName(f)
		rules := resource.RulesOf(f)
		o.Properties[name] = b.field(t, f, &rules)
		if rules.Required {
			o.Required = append(o.Required, name)
		}
	}
	return o
}

func (b *builder) field(t reflect.Type, f reflect.StructField, rules *resource.Rules) *Schema {
	s := b.of(f.Type)
	narrow(s, rules)
	s.Description = comment(t, f)
	return s
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// comment is that of a field of the struct t, or of the field's type where it has none.
func comment(t reflect.Type, f reflect.StructField) string {
	if text := describe(t.Name() + "." + f.Name); text != "" {
		return about(text, f.Name, jsonName(f)+" ")
	}
	inner := elem(f.Type).Name()
	return about(describe(inner), inner, "")
}

// about leaves out how a comment of Go begins, "Name is": whoever reads it sees the name beside it. Where
// another verb follows the name, otherwise stands for it.
func about(text, name, otherwise string) string {
	for _, verb := range []string{"is", "are", "says"} {
		if rest, found := strings.CutPrefix(text, name+" "+verb+" "); found {
			return strings.TrimSuffix(rest, ".")
		}
	}
	if rest, found := strings.CutPrefix(text, name+" "); found {
		text = otherwise + rest
	}
	return strings.TrimSuffix(text, ".")
}

// elem is what a pointer, list or map is of.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

var goLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// describe answers a comment, without the marks of Go's links.
func describe(name string) string { return goLink.ReplaceAllString(comments[name], "$1") }

// specType is the Go type of a kind's spec.
func specType(d resource.Descriptor) reflect.Type {
	return reflect.TypeOf(resource.SpecOf(d.New())).Elem()
}
