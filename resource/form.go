package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// APIVersion stands in the Kubernetes form of every resource.
const APIVersion = "kuma.io/v1alpha1"

// MeshLabel names a resource's mesh in the Kubernetes form.
const MeshLabel = "kuma.io/mesh"

// Lookup finds a kind by its name; nil where there is none.
type Lookup func(kind string) Descriptor

// envelopeFields stand beside the spec's own fields in the Universal form.
var envelopeFields = []string{"type", "mesh", "name", "labels", "spec", "status", "creationTime", "modificationTime"}

// Parse reads one resource in YAML or JSON, in the Universal or the Kubernetes form. Unknown fields are
// problems, each with its path. Defaults are not filled in and values are not validated.
//
// A written `status` is ignored: only the control plane writes it.
func Parse(doc []byte, kinds Lookup) (Any, error) {
	raw, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, Errorf(Invalid, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, Errorf(Invalid, "a resource is a mapping with `type` and `name`")
	}
	if _, ok := fields["apiVersion"]; ok {
		if fields, err = fromKubernetes(fields); err != nil {
			return nil, err
		}
	}
	return fromUniversal(fields, kinds)
}

func fromKubernetes(fields map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string            `json:"name"`
			Namespace string            `json:"namespace"`
			Labels    map[string]string `json:"labels"`
		} `json:"metadata"`
		Mesh string `json:"mesh"`
	}
	raw, _ := json.Marshal(fields)
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, decodeError(err)
	}
	if head.APIVersion != APIVersion {
		return nil, Errorf(Invalid, "apiVersion is %q, want %q", head.APIVersion, APIVersion)
	}
	out := map[string]json.RawMessage{}
	put := func(name string, value any) { out[name], _ = json.Marshal(value) }
	put("type", head.Kind)
	put("name", head.Metadata.Name)
	mesh := head.Metadata.Labels[MeshLabel]
	if mesh == "" {
		mesh = head.Mesh
	}
	if mesh != "" {
		put("mesh", mesh)
	}
	if len(head.Metadata.Labels) > 0 {
		put("labels", head.Metadata.Labels)
	}
	for name, value := range fields {
		switch name {
		case "apiVersion", "kind", "metadata", "mesh":
		default:
			out[name] = value
		}
	}
	return out, nil
}

func fromUniversal(fields map[string]json.RawMessage, kinds Lookup) (Any, error) {
	var head struct {
		Type   string            `json:"type"`
		Mesh   string            `json:"mesh"`
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	}
	raw, _ := json.Marshal(fields)
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, decodeError(err)
	}
	if head.Type == "" {
		return nil, &Error{Code: Invalid, Detail: "the resource has no type", Problems: Problems{{"type", "is required, for example `type: Mesh`"}}}
	}
	d := kinds(head.Type)
	if d == nil || d.Describe().Hidden {
		return nil, &Error{Code: Invalid, Detail: "unknown type", Problems: Problems{{"type", fmt.Sprintf("%q is not a type of this control plane; `GET /_resources` lists them", head.Type)}}}
	}
	spec := map[string]json.RawMessage{}
	if s, ok := fields["spec"]; ok && !isNull(s) {
		if err := json.Unmarshal(s, &spec); err != nil {
			return nil, &Error{Code: Invalid, Detail: describe(head.Type, head.Mesh, head.Name) + " is invalid", Problems: Problems{{"spec", "must be a mapping"}}}
		}
	}
	o := d.New()
	*o.Envelope() = Meta{Mesh: head.Mesh, Name: head.Name, Labels: head.Labels}

	var problems Problems
	prefix := "spec."
	if d.Describe().Flat {
		prefix = ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case slices.Contains(envelopeFields, name):
		case d.Describe().Flat:
			spec[name] = fields[name]
		default:
			problems.Add(name, "is not a field of %s; its fields stand under `spec`", head.Type)
		}
	}
	body, _ := json.Marshal(spec)
	problems = append(problems, decodeSpec(body, o.spec(), prefix, d.Describe().Replaced)...)
	if len(problems) > 0 {
		return nil, &Error{Code: Invalid, Detail: describe(head.Type, head.Mesh, head.Name) + " is invalid", Problems: problems}
	}
	return o, nil
}

func describe(kind, mesh, name string) string { return Key{kind, mesh, name}.String() }

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

func decodeError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return &Error{Code: Invalid, Detail: "the resource is invalid", Problems: Problems{{t.Field, typeReason(t)}}}
	}
	return Errorf(Invalid, "the resource is invalid: %s", err)
}

func typeReason(t *json.UnmarshalTypeError) string {
	return fmt.Sprintf("is a %s, want %s", t.Value, plainType(t.Type))
}

func plainType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string (quote it)"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Pointer:
		return plainType(t.Elem())
	}
	return "a number from the allowed range"
}

func decodeSpec(body []byte, into any, prefix string, replaced map[string]string) Problems {
	var problems Problems
	var loose any
	if err := json.Unmarshal(body, &loose); err != nil {
		return Problems{{strings.TrimSuffix(prefix, "."), err.Error()}}
	}
	unknownFields(loose, reflect.TypeOf(into).Elem(), prefix, "", replaced, &problems)
	if err := json.Unmarshal(body, into); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) {
			problems.Add(prefix+t.Field, "%s", typeReason(t))
		} else {
			problems.Add(strings.TrimSuffix(prefix, "."), "%s", err)
		}
	}
	return problems
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// unknownFields walks a decoded document beside the Go type that it is for. Path is the field's path
// without list positions, by which replacements are named; shown is the path that the user reads.
func unknownFields(v any, t reflect.Type, shown, path string, replaced map[string]string, problems *Problems) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return
		}
		for i, item := range v {
			unknownFields(item, t.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(shown, "."), i), path, replaced, problems)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if t.Kind() == reflect.Map {
				unknownFields(v[name], t.Elem(), shown+name+".", path+name+".", replaced, problems)
				continue
			}
			if t.Kind() != reflect.Struct {
				return
			}
			if sentence, ok := replaced[path+name]; ok {
				problems.Add(shown+name, "%s", sentence)
				continue
			}
			field, ok := fieldByJSONName(t, name)
			if !ok {
				problems.Add(shown+name, "is not a known field")
				continue
			}
			unknownFields(v[name], field.Type, shown+name+".", path+name+".", replaced, problems)
		}
	}
}

func fieldByJSONName(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if inner, ok := fieldByJSONName(f.Type, name); ok {
				return inner, true
			}
			continue
		}
		if tag == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// Body is the stored form: labels and spec as JSON.
func Body(o Any) ([]byte, error) {
	return json.Marshal(struct {
		Labels map[string]string `json:"labels,omitempty"`
		Spec   any               `json:"spec"`
	}{o.Envelope().Labels, o.spec()})
}

// FromBody reads the stored form into a new object. Fields that this release does not know are dropped.
func FromBody(d Descriptor, meta Meta, body []byte) (Any, error) {
	o := d.New()
	stored := struct {
		Labels map[string]string `json:"labels"`
		Spec   any               `json:"spec"`
	}{Spec: o.spec()}
	if err := json.Unmarshal(body, &stored); err != nil {
		return nil, fmt.Errorf("%s: stored body: %w", describe(d.Describe().Name, meta.Mesh, meta.Name), err)
	}
	meta.Labels = stored.Labels
	*o.Envelope() = meta
	return o, nil
}

// Form is how a resource is written.
type Form int

const (
	Universal Form = iota
	Kubernetes
)

// MarshalJSON writes a resource with its status, or without one where that is nil.
func MarshalJSON(o, status Any, d Descriptor, form Form) ([]byte, error) {
	meta := o.Envelope()
	doc := ordered{}
	if form == Kubernetes {
		labels := maps.Clone(meta.Labels)
		if meta.Mesh != "" {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[MeshLabel] = meta.Mesh
		}
		metadata := ordered{}
		metadata.add("name", meta.Name)
		if !meta.Created.IsZero() {
			metadata.add("creationTimestamp", meta.Created.UTC().Format(time.RFC3339))
		}
		if len(labels) > 0 {
			metadata.add("labels", labels)
		}
		doc.add("apiVersion", APIVersion)
		doc.add("kind", d.Describe().Name)
		doc.add("metadata", metadata)
		doc.add("spec", o.spec())
	} else {
		doc.add("type", d.Describe().Name)
		if d.Describe().Scope == Mesh {
			doc.add("mesh", meta.Mesh)
		}
		doc.add("name", meta.Name)
		if !meta.Created.IsZero() {
			doc.add("creationTime", meta.Created.UTC().Format(time.RFC3339Nano))
			doc.add("modificationTime", meta.Modified.UTC().Format(time.RFC3339Nano))
		}
		if len(meta.Labels) > 0 {
			doc.add("labels", meta.Labels)
		}
		if d.Describe().Flat {
			if err := doc.addFields(o.spec()); err != nil {
				return nil, err
			}
		} else {
			doc.add("spec", o.spec())
		}
	}
	if status != nil {
		doc.add("status", status.spec())
	}
	return json.Marshal(doc)
}

// ordered is a JSON object that keeps the order in which its fields were added.
type ordered []struct {
	name  string
	value any
}

func (o *ordered) add(name string, value any) {
	*o = append(*o, struct {
		name  string
		value any
	}{name, value})
}

// addFields adds the fields of a struct, in the order of its JSON form.
func (o *ordered) addFields(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		o.add(name.(string), value)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.name)
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
