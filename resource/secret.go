package resource

import "reflect"

// MaskSecrets replaces the values of the fields with the word `secret` ([Rules]) in a decoded document of a kind, in
// its Universal form.
func MaskSecrets(d Descriptor, document map[string]any, mask string) {
	spec := any(document)
	if !d.Describe().Flat {
		spec = document["spec"]
	}
	maskSecrets(spec, reflect.TypeOf(d.New().spec()).Elem(), mask)
}

func maskSecrets(v any, t reflect.Type, mask string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for _, item := range v {
				maskSecrets(item, t.Elem(), mask)
			}
		}
	case map[string]any:
		switch {
		case t.Kind() == reflect.Map:
			for _, value := range v {
				maskSecrets(value, t.Elem(), mask)
			}
		case isObject(t):
			maskFields(v, t, mask)
		}
	}
}

func maskFields(object map[string]any, t reflect.Type, mask string) {
	known := fieldsByName(t)
	for name, value := range object {
		switch field, ok := known[name]; {
		case !ok:
		case field.secret:
			object[name] = mask
		default:
			maskSecrets(value, field.t, mask)
		}
	}
}
