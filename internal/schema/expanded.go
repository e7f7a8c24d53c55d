package schema

import (
	"maps"
	"strings"

	"weft/kind"
	"weft/resource"
)

// ExpandedSchemas returns the schemas of a kind's spec and of its status, with each definition in the place of its
// reference. The schema of the status is nil for a kind without one.
func ExpandedSchemas(d resource.Descriptor) (spec, status *Schema) {
	b := &builder{prefix: "#/$defs/", defs: map[string]*Schema{}}
	spec = b.object(specType(d))
	if of := kind.StatusKind(d.Describe().Name); of != nil {
		status = b.object(specType(of))
	}
	return b.expand(spec), b.expand(status)
}

// expand returns a copy of a schema without references. The types of the kinds have no cycle.
func (b *builder) expand(s *Schema) *Schema {
	if s == nil {
		return nil
	}
	out := *s
	if s.Ref != "" {
		of := b.defs[strings.TrimPrefix(s.Ref, b.prefix)]
		out = *of
		out.Description, out.ReadOnly, out.Deprecated = s.Description, s.ReadOnly, s.Deprecated
		out.MinProperties, out.MaxProperties = s.MinProperties, s.MaxProperties
	}
	out.Items = b.expand(out.Items)
	if values, ok := out.Additional.(*Schema); ok {
		out.Additional = b.expand(values)
	}
	out.Properties = maps.Clone(out.Properties)
	for name, property := range out.Properties {
		out.Properties[name] = b.expand(property)
	}
	return &out
}
