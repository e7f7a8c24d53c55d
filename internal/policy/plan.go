package policy

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Keyed is the type of a key field whose equality is not that of its Go value. Equal keys have the same text.
type Keyed interface {
	MergeKey() string
}

// planner walks the type of a conf once. It has the objects that it has seen, since types may contain themselves.
type planner map[reflect.Type]*object

func (p planner) object(t reflect.Type) (*object, error) {
	if seen := p[t]; seen != nil {
		return seen, nil
	}
	o := &object{}
	p[t] = o
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch inlined := f.Anonymous && name == ""; {
		case inlined && f.Type.Kind() == reflect.Struct:
			continue // its fields are visible too
		case inlined, !f.IsExported():
			return nil, fmt.Errorf("%s.%s is neither an exported field nor an embedded struct", t, f.Name)
		case name == "":
			name = f.Name
		}
		planned := field{name: name, index: f.Index}
		var err error
		if planned.absent, err = absence(f.Type); err == nil {
			planned.merger, err = p.field(f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		o.fields = append(o.fields, planned)
	}
	return o, nil
}

// absence returns how to see that a field of a type is absent.
func absence(t reflect.Type) (func(reflect.Value) bool, error) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return reflect.Value.IsNil, nil
	case reflect.String:
		return func(v reflect.Value) bool { return v.Len() == 0 }, nil
	case reflect.Struct:
		if !scalar(t) {
			return func(reflect.Value) bool { return false }, nil
		}
	}
	return nil, fmt.Errorf("%s cannot be absent; use a pointer", t)
}

var (
	jsonScalar = reflect.TypeFor[json.Unmarshaler]()
	textScalar = reflect.TypeFor[encoding.TextUnmarshaler]()
	keyedType  = reflect.TypeFor[Keyed]()
)

// scalar reports whether a type has a written form of its own.
func scalar(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(jsonScalar) || reflect.PointerTo(t).Implements(textScalar)
}

func (p planner) field(f reflect.StructField) (merger, error) {
	tag, tagged := f.Tag.Lookup("merge")
	key, isKeyed := strings.CutPrefix(tag, "key=")
	switch {
	case !tagged:
		return p.value(f.Type)
	case f.Type.Kind() != reflect.Slice:
		return nil, fmt.Errorf("the tag merge:%q is for lists", tag)
	case tag == "append", tag == "prepend":
		return joined{laterFirst: tag == "prepend"}, nil
	case isKeyed:
		return p.keyed(f.Type.Elem(), key)
	}
	return nil, fmt.Errorf("the tag merge:%q is unknown", tag)
}

func (p planner) value(t reflect.Type) (merger, error) {
	switch {
	case scalar(t):
		return replacement{}, nil
	case t.Kind() == reflect.Struct:
		return p.object(t)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		values, err := p.value(t.Elem())
		return mapping{values}, err
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && !scalar(t.Elem()):
		to, err := p.object(t.Elem())
		return pointer{to}, err
	}
	return replacement{}, nil
}

func (p planner) keyed(item reflect.Type, key string) (merger, error) {
	if item.Kind() != reflect.Struct {
		return nil, fmt.Errorf("items of %s have no fields", item)
	}
	o, err := p.object(item)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(o.fields, func(f field) bool { return f.name == key })
	if i < 0 {
		return nil, fmt.Errorf("items of %s have no field %q", item, key)
	}
	index := o.fields[i].index
	text, err := keyText(item.FieldByIndex(index).Type)
	if err != nil {
		return nil, fmt.Errorf("the key %q: %w", key, err)
	}
	return keyed{func(item reflect.Value) string { return text(item.FieldByIndex(index)) }, o}, nil
}

// keyText returns how to make the text of a key of a type. A list is a set: its order does not count.
func keyText(t reflect.Type) (func(reflect.Value) string, error) {
	switch {
	case t.Implements(keyedType):
		return func(v reflect.Value) string { return v.Interface().(Keyed).MergeKey() }, nil
	case t.Kind() == reflect.String:
		return reflect.Value.String, nil
	case t.Kind() != reflect.Slice:
		return nil, fmt.Errorf("%s is neither a string nor a policy.Keyed, nor a list of these", t)
	}
	one, err := keyText(t.Elem())
	return func(v reflect.Value) string {
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprintf("%q", one(v.Index(i)))
		}
		slices.Sort(texts)
		return strings.Join(slices.Compact(texts), ",")
	}, err
}
