package resource

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Rules are the rules of a field, from its tag `schema`. The checks of a write and of a received resource
// ([Kind.Prepare]), the JSON Schemas and the pages of the kinds all read them here. The tag has words with a space
// between them:
//
//	required              a written resource must have the field
//	readonly              the control plane writes the field
//	deprecated            the field is read and not to be used
//	enum=A|B              one of these
//	pattern=NAME          a named form; the kinds have its regular expression
//	port, ip, host        a port from 1 to 65535; an IP address; an IP address or a host name
//	labels, tags          the names and values of a map
//	one                   exactly one field of the struct
//	min=, max=            the least and the largest number or duration
//	zero                  a duration may be 0 too, for no limit
//	minItems=, maxItems=  the length of a list
//	minProperties=, maxProperties=  the size of a map, or the number of fields of a struct
//	maxLength=            the length of a string in characters, of base64 in bytes of its value
//	secret                readers of the audit log, of the history and of the UI do not get the value
//	default=VALUE         up to the end of the tag
//
// The tag `missing` has what follows "is required: " in the problem of a field without a value, and the tag `advice`
// what to do about a wrong number.
type Rules struct {
	Required, ReadOnly, Deprecated     bool
	Enum                               []string
	Pattern                            string
	Port, IP, Host                     bool
	Labels, Tags, One                  bool
	Zero, Secret                       bool
	Min, Max                           string // as the tag has them; empty: none
	MinItems, MinProperties            int
	maxItems, maxProperties, maxLength int // Bound has them, with what other words imply
	Default                            string
	Missing, Advice                    string
	// Bound is the largest value.
	Bound Bound
}

// RulesOf returns the rules of a field. It panics on a word that is none of those of [Rules].
func RulesOf(f reflect.StructField) Rules {
	var r Rules
	tag, fallback, _ := strings.Cut(f.Tag.Get("schema"), "default=")
	r.Default, r.Missing, r.Advice = fallback, f.Tag.Get("missing"), f.Tag.Get("advice")
	for word := range strings.FieldsSeq(tag) {
		name, value, hasValue := strings.Cut(word, "=")
		if known := r.flag(name) && !hasValue || r.value(name, value); !known {
			panic(fmt.Sprintf("resource: the tag of the field %s has the unknown word %q", f.Name, word))
		}
	}
	r.Bound = r.bound(f.Type)
	return r
}

// flag reads a word without a value.
func (r *Rules) flag(name string) bool {
	word, ok := map[string]*bool{
		"required": &r.Required, "readonly": &r.ReadOnly, "deprecated": &r.Deprecated,
		"port": &r.Port, "ip": &r.IP, "host": &r.Host, "labels": &r.Labels, "tags": &r.Tags, "one": &r.One,
		"zero": &r.Zero, "secret": &r.Secret,
	}[name]
	if ok {
		*word = true
	}
	return ok
}

// value reads a word with a value.
func (r *Rules) value(name, value string) bool {
	switch name {
	case "enum":
		r.Enum = strings.Split(value, "|")
		return value != ""
	case "pattern":
		r.Pattern = value
		_, known := patternLengths[value]
		return known
	}
	n, err := strconv.Atoi(value)
	switch name {
	case "min":
		r.Min = value
		return isNumber(value)
	case "max":
		r.Max = value
		return isNumber(value)
	case "minItems":
		r.MinItems = n
	case "minProperties":
		r.MinProperties = n
	case "maxItems":
		r.maxItems = n
	case "maxProperties":
		r.maxProperties = n
	case "maxLength":
		r.maxLength = n
	default:
		return false
	}
	return err == nil
}

// isNumber reports whether a text is a number or a duration.
func isNumber(text string) bool {
	_, err := ParseDuration(text)
	_, noNumber := strconv.ParseFloat(text, 64)
	return err == nil || noNumber == nil
}

// Bound says how large the value of a field may be; 0 is no bound.
type Bound struct {
	Items      int // of a list
	Properties int // of a mapping
	Length     int // of a string in characters, of base64 in bytes of its value; of each one of a list or mapping
	Name       int // of each name of a mapping, in characters
}

// patternLengths are the lengths of the forms that the word "pattern=" of a tag names.
var patternLengths = map[string]int{"name": 253, "host": 253, "mesh": 63, "section": 63, "duration": 64,
	"labelName": 317, "tagName": 253, "tagValue": 253}

// textLength is that of a value with a written form of its own: a duration, a time, a port or its name.
const textLength = 64

// bound is the largest value of a field: of maxItems=, maxProperties= and maxLength=, and of what other words imply.
func (r *Rules) bound(t reflect.Type) Bound {
	b := Bound{Items: r.maxItems, Properties: r.maxProperties, Length: r.maxLength}
	switch {
	case r.IP:
		b.Length = 45
	case r.Host:
		b.Length = 253
	case r.Pattern != "":
		b.Length = patternLengths[r.Pattern]
	case len(r.Enum) > 0:
		b.Length = textLength // a wrong one is shown
		for _, option := range r.Enum {
			b.Length = max(b.Length, len(option))
		}
	case r.Labels, r.Tags:
		b.Properties, b.Length, b.Name = MaxLabels, 253, 317
	}
	if inner := innermost(t); reflect.PointerTo(inner).Implements(unmarshaler) {
		b.Length = textLength
	}
	return b
}
