package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"

	"weft/kind"
	"weft/resource"
)

// manifest is one parsed document of a file.
type manifest struct {
	object resource.Any
	kind   resource.Descriptor
	at     string // its source and line
	number int    // its place among the documents of all sources
	text   []byte // of the document
}

// readManifests reads and checks every document of the sources. The error lists every invalid one, with its file and
// line. The valid ones are returned beside it, without those of a Mesh that is invalid, which cannot be checked
// further.
func readManifests(ctx context.Context, from *sources, in io.Reader, mesh string) ([]manifest, error) {
	docs, err := from.read(ctx, in)
	if err != nil {
		return nil, err
	}
	var manifests []manifest
	var faults []error
	first := map[resource.Key]manifest{}
	invalid := map[string]bool{}
	listed := expandLists(docs)
	if len(listed) == 0 {
		return nil, from.nothing()
	}
	for i, doc := range listed {
		m, err := parseManifest(doc, mesh)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", doc.at(), err))
			invalid[meshOfDocument(doc)] = true
			continue
		}
		m.number = i
		key := m.object.Key()
		if before, ok := first[key]; ok {
			faults = append(faults, fmt.Errorf("%s: %s stands at %s already", m.at, key, before.at))
		}
		first[key] = m
		manifests = append(manifests, m)
	}
	if len(faults) > 0 {
		manifests = slices.DeleteFunc(manifests, func(m manifest) bool { return invalid[m.object.Key().Mesh] })
	}
	return manifests, errors.Join(faults...)
}

// meshOfDocument returns the name of a Mesh in either form, and "-", which is no name, for any other document.
func meshOfDocument(doc document) string {
	var o struct {
		Type, Kind, Name string
		Metadata         struct{ Name string }
	}
	if yaml.Unmarshal(resource.AsYAML(doc.Text), &o) != nil || cmp.Or(o.Type, o.Kind) != kind.Meshes.Name {
		return "-"
	}
	return cmp.Or(o.Name, o.Metadata.Name, "-")
}

// expandLists replaces each list of resources, which is a list or has `items` and no type, with its items.
func expandLists(docs []document) []document {
	var all []document
	for _, doc := range docs {
		var items []json.RawMessage
		place := " [%d]"
		raw, err := yaml.YAMLToJSONStrict(resource.AsYAML(doc.Text))
		if err != nil || json.Unmarshal(raw, &items) != nil {
			var list struct {
				Type  string            `json:"type"`
				Items []json.RawMessage `json:"items"`
			}
			if err != nil || json.Unmarshal(raw, &list) != nil || list.Items == nil || list.Type != "" {
				all = append(all, doc) // its error is reported when it is parsed
				continue
			}
			items, place = list.Items, " items[%d]"
		}
		for i, item := range items {
			all = append(all, document{resource.YAMLDocument{Line: doc.Line, Text: item}, doc.source,
				fmt.Sprintf(place, i), doc.whole})
		}
	}
	return all
}

// parseManifest parses one document and checks its values. It does not change the text that will be sent.
func parseManifest(doc document, mesh string) (manifest, error) {
	written, err := kind.Parse(doc.Text)
	if err != nil {
		return manifest{}, doc.ShiftLines(err)
	}
	o := written.Object
	d := kind.ByName(o.Key().Kind)
	if d.Describe().Scope == resource.Mesh && o.Envelope().Mesh == "" {
		o.Envelope().Mesh = mesh
	}
	if o.Envelope().Name == "" {
		return manifest{}, resource.Errorf(resource.Invalid, "a %s has no name", o.Key().Kind)
	}
	if problems := d.Prepare(resource.Clone(o)); len(problems) > 0 {
		return manifest{}, &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid",
			Problems: problems}
	}
	return manifest{object: o, kind: d, at: doc.at(), text: doc.Text}, nil
}

// writeOrder is the order in which kinds are written, so that dependencies come first: the service, the permissions and
// the identity of a Dataplane are written before it. Kinds that are not listed come last.
var writeOrder = []resource.Descriptor{
	kind.Meshes, kind.Zones, kind.HostnameGenerators,
	kind.Secrets, kind.GlobalSecrets, kind.MeshTrusts, kind.MeshIdentities,
	kind.MeshTrafficPermissions, kind.MeshServices, kind.MeshMultiZoneServices, kind.MeshExternalServices,
	kind.Dataplanes,
}

// inWriteOrder sorts manifests for writing; those of one kind stay in the order of their files.
func inWriteOrder(manifests []manifest) {
	slices.SortStableFunc(manifests, func(a, b manifest) int { return writePlace(a.kind) - writePlace(b.kind) })
}

func writePlace(d resource.Descriptor) int {
	if i := slices.Index(writeOrder, d); i >= 0 {
		return i
	}
	return len(writeOrder)
}
