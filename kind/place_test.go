package kind

import (
	"reflect"
	"strings"
	"testing"
)

// TestFieldRulesNameFields: the prefix of each rule about fields is the path of a field of the kind's confs.
func TestFieldRulesNameFields(t *testing.T) {
	for _, of := range Policies() {
		rules := reflect.ValueOf(of).Elem().FieldByName("Fields")
		for i := range rules.Len() {
			prefix := rules.Index(i).FieldByName("Prefix").String()
			at := reflect.TypeOf(of.Conf())
			for name := range strings.SplitSeq(strings.TrimRight(prefix, ".["), ".") {
				at = fieldType(at, name)
			}
			if at == nil {
				t.Errorf("%s has a rule about %q, which is no field of %T", of.Describe().Name, prefix, of.Conf())
			}
		}
	}
}

// fieldType returns the type of a field by its name in JSON; nil: there is none.
func fieldType(of reflect.Type, name string) reflect.Type {
	if of == nil || name == "" {
		return of
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	for _, f := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && strings.EqualFold(f.Name, name) {
			return f.Type
		}
	}
	return nil
}
