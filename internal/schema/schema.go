// Package schema describes the kinds to the authors of resources. It has a JSON Schema of each kind (draft 2020-12), an
// OpenAPI document of the API's paths (3.1), and the pages of the documentation.
//
// The Go types in package kind are the source: reflection gives the names and types of fields, the doc comments their
// meaning, and the tag `schema` their rules. A schema accepts every document that validation accepts, in the form in
// which the API returns it. It does not reject errors that only validation can find, such as two fields that contradict
// each other or a name that exists already.
package schema

import (
	"reflect"
	"regexp"
	"strings"

	"weft/kind"
	"weft/resource"
)

//go:generate go run -C ../../tools ./gencomments ../kind ../internal/schema/comments.go
//go:generate go test -run "TestPagesAreCurrent|TestBoundsPageIsCurrent|TestKumaFieldsAreCurrent" . -update

// Draft is the dialect of every schema here.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON Schema, with the keywords that the kinds need.
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

// builder builds the schemas of Go types, each one once.
type builder struct {
	prefix string // of references to the definitions
	defs   map[string]*Schema
}

// of returns the schema of a type. For a struct, it is a reference to the definition.
func (b *builder) of(t reflect.Type) *Schema {
	switch t {
	case reflect.TypeFor[kind.Duration]():
		return &Schema{Type: "string", Pattern: kind.Patterns["duration"].String()}
	case reflect.TypeFor[kind.Time]():
		return &Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[kind.PortRef]():
		return &Schema{AnyOf: []*Schema{portNumber(), {Type: "string", Pattern: kind.Patterns["section"].String()}}}
	case reflect.TypeFor[kind.AnyValue]():
		return &Schema{}
	case reflect.TypeFor[kind.Decimal]():
		return &Schema{AnyOf: []*Schema{{Type: "number"}, {Type: "string", Pattern: kind.DecimalText}}}
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

// base64Pattern matches the encoding of at least one byte, which may have several lines.
const base64Pattern = `^[A-Za-z0-9+/\r\n]+={0,2}[\r\n]*$`

func number(n int) *int { return &n }

func portNumber() *Schema {
	return &Schema{Type: "integer", Minimum: number(1), Maximum: number(65535)}
}

// reference returns a reference to the schema of a struct, and adds the definition if it is missing.
func (b *builder) reference(t reflect.Type) *Schema {
	name := typeName(t)
	if argument := argumentName(t); argument != "" {
		name += "." + argument
	}
	if b.defs[name] == nil {
		b.defs[name] = &Schema{} // before the fields, which may refer to the same struct
		*b.defs[name] = *b.object(t)
	}
	return &Schema{Ref: b.prefix + name}
}

func (b *builder) object(t reflect.Type) *Schema {
	o := &Schema{
		Type:        "object",
		Description: describe(typeName(t)),
		Properties:  map[string]*Schema{},
		Additional:  false,
	}
	for _, f := range writtenFields(t) {
		name := jsonName(f.StructField)
		rules := resource.RulesOf(f.StructField)
		o.Properties[name] = b.field(f.of, f.StructField, &rules)
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

// structField is a field of a struct, which may be embedded in another one.
type structField struct {
	of reflect.Type
	reflect.StructField
}

// writtenFields returns the fields of a struct, with those of embedded structs in their place.
func writtenFields(t reflect.Type) []structField {
	var fields []structField
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && jsonName(f) == "" {
			fields = append(fields, writtenFields(f.Type)...)
		} else {
			fields = append(fields, structField{t, f})
		}
	}
	return fields
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// typeName returns the name of a type, without the arguments of a generic one.
func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// argumentName returns the name of the argument of a generic type, or "".
func argumentName(t reflect.Type) string {
	_, argument, _ := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "[")
	return argument[strings.LastIndex(argument, ".")+1:]
}

// comment returns the doc comment of a field of the struct t, or that of the field's type if the field has none.
func comment(t reflect.Type, f reflect.StructField) string {
	if text := describe(typeName(t) + "." + f.Name); text != "" {
		return about(text, f.Name, jsonName(f)+" ")
	}
	inner := typeName(elem(f.Type))
	return about(describe(inner), inner, "")
}

// about removes the beginning of a doc comment, "Name is", since the pages show the name beside the text. Where another
// verb follows the name, otherwise replaces the name. The full stop at the end is removed too.
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

// elem returns the element type of a pointer, a list or a map, however deep, and any other type itself.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

var goLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// describe returns a doc comment without the marks of Go's links, or "" if there is none.
func describe(name string) string { return goLink.ReplaceAllString(comments[name], "$1") }

// specType returns the Go type of a kind's spec.
func specType(d resource.Descriptor) reflect.Type {
	return reflect.TypeOf(resource.SpecOf(d.New())).Elem()
}
