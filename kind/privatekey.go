package kind

import (
	"bytes"
	"encoding/pem"
	"reflect"
	"sync"

	"weft/resource"
)

// hiddenKey stands for a private key that a reader may not read. A write of it keeps the stored value of the field.
const hiddenKey = "***"

// hiddenKeyWritten is the problem of a written [hiddenKey] where the stored resource has no hidden value.
const hiddenKeyWritten = "stands for a value that was not shown to its reader, and there is none stored in this " +
	"field; write the value, or refer to a Secret"

// HidePrivateKeys returns a resource with asterisks for each inline value that is more than certificates, such as the
// private key of a CA. It returns the resource itself where it has no such value, and does not change it.
func HidePrivateKeys(o resource.Any) resource.Any {
	if !kindsWithSources()[o.Key().Kind] {
		return o
	}
	shown := resource.Clone(o)
	hidden := false
	visitSources(reflect.ValueOf(resource.SpecOf(shown)), "", false, func(_ string, _ bool, source any) {
		if !isHidden(source) {
			return
		}
		hidden = true
		switch source := source.(type) {
		case *DataSource:
			source.InsecureInline.Value = hiddenKey
		case *LegacyDataSource:
			source.Inline, source.InlineString = nil, hiddenKey
		}
	})
	if !hidden {
		return o
	}
	return shown
}

// isHidden reports whether a source has an inline value that is more than certificates.
func isHidden(source any) bool {
	var value []byte
	switch source := source.(type) {
	case *DataSource:
		value = []byte(source.Value())
	case *LegacyDataSource:
		value = source.Value()
	}
	return len(value) > 0 && !isCertificates(value)
}

// KeepPrivateKeys replaces asterisks of [HidePrivateKeys] by the values that the stored resource has in the same
// fields, so that a resource can be written as it was read. The stored resource may be nil.
func KeepPrivateKeys(stored, o resource.Any) {
	if stored == nil || !kindsWithSources()[o.Key().Kind] {
		return
	}
	hidden := map[string]any{}
	visitSources(reflect.ValueOf(resource.SpecOf(stored)), "", false, func(at string, _ bool, source any) {
		if isHidden(source) {
			hidden[at] = source
		}
	})
	visitSources(reflect.ValueOf(resource.SpecOf(o)), "", false, func(at string, _ bool, source any) {
		switch source := source.(type) {
		case *DataSource:
			if was, ok := hidden[at].(*DataSource); ok && source.Value() == hiddenKey {
				*source = *was
			}
		case *LegacyDataSource:
			if was, ok := hidden[at].(*LegacyDataSource); ok && source.InlineString == hiddenKey {
				*source = *was
			}
		}
	})
}

// isCertificates reports whether a text has certificates in PEM and nothing else.
func isCertificates(text []byte) bool {
	for {
		block, rest := pem.Decode(text)
		switch {
		case block == nil:
			return len(bytes.TrimSpace(text)) == 0
		case block.Type != "CERTIFICATE":
			return false
		}
		text = rest
	}
}

// kindsWithSources returns the kinds that users read and whose specs have a field of a source.
var kindsWithSources = sync.OnceValue(func() map[string]bool {
	kinds := map[string]bool{}
	for _, d := range All() {
		if info := d.Describe(); !info.Hidden {
			kinds[info.Name] = hasSource(reflect.TypeOf(resource.SpecOf(d.New())), map[reflect.Type]bool{})
		}
	}
	return kinds
})

// hasSource reports whether values of a type may contain a source. seen are the types that were examined.
func hasSource(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return hasSource(t.Elem(), seen)
	case reflect.Struct:
		if t == dataSourceType || t == legacyDataSourceType {
			return true
		}
		for i := range t.NumField() {
			if hasSource(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
