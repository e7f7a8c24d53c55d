package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// Field is one field of a kind's documents.
type Field struct {
	Path    string // as in a problem document, with [] for any item of a list
	Type    string // for the pages: "string", "list", "Enabled, Disabled"
	Bound   string // the largest size of the value, for the pages; "" if the type implies it
	Default string // "" if there is none, or if the meaning has it
	Meaning string

	Required, ReadOnly, Deprecated bool
}

// Fields returns the fields that users write, and after them the fields of the status.
func Fields(d resource.Descriptor) []Field {
	prefix := "spec."
	if d.Describe().Flat {
		prefix = ""
	}
	fields := fieldsOf(specType(d), prefix)
	if status := kind.StatusKind(d.Describe().Name); status != nil {
		for _, f := range fieldsOf(specType(status), "status.") {
			f.ReadOnly = true
			fields = append(fields, f)
		}
	}
	return fields
}

// fieldsOf returns the fields of a struct, each one followed by the fields of its value.
func fieldsOf(t reflect.Type, prefix string) []Field {
	var fields []Field
	for _, f := range writtenFields(t) {
		rules := resource.RulesOf(f.StructField)
		path := prefix + jsonName(f.StructField)
		fields = append(fields, Field{
			Path: path, Type: plainType(f.Type, &rules), Bound: boundText(f.Type, &rules), Default: rules.Default,
			Meaning:  comment(f.of, f.StructField),
			Required: rules.Required, ReadOnly: rules.ReadOnly, Deprecated: rules.Deprecated,
		})
		if inner := elem(f.Type); inner.Kind() == reflect.Struct && !isScalar(inner) {
			fields = append(fields, fieldsOf(inner, path+listMark(f.Type)+".")...)
		}
	}
	return fields
}

func listMark(t reflect.Type) string {
	if t.Kind() == reflect.Slice {
		return "[]"
	}
	return ""
}

// isScalar reports whether a struct is written as one value.
func isScalar(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{reflect.TypeFor[kind.Time](), reflect.TypeFor[kind.PortRef]()}, t)
}

func plainType(t reflect.Type, r *resource.Rules) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case len(r.Enum) > 0:
		return strings.Join(r.Enum, ", ")
	case t == reflect.TypeFor[kind.Duration]():
		return "duration"
	case t == reflect.TypeFor[kind.Time]():
		return "time"
	case t == reflect.TypeFor[kind.Decimal]():
		return "number"
	case t == reflect.TypeFor[kind.AnyValue]():
		return "any"
	case t == reflect.TypeFor[kind.PortRef]():
		return "port or name"
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	case r.IP:
		return "IP address"
	case r.Host:
		return "IP address or host name"
	case r.Port:
		return "port"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list"
	case reflect.Struct, reflect.Map:
		return "mapping"
	case reflect.Bool:
		return "true, false"
	case reflect.String:
		return "string"
	}
	return "number"
}

// boundText returns the bound of a field in words, or "" if it has none.
func boundText(t reflect.Type, r *resource.Rules) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := r.Bound
	var words []string
	switch {
	case t == reflect.TypeFor[[]byte]():
		return atMost(b.Length, "bytes")
	case t.Kind() == reflect.Slice:
		words = append(words, atMost(b.Items, "items"))
	case t.Kind() == reflect.Map:
		words = append(words, atMost(b.Properties, "entries"))
	}
	if text := elem(t); text.Kind() == reflect.String && len(r.Enum) == 0 && !r.IP {
		words = append(words, atMost(b.Length, "characters"))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " of ")
}

func atMost(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, what)
}
