package kind

import (
	"bytes"
	"encoding/pem"
	"reflect"
	"sync"

	"weft/resource"
)

// hiddenKey stands for a private key that a reader may not read. No write stores it.
const hiddenKey = "***"

// hiddenKeyWritten is the problem of a written [hiddenKey].
const hiddenKeyWritten = "stands for a value that was not shown to its reader, who may not read Secrets; write the " +
	"value, or refer to a Secret"

// HidePrivateKeys returns a resource with asterisks for each inline value that is more than certificates, such as the
// private key of a CA. It returns the resource itself where it has no such value, and does not change it.
func HidePrivateKeys(o resource.Any) resource.Any {
	if !kindsWithSources()[o.Key().Kind] {
		return o
	}
	shown := resource.Clone(o)
	hidden := false
	visitSources(reflect.ValueOf(resource.SpecOf(shown)), "", false, func(_ string, _ bool, source any) {
		switch source := source.(type) {
		case *DataSource:
			if value := source.Value(); value != "" && !isCertificates([]byte(value)) {
				source.InsecureInline.Value, hidden = hiddenKey, true
			}
		case *LegacyDataSource:
			if value := source.Value(); len(value) > 0 && !isCertificates(value) {
				source.Inline, source.InlineString, hidden = nil, hiddenKey, true
			}
		}
	})
	if !hidden {
		return o
	}
	return shown
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
