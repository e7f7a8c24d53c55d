// Package crd has the CustomResourceDefinitions of the kinds, and the objects of the API server that have their
// resources.
//
// The Go types in package kind are the source, as for the JSON Schemas: the definitions are generated from package
// schema. A definition rejects what the API server can decide alone. The other rules of a kind are those of admission.
package crd

import (
	"slices"
	"strings"

	"weft/internal/schema"
	"weft/internal/store/kube"
	"weft/kind"
	"weft/resource"
)

//go:generate go test -run TestDefinitionsAreCurrent . -update

// Group and Version are those of every definition; resource.APIVersion joins them.
const (
	Group   = "kuma.io"
	Version = "v1alpha1"
)

// clusterScoped are the kinds whose objects have no namespace. All others have one; those of a control plane are in the
// system namespace.
var clusterScoped = []string{kind.Meshes.Name, kind.Zones.Name, kind.ZoneInsights.Name}

// Kinds returns the kinds that have a definition: those of the API, except the kinds whose resources are Kubernetes
// Secrets.
func Kinds() []resource.Descriptor {
	return slices.DeleteFunc(kind.All(), func(d resource.Descriptor) bool {
		return d.Describe().Hidden || d.Describe().Encrypted
	})
}

// Definition is a CustomResourceDefinition.
type Definition struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata has the name of a definition, PLURAL.GROUP.
type Metadata struct {
	Name string `json:"name"`
}

// Spec describes the objects of a definition.
type Spec struct {
	Group    string           `json:"group"`
	Names    Names            `json:"names"`
	Scope    string           `json:"scope"` // Cluster or Namespaced
	Versions []VersionOfGroup `json:"versions"`
}

// Names are the names of a kind for clients.
type Names struct {
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind"`
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

// VersionOfGroup is one version of a kind.
type VersionOfGroup struct {
	Name         string         `json:"name"`
	Served       bool           `json:"served"`
	Storage      bool           `json:"storage"`
	Schema       Validation     `json:"schema"`
	Subresources map[string]any `json:"subresources,omitempty"`
	Columns      []Column       `json:"additionalPrinterColumns,omitempty"`
}

// Validation has the schema of an object.
type Validation struct {
	OpenAPI *Structural `json:"openAPIV3Schema"`
}

// Column is a column of `kubectl get`.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	JSONPath string `json:"jsonPath"`
}

// All returns the definitions of all kinds, and that of the records, in the order of their names.
func All() []Definition {
	all := []Definition{records()}
	for _, d := range Kinds() {
		all = append(all, DefinitionOf(d))
	}
	slices.SortFunc(all, func(a, b Definition) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return all
}

// DefinitionOf returns the definition of a kind.
func DefinitionOf(d resource.Descriptor) Definition {
	info := d.Describe()
	spec, status := schema.ExpandedSchemas(d)
	object := &Structural{
		Type:        "object",
		Description: schema.Description(d),
		Properties: map[string]*Structural{
			// The API server validates these itself.
			"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
			"spec": structural(spec, defaultsOf(d, spec)),
		},
		Rules: nameRules(info),
	}
	if len(spec.Required) > 0 {
		object.Required = []string{"spec"}
	}
	if mayBeNewer(info) {
		object.Properties["spec"].preserveUnknown()
	}
	if info.Flat {
		object.Properties["mesh"] = meshField()
	}
	version := VersionOfGroup{
		Name: Version, Served: true, Storage: true, Schema: Validation{object}, Columns: columnsOf(d),
	}
	if status != nil {
		object.Properties["status"] = structural(status, nil)
		version.Subresources = map[string]any{"status": map[string]any{}}
	}
	return definition(info, version)
}

// mayBeNewer reports whether resources of a kind may come from a newer control plane, whose fields must not be lost.
// The older kinds never had a closed schema.
func mayBeNewer(info *resource.Info) bool { return info.Flat || info.Sync != 0 }

func definition(info *resource.Info, version VersionOfGroup) Definition {
	name, plural := info.Name, Plural(info)
	d := Definition{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
		Metadata: Metadata{Name: plural + "." + Group},
		Spec: Spec{
			Group: Group, Scope: "Namespaced",
			Names: Names{Kind: name, ListKind: name + "List", Plural: plural, Singular: strings.ToLower(name),
				Categories: []string{"kuma"}},
			Versions: []VersionOfGroup{version},
		},
	}
	if slices.Contains(clusterScoped, name) {
		d.Spec.Scope = "Cluster"
	}
	if info.ShortName != "" {
		d.Spec.Names.ShortNames = []string{info.ShortName}
	}
	return d
}

// Plural returns the plural of a kind, without the dashes that some paths of the REST API have.
func Plural(info *resource.Info) string { return strings.ReplaceAll(info.Plural, "-", "") }

// meshField is the mesh beside the metadata, which users of the older kinds write. Without it in the definition, the
// API server drops it.
func meshField() *Structural {
	return &Structural{
		Type: "string", MaxLength: 63, Pattern: kind.Patterns["mesh"].String(),
		Description: "the mesh of the resource; the label " + resource.MeshLabel + " has it too",
		Rules: []Rule{{Rule: "self == oldSelf",
			Message: "the mesh of a resource cannot change: delete the resource, and create it in the other mesh"}},
	}
}

// nameRules returns the rule about the names that become parts of host names and of SPIFFE IDs.
func nameRules(info *resource.Info) []Rule {
	if info.Name != kind.Meshes.Name && info.Name != kind.Zones.Name {
		return nil
	}
	return []Rule{{
		Rule: "self.metadata.name.size() <= 63 && self.metadata.name.matches('" + kind.Patterns["mesh"].String() +
			"')",
		Message: "the name of a " + info.Name + " has lower case letters, digits and dashes, 63 at most",
	}}
}

// records is the definition of the control plane's own rows, which no user reads.
func records() Definition {
	text := func(length int) *Structural { return &Structural{Type: "string", MaxLength: length} }
	d := definition(&resource.Info{Name: kube.RecordKind, Plural: kube.RecordPlural}, VersionOfGroup{
		Name: Version, Served: true, Storage: true,
		Schema: Validation{&Structural{
			Type:        "object",
			Description: "Record is a row of the control plane itself. It is neither written nor read by users.",
			Required:    []string{"spec"},
			Properties: map[string]*Structural{
				"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
				"spec": {
					Type: "object", Required: []string{"kind", "name"},
					Properties: map[string]*Structural{
						"kind": text(63), "mesh": text(63), "name": text(1024),
						"body":     {Type: "string", Format: "byte"},
						"created":  {Type: "string", Format: "date-time"},
						"modified": {Type: "string", Format: "date-time"},
					},
				},
			},
		}},
	})
	d.Spec.Names.Categories = nil
	return d
}
