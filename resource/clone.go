package resource

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// Clone returns a copy that shares nothing with the object: what [FromBody] reads from its [Body], with the same
// metadata.
func Clone(o Any) Any { return o.clone() }

func (o *Object[S]) clone() Any {
	c := &Object[S]{Meta: o.Meta, kind: o.kind}
	copyOf(reflect.TypeFor[S]())(reflect.ValueOf(&c.Spec).Elem(), reflect.ValueOf(&o.Spec).Elem())
	c.Labels, c.Vouched = nil, Vouched{}
	if len(o.Labels) > 0 {
		copyOf(reflect.TypeFor[map[string]string]())(reflect.ValueOf(&c.Labels).Elem(),
			reflect.ValueOf(&o.Labels).Elem())
	}
	copyOf(reflect.TypeFor[Vouched]())(reflect.ValueOf(&c.Vouched).Elem(), reflect.ValueOf(&o.Vouched).Elem())
	return c
}

// copier sets a zero value to a copy of another value of its type.
type copier func(to, from reflect.Value)

var (
	copiers       sync.Map // copier by reflect.Type
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// copyOf returns the copier of a type.
func copyOf(t reflect.Type) copier {
	if known, ok := copiers.Load(t); ok {
		return known.(copier)
	}
	making := copierBuilder{}
	made := making.copierOf(t)
	for inner, done := range making {
		copiers.Store(inner, *done)
	}
	return made
}

// copierBuilder has the copiers of one type and of its inner types while they are made. No other goroutine sees them
// before all are complete.
type copierBuilder map[reflect.Type]*copier

// copierOf returns the copier of a type. A type that refers to itself is looked up when a value is copied.
func (b copierBuilder) copierOf(t reflect.Type) copier {
	if known, ok := copiers.Load(t); ok {
		return known.(copier)
	}
	if pending, ok := b[t]; ok {
		return func(to, from reflect.Value) { (*pending)(to, from) }
	}
	made := new(copier)
	b[t] = made
	*made = b.newCopier(t)
	return *made
}

func (b copierBuilder) newCopier(t reflect.Type) copier {
	if encodesItself(t) || encodesItself(reflect.PointerTo(t)) {
		return recoded
	}
	switch t.Kind() {
	case reflect.String:
		return copyString
	case reflect.Pointer:
		element := b.copierOf(t.Elem())
		return func(to, from reflect.Value) {
			if !from.IsNil() {
				to.Set(reflect.New(t.Elem()))
				element(to.Elem(), from.Elem())
			}
		}
	case reflect.Slice:
		return b.sliceCopier(t)
	case reflect.Map:
		return b.mapCopier(t)
	case reflect.Struct:
		return b.structCopier(t)
	case reflect.Bool, reflect.Float32, reflect.Float64, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32,
		reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return reflect.Value.Set
	}
	return recoded
}

func encodesItself(t reflect.Type) bool {
	return t.Implements(marshaler) || t.Implements(textMarshaler)
}

// recoded copies a value through JSON: of a type whose own encoding may change it, as a time loses its location. A
// value that JSON does not have stays as it is, so that [Body] fails for the copy too.
func recoded(to, from reflect.Value) {
	text, err := json.Marshal(from.Addr().Interface())
	if err != nil || json.Unmarshal(text, to.Addr().Interface()) != nil {
		to.Set(from)
	}
}

// copyString replaces bytes that are not UTF-8, as JSON does.
func copyString(to, from reflect.Value) {
	if text := from.String(); !utf8.ValidString(text) {
		to.SetString(string([]rune(text)))
		return
	}
	to.Set(from)
}

func (b copierBuilder) sliceCopier(t reflect.Type) copier {
	element := b.copierOf(t.Elem())
	return func(to, from reflect.Value) {
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		if t.Elem().Kind() == reflect.Uint8 {
			reflect.Copy(to, from)
			return
		}
		for i := range from.Len() {
			element(to.Index(i), from.Index(i))
		}
	}
}

func (b copierBuilder) mapCopier(t reflect.Type) copier {
	key, element := b.copierOf(t.Key()), b.copierOf(t.Elem())
	return func(to, from reflect.Value) {
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMapWithSize(t, from.Len()))
		for entries := from.MapRange(); entries.Next(); {
			k, v, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			readable := reflect.New(t.Key()).Elem()
			readable.Set(entries.Key())
			key(k, readable)
			value.Set(entries.Value())
			element(v, value)
			to.SetMapIndex(k, v)
		}
	}
}

// structCopier copies the fields that JSON has. It drops an empty list or map that JSON omits.
func (b copierBuilder) structCopier(t reflect.Type) copier {
	type field struct {
		index     int
		omitEmpty bool
		copy      copier
	}
	var fields []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" && options == "" {
			continue
		}
		fields = append(fields, field{f.Index[0], strings.Contains(","+options+",", ",omitempty,"), b.copierOf(f.Type)})
	}
	return func(to, from reflect.Value) {
		for _, f := range fields {
			value := from.Field(f.index)
			if k := value.Kind(); f.omitEmpty && (k == reflect.Slice || k == reflect.Map) && value.Len() == 0 {
				continue
			}
			f.copy(to.Field(f.index), value)
		}
	}
}
