package resource

import (
	"bytes"
	"encoding/base64"
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

// APIVersion is the apiVersion of the Kubernetes form of every resource.
const APIVersion = "kuma.io/v1alpha1"

// MeshLabel has a resource's mesh in the Kubernetes form.
const MeshLabel = "kuma.io/mesh"

// Lookup returns a kind by its name, or nil.
type Lookup func(kind string) Descriptor

// envelopeFields are the fields beside those of the spec in the Universal form.
var envelopeFields = []string{"type", "mesh", "name", "labels", "kri", "spec", "status", "creationTime",
	"modificationTime"}

// Parse reads one resource in YAML or JSON, in the Universal or the Kubernetes form. Unknown fields are problems, each
// with its path. It sets no defaults and validates no values.
//
// It ignores `status`, `kri`, the times and the kind's [Info.Computed], which only the control plane writes.
// `metadata.namespace` is a problem: names have no namespace here.
func Parse(doc []byte, kinds Lookup) (Any, error) {
	written, err := ParseDocument(doc, kinds)
	return written.Object, err
}

// Document is a resource as a user wrote it.
type Document struct {
	Object Any
	// KRI is the field `kri`, which a client computed or read before, or an empty string.
	KRI string
}

// ParseDocument is [Parse] with the field `kri`.
func ParseDocument(doc []byte, kinds Lookup) (Document, error) {
	if len(doc) > largestDocument {
		return Document{}, Errorf(Invalid, "the resource has %d bytes, at most %d are read", len(doc), largestDocument)
	}
	if err := scan(doc); err != nil {
		return Document{}, err
	}
	if len(SplitYAML(doc)) > 1 { // the YAML reader would omit the rest
		return Document{}, Errorf(Invalid, "there are several documents, want one resource")
	}
	if err := afterRoot(doc); err != nil {
		return Document{}, err
	}
	raw, err := yaml.YAMLToJSONStrict(AsYAML(doc))
	if err != nil {
		return Document{}, Errorf(Invalid, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := withinScan(scanJSON(raw)); err != nil {
		return Document{}, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return Document{}, Errorf(Invalid, "a resource is a mapping with `type` and `name`")
	}
	if _, ok := fields["apiVersion"]; ok {
		if fields, err = fromKubernetes(fields); err != nil {
			return Document{}, err
		}
	}
	written, err := fromUniversal(fields, kinds)
	if err != nil {
		return Document{}, err
	}
	if key := written.Object.Key(); len(doc) > kinds(key.Kind).Describe().Bytes() {
		return Document{}, Errorf(Invalid, "%s has %d bytes, at most %d are read", key, len(doc),
			kinds(key.Kind).Describe().Bytes())
	}
	return written, nil
}

// largestDocument is the maximum size of a document of any kind, in bytes.
const largestDocument = 4 << 20

// fromKubernetes returns the fields of the Universal form.
func fromKubernetes(fields map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	var head struct {
		APIVersion string                     `json:"apiVersion"`
		Kind       string                     `json:"kind"`
		Metadata   map[string]json.RawMessage `json:"metadata"`
	}
	raw, _ := json.Marshal(fields)
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, decodeError(err)
	}
	named, namespace := head.Metadata["name"], string(head.Metadata["namespace"])
	name := strings.TrimSpace(head.Kind + " " + strings.Trim(string(named), `"`))
	if head.APIVersion != APIVersion {
		return nil, Errorf(Invalid, "the apiVersion of %s is %q, want %q", name, head.APIVersion, APIVersion)
	}
	if namespace != "" && namespace != "null" && namespace != `""` {
		return nil, &Error{Code: Invalid, Detail: name + " is invalid",
			Problems: Problems{{"metadata.namespace", namespaceAdvice(string(named), namespace)}}}
	}
	if problems := FormProblems(fields); len(problems) > 0 {
		return nil, &Error{Code: Invalid, Detail: name + " is invalid", Problems: problems}
	}
	out := maps.Clone(fields)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(out, name)
	}
	out["type"], _ = json.Marshal(head.Kind)
	for _, name := range []string{"name", "labels"} {
		if value := head.Metadata[name]; value != nil {
			out[name] = value
		}
	}
	return out, nil
}

// FormProblems returns the problems of the form of an object in the Kubernetes form: fields of metadata that Kubernetes
// lacks, and fields of the Universal form beside them.
func FormProblems(fields map[string]json.RawMessage) Problems {
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(fields["metadata"], &metadata) // another type has no field
	problems := unknownMetadata(metadata)
	for _, name := range []string{"type", "name", "labels"} {
		if _, ok := fields[name]; ok {
			problems.Add(name, "does not go with apiVersion; write `kind` and `metadata`, or leave apiVersion out")
		}
	}
	return problems
}

// objectMeta are the fields of metadata.k8s.io/v1 ObjectMeta. All but name, namespace and labels are ignored, so that
// what `kubectl get -o yaml` prints can be written.
var objectMeta = []string{
	"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName",
	"generation", "labels", "managedFields", "name", "namespace", "ownerReferences", "resourceVersion", "selfLink",
	"uid",
}

// maxUnknown is the number of unknown fields that an error names.
const maxUnknown = 10

// unknownMetadata returns a problem for each field that ObjectMeta lacks: without one, a resource whose mesh is written
// there would be applied to another mesh.
func unknownMetadata(metadata map[string]json.RawMessage) (problems Problems) {
	for _, field := range slices.Sorted(maps.Keys(metadata)) {
		switch {
		case slices.Contains(objectMeta, field):
			continue
		case len(problems) == maxUnknown:
			return problems
		case field == "mesh":
			problems.Add("metadata.mesh", "is not a field of Kubernetes; write the label `kuma.io/mesh`")
		case field == "zone":
			problems.Add("metadata.zone", "is not a field of Kubernetes; the control plane sets `kuma.io/zone`")
		default:
			problems.Add(fmt.Sprintf("metadata.%.253s", field),
				"is not a field of Kubernetes; labels are in `metadata.labels`")
		}
	}
	return problems
}

// namespaceAdvice returns why a namespace is rejected and what to do instead, on each kind of control plane: a document
// is read before the control plane is known.
func namespaceAdvice(name, namespace string) string {
	shown := "NAME.NAMESPACE"
	if n, of := strings.Trim(name, `"`), strings.Trim(namespace, `"`); n != "" && len(n)+len(of) < 253 {
		shown = n + "." + of
	}
	return fmt.Sprintf("is %.300s, and names of this API have no namespace. On Kubernetes use kubectl, or leave it "+
		"out and write the name %s; a resource without a namespace in its name is of the system namespace, as all "+
		"policies of global are. On machines leave it out, and tell resources apart by their names: there are no "+
		"namespaces, and resources of one name in two namespaces would be one", namespace, shown)
}

// header has the fields beside a spec in the Universal form.
type header struct {
	Type   string
	Mesh   string
	Name   string
	Labels map[string]string
	KRI    string
}

func readHeader(fields map[string]json.RawMessage, problems *Problems) header {
	var h header
	c := checker{problems: problems}
	name := Bound{Length: 253}
	for _, field := range []struct {
		name  string
		into  any
		bound Bound
	}{{"type", &h.Type, name}, {"mesh", &h.Mesh, name}, {"name", &h.Name, name}, {"labels", &h.Labels, labelsBound},
		{"kri", &h.KRI, Bound{Length: 2048}}} {
		raw, ok := fields[field.name]
		if !ok {
			continue
		}
		var v any
		_ = json.Unmarshal(raw, &v) // it was parsed before
		before := len(*problems)
		if c.check(v, reflect.TypeOf(field.into).Elem(), field.bound, field.name+".", ""); len(*problems) == before {
			_ = json.Unmarshal(raw, field.into)
		}
	}
	return h
}

// meta returns the metadata. The mesh may be in its label.
func (h *header) meta(problems *Problems) Meta {
	if mesh, ok := h.Labels[MeshLabel]; ok {
		if h.Mesh != "" && h.Mesh != mesh {
			problems.Add("labels["+MeshLabel+"]", "is %q, and `mesh` is %q; leave one out", mesh, h.Mesh)
		}
		h.Mesh = mesh
		delete(h.Labels, MeshLabel)
	}
	return Meta{Mesh: h.Mesh, Name: h.Name, Labels: h.Labels}
}

func fromUniversal(fields map[string]json.RawMessage, kinds Lookup) (Document, error) {
	var problems Problems
	head := readHeader(fields, &problems)
	if len(problems) > 0 {
		return Document{}, &Error{Code: Invalid, Detail: "the resource is invalid", Problems: problems}
	}
	d, err := described(head.Type, kinds)
	if err != nil {
		return Document{}, err
	}
	o := d.New()
	*o.Envelope() = head.meta(&problems)
	decodeSpec(specFields(fields, d.Describe(), &problems), o.spec(), d.Describe(), &problems)
	if len(problems) > 0 {
		return Document{}, &Error{Code: Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
	}
	return Document{o, head.KRI}, nil
}

func described(kind string, kinds Lookup) (Descriptor, error) {
	if kind == "" {
		return nil, &Error{Code: Invalid, Detail: "the resource has no type",
			Problems: Problems{{"type", "is required, for example `type: Mesh`"}}}
	}
	d := kinds(kind)
	if d == nil || d.Describe().Hidden {
		return nil, &Error{Code: Invalid, unknownType: kind, Detail: "unknown type",
			Problems: Problems{{"type",
				fmt.Sprintf("%q is not a type of this control plane; `GET /_resources` lists them", kind)}}}
	}
	return d, nil
}

// specFields returns the fields of the spec: those under `spec` and, for flat kinds, those beside it.
func specFields(fields map[string]json.RawMessage, info *Info, problems *Problems) map[string]any {
	spec := map[string]any{}
	if raw, ok := fields["spec"]; ok {
		if err := json.Unmarshal(raw, &spec); err != nil {
			problems.Add("spec", "must be a mapping")
		}
	}
	if spec == nil { // written as null
		spec = map[string]any{}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case slices.Contains(envelopeFields, name), slices.Contains(info.Computed, name):
		case info.Flat:
			var value any
			_ = json.Unmarshal(fields[name], &value) // it was parsed before
			spec[name] = value
		default:
			problems.Add(name, "is not a field of %s; its fields stand under `spec`", info.Name)
		}
	}
	if info.Flat {
		maps.DeleteFunc(spec, func(name string, _ any) bool { return slices.Contains(info.Computed, name) })
	}
	if info.Older != nil {
		info.Older(spec)
	}
	return spec
}

func decodeError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return &Error{Code: Invalid, Detail: "the resource is invalid", Problems: Problems{{t.Field, typeReason(t)}}}
	}
	return Errorf(Invalid, "the resource is invalid: %s", err)
}

func typeReason(t *json.UnmarshalTypeError) string {
	got := "a " + t.Value
	switch t.Value {
	case "object":
		got = "a mapping"
	case "array":
		got = "a list"
	case "bool":
		got = "true or false"
	}
	return fmt.Sprintf("is %s, want %s", got, plainType(t.Type))
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
	return "a whole number, not negative"
}

// decodeSpec reads a spec into its Go type.
func decodeSpec(fields map[string]any, into any, info *Info, problems *Problems) {
	prefix := "spec."
	if info.Flat {
		prefix = ""
	}
	c := checker{replaced: info.Replaced, problems: problems}
	before := len(*problems)
	c.check(fields, reflect.TypeOf(into).Elem(), Bound{}, prefix, "")
	if len(*problems) > before {
		return
	}
	raw, _ := json.Marshal(fields)
	if err := json.Unmarshal(raw, into); err != nil {
		problems.Add(strings.TrimSuffix(prefix, "."), "%s", err)
	}
}

// checker compares a decoded document with its Go type, and adds a problem for every unknown field and every value of
// another type.
type checker struct {
	replaced map[string]string
	problems *Problems
	// boundsOnly restricts the check to the limits.
	boundsOnly bool
}

// bytesType is the type of a value that is base64 in a document.
var bytesType = reflect.TypeFor[[]byte]()

func nameOfShape(isList bool) string {
	if isList {
		return "a list"
	}
	return "a mapping"
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// check checks one value. shown is the path for the user. path is the path without list positions, by which
// replacements are found. Both end in a dot unless they are empty.
func (c *checker) check(v any, t reflect.Type, b Bound, shown, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && b.Length > 0 {
		b.Length = Base64Length(b.Length)
	}
	if len(*c.problems) > MaxProblems || !c.within(v, b, shown) {
		return
	}
	list, isList := v.([]any)
	mapping, isMapping := v.(map[string]any)
	switch {
	case v == nil:
	case reflect.PointerTo(t).Implements(unmarshaler):
		c.scalar(v, t, shown)
	case (isList || isMapping) && t == bytesType: // which encoding/json would read from a list of numbers too
		c.problems.Add(strings.TrimSuffix(shown, "."), "is %s, want text in base64", nameOfShape(isList))
	case isList && t.Kind() == reflect.Slice:
		for i, item := range list {
			c.check(item, t.Elem(), b.inner(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(shown, "."), i), path)
		}
	case isMapping && t.Kind() == reflect.Map:
		for _, name := range slices.Sorted(maps.Keys(mapping)) {
			c.check(mapping[name], t.Elem(), b.inner(), fmt.Sprintf("%s[%s].", strings.TrimSuffix(shown, "."), name),
				path)
		}
	case isMapping && t.Kind() == reflect.Struct:
		for _, name := range slices.Sorted(maps.Keys(mapping)) {
			c.field(name, mapping[name], t, shown, path)
		}
	default:
		c.scalar(v, t, shown)
	}
}

// inner returns the limit of each item of a list or mapping.
func (b Bound) inner() Bound { return Bound{Items: b.Items, Length: b.Length} }

func (c *checker) field(name string, v any, t reflect.Type, shown, path string) {
	if sentence, ok := c.replaced[path+name]; ok {
		c.problems.Add(shown+name, "%s", sentence)
		return
	}
	field, ok := fieldsByName(t)[name]
	if !ok {
		if !c.boundsOnly {
			c.problems.Add(fmt.Sprintf("%s%.253s", shown, name), "is not a known field")
		}
		return
	}
	c.check(v, field.t, field.bound, shown+name+".", path+name+".")
}

// scalar checks one value without children, so that its error has its path.
func (c *checker) scalar(v any, t reflect.Type, shown string) {
	if _, ok := v.(string); c.boundsOnly || ok && t.Kind() == reflect.String &&
		!reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	raw, _ := json.Marshal(v)
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return
	}
	field := strings.TrimSuffix(shown, ".")
	var wrong *json.UnmarshalTypeError
	var base base64.CorruptInputError
	switch {
	case errors.As(err, &wrong):
		c.problems.Add(field, "%s", typeReason(wrong))
		return
	case errors.As(err, &base):
		c.problems.Add(field, "is not base64, from its character %d on", int64(base)+1)
		return
	}
	c.problems.Add(field, "%s", err)
}

// Body returns the stored form: labels, spec and vouched facts as JSON.
func Body(o Any) ([]byte, error) {
	meta := o.Envelope()
	return json.Marshal(struct {
		Labels  map[string]string `json:"labels,omitempty"`
		Spec    any               `json:"spec"`
		Vouched Vouched           `json:"vouched,omitzero"`
	}{meta.Labels, o.spec(), meta.Vouched})
}

// FromBody parses the stored form into a new object. It drops fields that this release does not know.
func FromBody(d Descriptor, meta Meta, body []byte) (Any, error) {
	o := d.New()
	stored := struct {
		Labels  map[string]string `json:"labels"`
		Spec    any               `json:"spec"`
		Vouched Vouched           `json:"vouched"`
	}{Spec: o.spec()}
	if err := json.Unmarshal(body, &stored); err != nil {
		return nil, fmt.Errorf("%s: stored body: %w", Key{d.Describe().Name, meta.Mesh, meta.Name}, err)
	}
	meta.Labels, meta.Vouched = stored.Labels, stored.Vouched
	*o.Envelope() = meta
	return o, nil
}

// Form is a written form of a resource.
type Form int

// The written forms: Universal as the API and `weft` write it, Kubernetes as an object with metadata and spec.
const (
	Universal Form = iota
	Kubernetes
)

// MarshalJSON writes a resource with its status, unless that is nil.
func MarshalJSON(o, status Any, d Descriptor, form Form) ([]byte, error) {
	var doc ordered
	if form == Kubernetes {
		doc = kubernetes(o, d)
	} else {
		doc = universal(o, d)
		if !d.Describe().Flat {
			doc.add("spec", o.spec())
		} else if err := doc.addFields(o.spec()); err != nil {
			return nil, err
		}
	}
	if status != nil {
		doc.add("status", status.spec())
	}
	return json.Marshal(doc)
}

func kubernetes(o Any, d Descriptor) ordered {
	meta := o.Envelope()
	labels := withMesh(meta)
	metadata := ordered{}
	metadata.add("name", meta.Name)
	if stored(meta) {
		metadata.add("creationTimestamp", meta.Created.UTC().Format(time.RFC3339))
	}
	if len(labels) > 0 {
		metadata.add("labels", labels)
	}
	doc := ordered{}
	doc.add("apiVersion", APIVersion)
	doc.add("kind", d.Describe().Name)
	doc.add("metadata", metadata)
	doc.add("spec", o.spec())
	return doc
}

// stored reports whether a resource comes from a store. Others have no times and no KRI.
func stored(meta *Meta) bool { return !meta.Created.IsZero() }

// ShownLabels returns the labels in the Universal form. Those of a stored resource include its mesh.
func ShownLabels(meta *Meta) map[string]string {
	if !stored(meta) {
		return meta.Labels
	}
	return withMesh(meta)
}

// withMesh returns the labels of a resource and the label of its mesh.
func withMesh(meta *Meta) map[string]string {
	if meta.Mesh == "" {
		return meta.Labels
	}
	labels := map[string]string{MeshLabel: meta.Mesh}
	maps.Copy(labels, meta.Labels)
	return labels
}

// universal returns the envelope without the spec.
func universal(o Any, d Descriptor) ordered {
	meta := o.Envelope()
	doc := ordered{}
	doc.add("type", d.Describe().Name)
	if d.Describe().Scope == Mesh {
		doc.add("mesh", meta.Mesh)
	}
	doc.add("name", meta.Name)
	if stored(meta) {
		doc.add("creationTime", meta.Created.UTC().Format(time.RFC3339Nano))
		doc.add("modificationTime", meta.Modified.UTC().Format(time.RFC3339Nano))
	}
	if labels := ShownLabels(meta); len(labels) > 0 {
		doc.add("labels", labels)
	}
	if kri, ok := KRIOf(meta, d.Describe()); ok && stored(meta) {
		doc.add("kri", kri.String())
	}
	return doc
}

// ordered is a JSON object with its fields in the order of their addition.
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
