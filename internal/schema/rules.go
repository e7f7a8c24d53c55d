package schema

import (
	"strconv"

	"weft/kind"
	"weft/resource"
)

// narrow applies the rules of a field to the schema of its type.
func narrow(s *Schema, r *resource.Rules) {
	s.ReadOnly, s.Deprecated = r.ReadOnly, r.Deprecated
	if s.Type == "array" {
		s.Items.Enum = r.Enum
	} else {
		s.Enum = r.Enum
	}
	s.MinItems, s.MinProperties = r.MinItems, r.MinProperties
	ip := []*Schema{{Format: "ipv4"}, {Format: "ipv6"}}
	switch {
	case r.Port:
		s.Minimum, s.Maximum = number(1), number(65535)
	case r.IP:
		s.AnyOf = ip
	case r.Host:
		s.AnyOf = append(ip, &Schema{Pattern: pattern("host")})
	case r.Pattern != "":
		s.Pattern = pattern(r.Pattern)
	case r.Labels:
		s.PropertyNames = &Schema{Pattern: pattern("labelName")}
	case r.Tags:
		s.PropertyNames = &Schema{Pattern: pattern("tagName")}
		s.Additional = &Schema{Type: "string", Pattern: pattern("tagValue")}
	case r.One:
		s.MinProperties, s.MaxProperties = 1, 1
	}
	whole := s
	if s.Type == "array" {
		whole = s.Items
	}
	if whole.Type == "integer" { // the words of JSON Schema are about numbers alone, not about their texts
		whole.ranged(r)
	}
	s.bounded(r.Bound)
	if r.Default != "" {
		s.Default = jsonDefault(r, s.Type)
	}
}

// ranged applies the range of a field.
func (s *Schema) ranged(r *resource.Rules) {
	if n, err := strconv.Atoi(r.Min); err == nil {
		s.Minimum = number(n)
	}
	if n, err := strconv.Atoi(r.Max); err == nil {
		s.Maximum = number(n)
	}
}

func pattern(name string) string { return kind.Patterns[name].String() }

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

// jsonDefault returns the default as a value of the JSON type.
func jsonDefault(r *resource.Rules, jsonType string) any {
	switch jsonType {
	case "integer":
		n, _ := strconv.Atoi(r.Default)
		return n
	case "boolean":
		return r.Default == "true"
	}
	return r.Default
}
