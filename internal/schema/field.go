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
	Path    string // as a problem names it, with [] for any item of a list
	Type    string // for people: "string", "list of strings", "Enabled, Disabled"
	Bound   string // how large the value may be, for people; "" where its type says it
	Default string // "" where there is none, or the meaning says it
	Meaning string

	Required, ReadOnly, Deprecated bool
}

// Fields are those that users write, and those of the status after them.
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

// fieldsOf lists a field and then what is in it.
func fieldsOf(t reflect.Type, prefix string) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		rules := rulesOf(f)
		path := prefix + jsonName(f)
		fields = append(fields, Field{
			Path: path, Type: plainType(f.Type, &rules), Bound: boundText(f.Type, &rules), Default: rules.fallback,
			Meaning:  comment(t, f),
			Required: rules.required, ReadOnly: rules.readonly, Deprecated: rules.deprecated,
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

// isScalar says whether a struct is written as one value.
func isScalar(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{reflect.TypeFor[kind.Time](), reflect.TypeFor[kind.PortRef]()}, t)
}

func plainType(t reflect.Type, r *rules) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case len(r.enum) > 0:
		return strings.Join(r.enum, ", ")
	case t == reflect.TypeFor[kind.Duration]():
		return "duration"
	case t == reflect.TypeFor[kind.Time]():
		return "time"
	case t == reflect.TypeFor[kind.PortRef]():
		return "port or name"
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	case r.ip:
		return "IP address"
	case r.host:
		return "IP address or host name"
	case r.port:
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

// boundText is the bound of a field in words.
func boundText(t reflect.Type, r *rules) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := r.bound
	var words []string
	switch {
	case t == reflect.TypeFor[[]byte]():
		return atMost(b.Length, "bytes")
	case t.Kind() == reflect.Slice:
		words = append(words, atMost(b.Items, "items"))
	case t.Kind() == reflect.Map:
		words = append(words, atMost(b.Properties, "entries"))
	}
	if text := elem(t); text.Kind() == reflect.String && len(r.enum) == 0 && !r.ip {
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
