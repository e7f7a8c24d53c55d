package schema

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"weft/kind"
	"weft/resource"
)

// rules are what the tag `schema` of a field says, in words with a space between them:
//
//	required              whoever writes the resource writes the field
//	readonly              the control plane writes the field
//	deprecated            the field is read and not to be used
//	enum=A|B              one of these
//	pattern=NAME          a form of [kind.Patterns]
//	port, ip, host        a port from 1 to 65535; an IP address; an IP address or a host name
//	labels, tags          the names and values of a map
//	one                   exactly one field of the struct
//	min=, max=, minItems=, minProperties=         what the value has at least, or at most
//	maxItems=, maxProperties=, maxLength=         bounds, which [resource.BoundOf] reads
//	default=VALUE         up to the end of the tag
type rules struct {
	required, readonly, deprecated, ip, host, port bool
	enum                                           []string
	fallback                                       string
	narrowing                                      []func(*Schema)
	bound                                          resource.Bound
}

func rulesOf(f reflect.StructField) rules {
	var r rules
	tag, fallback, _ := strings.Cut(f.Tag.Get("schema"), "default=")
	r.fallback, r.bound = fallback, resource.BoundOf(f)
	for word := range strings.FieldsSeq(tag) {
		name, value, _ := strings.Cut(word, "=")
		if !r.word(name, value) {
			panic(fmt.Sprintf("schema: the tag of %s has the word %q, which nobody knows", f.Name, word))
		}
	}
	return r
}

func (r *rules) word(name, value string) bool {
	n, _ := strconv.Atoi(value)
	narrow := func(f func(*Schema)) { r.narrowing = append(r.narrowing, f) }
	switch name {
	case "required":
		r.required = true
	case "readonly":
		r.readonly = true
	case "deprecated":
		r.deprecated = true
	case "enum":
		r.enum = strings.Split(value, "|")
	case "pattern":
		narrow(func(s *Schema) { s.Pattern = kind.Patterns[value].String() })
	case "port":
		r.port = true
		narrow(func(s *Schema) { s.Minimum, s.Maximum = number(1), number(65535) })
	case "ip":
		r.ip = true
		narrow(func(s *Schema) { s.AnyOf = []*Schema{{Format: "ipv4"}, {Format: "ipv6"}} })
	case "host":
		r.host = true
		narrow(func(s *Schema) {
			s.AnyOf = []*Schema{{Format: "ipv4"}, {Format: "ipv6"}, {Pattern: kind.Patterns["name"].String()}}
		})
	case "labels":
		narrow(func(s *Schema) { s.PropertyNames = &Schema{Pattern: kind.Patterns["labelName"].String()} })
	case "tags":
		narrow(func(s *Schema) {
			s.PropertyNames = &Schema{Pattern: kind.Patterns["tagName"].String()}
			s.Additional = &Schema{Type: "string", Pattern: kind.Patterns["tagValue"].String()}
		})
	case "one":
		narrow(func(s *Schema) { s.MinProperties, s.MaxProperties = 1, 1 })
	case "min":
		narrow(func(s *Schema) { s.Minimum = number(n) })
	case "max":
		narrow(func(s *Schema) { s.Maximum = number(n) })
	case "minItems":
		narrow(func(s *Schema) { s.MinItems = n })
	case "maxItems", "maxProperties", "maxLength": // resource.BoundOf reads them
	case "minProperties":
		narrow(func(s *Schema) { s.MinProperties = n })
	default:
		return false
	}
	return true
}

// narrow applies the rules to the schema of the field's type.
func (r *rules) narrow(s *Schema) {
	s.ReadOnly, s.Deprecated, s.Enum = r.readonly, r.deprecated, r.enum
	for _, narrow := range r.narrowing {
		narrow(s)
	}
	s.bounded(r.bound)
	if r.fallback != "" {
		s.Default = r.value(s.Type)
	}
}

// bounded adds the bound of a field.
func (s *Schema) bounded(b resource.Bound) {
	switch s.Type {
	case "array":
		s.MaxItems = b.Items
		s.Items.bounded(b)
	case "object":
		if s.MaxProperties == 0 {
			s.MaxProperties = b.Properties
		}
		if values, ok := s.Additional.(*Schema); ok && values.Ref == "" {
			values.MaxLength = b.Length
		}
	case "string":
		if len(s.Enum) == 0 && s.MaxLength == 0 {
			s.MaxLength = b.Length
			if s.ContentEncoding != "" {
				s.MaxLength = resource.Base64Length(b.Length)
			}
		}
	}
}

// value is the default as JSON has it.
func (r *rules) value(jsonType string) any {
	switch jsonType {
	case "integer":
		n, _ := strconv.Atoi(r.fallback)
		return n
	case "boolean":
		return r.fallback == "true"
	}
	return r.fallback
}
