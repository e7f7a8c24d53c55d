// Package interned has values of any type that are equal where their JSON is, of the size of a pointer. So a list, a
// map or a tree is a part of a key. A value is decoded once for all readers, so no caller may change what it gets.
package interned

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"weak"
)

// Value is a T by its JSON. Values of the same JSON are equal, in every goroutine. The zero value is none.
type Value[T any] struct{ of *entry[T] }

// entry is what all equal values point to.
type entry[T any] struct {
	text   string
	decode func() T // once
}

// key is the key of an entry: values of two types are two entries.
type key[T any] struct{ text string }

// entries has a weak pointer to the entry of each [key], as long as a [Value] has the entry.
var entries sync.Map

// Make returns the value of v. It keeps nothing of v, which may change afterwards. It panics where v has no JSON.
func Make[T any](v T) Value[T] {
	raw, err := json.Marshal(v) // maps are written in the order of their keys
	if err != nil {
		panic(fmt.Sprintf("interned: a %T has no written form: %v", v, err))
	}
	k := key[T]{string(raw)}
	for {
		if found, ok := entries.Load(k); ok {
			if e := found.(weak.Pointer[entry[T]]).Value(); e != nil {
				return Value[T]{e}
			}
			entries.CompareAndDelete(k, found) // its cleanup has not run yet
		}
		e := newEntry[T](k.text)
		pointer := weak.Make(e)
		if _, loaded := entries.LoadOrStore(k, pointer); !loaded {
			runtime.AddCleanup(e, func(k key[T]) { entries.CompareAndDelete(k, pointer) }, k)
			return Value[T]{e}
		}
	}
}

func newEntry[T any](text string) *entry[T] {
	return &entry[T]{text, sync.OnceValue(func() (decoded T) {
		if err := json.Unmarshal([]byte(text), &decoded); err != nil {
			panic(fmt.Sprintf("interned: a %T cannot be read: %v", decoded, err)) // it was written from the same type
		}
		return decoded
	})}
}

// Get returns the T, which no caller may change; the zero T for the zero value.
func (v Value[T]) Get() (none T) {
	if v.of == nil {
		return none
	}
	return v.of.decode()
}

// String returns the JSON; "" for the zero value.
func (v Value[T]) String() string {
	if v.of == nil {
		return ""
	}
	return v.of.text
}

// MarshalText implements encoding.TextMarshaler.
func (v Value[T]) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
