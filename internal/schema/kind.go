package schema

import (
	"maps"
	"strings"

	"weft/kind"
	"weft/resource"
)

// ForKind returns the schema of a kind: the Universal form and, for documents with an apiVersion, the Kubernetes form.
func ForKind(d resource.Descriptor) *Schema {
	b := &builder{prefix: "#/$defs/", defs: map[string]*Schema{}}
	s := b.resource(d, &Schema{Description: "written by the control plane; ignored in a write"})
	s.Draft, s.ID, s.Defs = Draft, PathOf(d), b.defs
	return s
}

// PathOf returns the API path of the schema of a kind.
func PathOf(d resource.Descriptor) string { return "/_schemas/" + d.Describe().Name }

// resource returns the schema of a kind's documents, and adds the definitions that it refers to.
func (b *builder) resource(d resource.Descriptor, status *Schema) *Schema {
	info := d.Describe()
	spec := info.Name + "Spec"
	b.defs[spec] = b.object(specType(d))
	b.defs[info.Name+"Universal"] = b.universal(d, status)
	b.defs[info.Name+"Kubernetes"] = b.kubernetes(d, status)
	return &Schema{
		Title: info.Name, Description: Description(d), Type: "object",
		If:   &Schema{Required: []string{"apiVersion"}},
		Then: &Schema{Ref: b.prefix + info.Name + "Kubernetes"},
		Else: &Schema{Ref: b.prefix + info.Name + "Universal"},
	}
}

// Description returns the description of a kind: the doc comment of the kind's own type, else of its spec. A spec that
// several kinds share is described under the name of the kind.
func Description(d resource.Descriptor) string {
	info := d.Describe()
	if text := describe(info.Name); text != "" {
		return text
	}
	shared := specType(d).Name()
	if rest, found := strings.CutPrefix(describe(shared), shared+" "); found {
		return info.Name + " " + rest
	}
	return describe(shared)
}

func (b *builder) universal(d resource.Descriptor, status *Schema) *Schema {
	info := d.Describe()
	return b.document(d, status, []string{"type"}, map[string]*Schema{
		"type":   {Const: info.Name},
		"name":   {Type: "string", MaxLength: 253, Pattern: namePattern(info), Description: "the name of the resource"},
		"labels": labels(),
	})
}

func (b *builder) kubernetes(d resource.Descriptor, status *Schema) *Schema {
	info := d.Describe()
	return b.document(d, status, []string{"apiVersion", "kind", "metadata"}, map[string]*Schema{
		"apiVersion": {Const: resource.APIVersion},
		"kind":       {Const: info.Name},
		"metadata": {Type: "object", Properties: map[string]*Schema{
			"name":   {Type: "string", MaxLength: 253, Pattern: namePattern(info)},
			"labels": labels(),
		}},
	})
}

// document returns the schema of one form: the given properties, and those that both forms have.
func (b *builder) document(d resource.Descriptor, status *Schema, required []string,
	properties map[string]*Schema) *Schema {
	info := d.Describe()
	spec := b.defs[info.Name+"Spec"]
	maps.Copy(properties, map[string]*Schema{
		"spec":             {Ref: b.prefix + info.Name + "Spec"},
		"status":           status,
		"creationTime":     {ReadOnly: true, Description: "the time of creation"},
		"modificationTime": {ReadOnly: true, Description: "the time of the last change"},
	})
	if info.ShortName != "" {
		properties["kri"] = &Schema{Type: "string", ReadOnly: true,
			Description: "the identifier of the resource in every zone"}
	}
	for _, name := range info.Computed {
		properties[name] = &Schema{ReadOnly: true, Description: "computed; ignored in a write"}
	}
	if info.Scope == resource.Mesh {
		properties["mesh"] = &Schema{Type: "string", Pattern: kind.Patterns["mesh"].String(),
			Description: "the mesh of the resource"}
	}
	s := &Schema{Type: "object", Additional: false, Required: required, Properties: properties}
	switch {
	case len(spec.Required) == 0:
	case info.Flat:
		s.AnyOf = []*Schema{{Required: spec.Required}, {Required: []string{"spec"}}}
	default:
		s.Required = append(s.Required, "spec")
	}
	if info.Flat {
		maps.Copy(properties, spec.Properties)
	}
	return s
}

func labels() *Schema {
	return &Schema{
		Type: "object", MaxProperties: resource.MaxLabels, Additional: &Schema{Type: "string", MaxLength: 253},
		PropertyNames: &Schema{Pattern: kind.Patterns["labelName"].String()},
		Description: "labels, by which policies and services select the resource; labels with the prefix kuma.io/ " +
			"have a defined meaning",
	}
}

// namePattern returns the pattern of the names of a kind. Names of meshes and of zones have a narrower pattern.
func namePattern(info *resource.Info) string {
	if info.Name == kind.Meshes.Name || info.Name == kind.Zones.Name {
		return kind.Patterns["mesh"].String()
	}
	return kind.Patterns["name"].String()
}
