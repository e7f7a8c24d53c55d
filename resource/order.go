package resource

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// inOrder sorts the problems of an object by the place of their fields in its document: those of the envelope first,
// those of a value before those of its parts, and the one that says that there are more at the end. Several problems of
// a field keep their order.
func inOrder(problems Problems, info *Info, spec reflect.Type) {
	if len(problems) < 2 {
		return
	}
	places := make(map[string]place, len(problems))
	for _, p := range problems {
		places[p.Field] = placeOf(p.Field, info, spec)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return slices.CompareFunc(places[a.Field], places[b.Field], func(a, b step) int {
			return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.name, b.name))
		})
	})
}

// place is the steps to a field: the position of a field in its struct or of an item in its list, or the name of an
// entry of a map.
type place []step

type step struct {
	n    int
	name string
}

func placeOf(field string, info *Info, spec reflect.Type) place {
	if field == "" {
		return place{{n: math.MaxInt}}
	}
	names := strings.FieldsFunc(field, func(c rune) bool { return c == '.' || c == '[' || c == ']' })
	head := []string{"type", "mesh", "name", "labels"}
	t, at := spec, place{{n: len(head)}}
	if i := slices.Index(head, names[0]); i >= 0 {
		t, at[0].n = nil, i
	} else if !info.Flat && names[0] == "spec" {
		names = names[1:]
	}
	for _, name := range names {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		next := step{n: math.MaxInt, name: name}
		switch {
		case t == nil:
		case t.Kind() == reflect.Struct:
			next.n, t = fieldNamed(t, name)
		case t.Kind() == reflect.Slice:
			if i, err := strconv.Atoi(name); err == nil {
				next.n = i
			}
			t = t.Elem()
		default:
			t = nil
		}
		at = append(at, next)
	}
	return at
}

// fieldNamed returns the position and the type of a field of a struct by its name in a document; those of embedded
// structs have places behind that of the struct.
func fieldNamed(t reflect.Type, name string) (int, reflect.Type) {
	const embedded = 1000 // more than a struct has fields
	for i := range t.NumField() {
		f := t.Field(i)
		of, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case of == name:
			return i * embedded, f.Type
		case f.Anonymous && of == "":
			if n, inner := fieldNamed(f.Type, name); inner != nil {
				return i*embedded + n/embedded, inner
			}
		}
	}
	return math.MaxInt, nil
}
