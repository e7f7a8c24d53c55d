package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"weft/kind"
	"weft/resource"
)

// largest is how many bytes of one document are read; a list of resources may have many.
const largest = 256 << 20

// read takes a document, or each item of a list.
func (t *translation) read(d Document) error {
	fields, err := decode(d.Text)
	if err != nil {
		return err
	}
	items, isList := fields["items"].([]any)
	if !isList || text(fields["type"]) != "" {
		return t.add(d.Source, fields)
	}
	if reason := partial(fields, len(items)); reason != "" {
		return fmt.Errorf("%s; read all of its pages, or export with kumactl", reason)
	}
	for i, item := range items {
		if err := t.add(fmt.Sprintf("%s items[%d]", d.Source, i), mapping(item)); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// partial returns why a list is one page of a longer one; empty: it is whole. What a page lacks could restrict what the
// page allows.
func partial(fields map[string]any, items int) string {
	metadata := mapping(fields["metadata"])
	for at, next := range map[string]any{"next": fields["next"], "metadata.continue": metadata["continue"]} {
		if text(next) != "" {
			return fmt.Sprintf("the list is not whole: it has %d items, and `%s` leads to further ones", items, at)
		}
	}
	total, err := strconv.Atoi(fmt.Sprint(fields["total"]))
	if err == nil && total > items {
		return fmt.Sprintf("the list is not whole: it has %d of %d items", items, total)
	}
	return ""
}

func decode(doc []byte) (map[string]any, error) {
	if len(doc) > largest {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(doc), largest)
	}
	raw, err := yaml.YAMLToJSONStrict(resource.AsYAML(doc))
	if err != nil {
		return nil, fmt.Errorf("it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil || fields == nil {
		return nil, errors.New("it is not a mapping")
	}
	return fields, nil
}

// lacksText returns that a field has no text: it is missing, or a boolean or number that was to be quoted.
func lacksText(field string, values ...any) string {
	for _, value := range values {
		switch value.(type) {
		case nil, string:
		case bool:
			return fmt.Sprintf("its %s is %v, as YAML reads y, no and on without quotes", field, value)
		default:
			return fmt.Sprintf("its %s is no text without quotes", field)
		}
	}
	return "it has no " + field
}

// add records an object in its Universal form.
func (t *translation) add(source string, fields map[string]any) error {
	o := &object{source: source, fields: fields}
	problem := ""
	var contradictions []fault
	if fields["apiVersion"] != nil {
		contradictions = contradictory(fields)
		problem = o.fromKubernetes()
	}
	o.kind, o.mesh, o.name = text(o.fields["type"]), text(o.fields["mesh"]), text(o.fields["name"])
	o.labels = mapping(o.fields["labels"])
	o.namespace = cmp.Or(o.namespace, o.label(resource.NamespaceLabel))
	if mesh := o.label(resource.MeshLabel); mesh != "" {
		if o.mesh != "" && o.mesh != mesh {
			contradictions = append(contradictions, fault{"labels[" + resource.MeshLabel + "]",
				fmt.Sprintf("is %q, and `mesh` is %q", mesh, o.mesh), "leave one out"})
		}
		o.mesh = mesh
	}
	if o.kind == "" {
		return errors.New(lacksText("type", fields["type"], fields["kind"]))
	}
	switch {
	case problem != "":
		o.omit("", problem, "leave the document out")
	case len(contradictions) > 0:
		o.contradicted(contradictions)
	default:
		t.classify(o)
	}
	if o.kind == kind.Meshes.Name {
		t.meshes[o.name] = o
	}
	t.objects = append(t.objects, o)
	return nil
}

// contradictory returns the fields of an object in the Kubernetes form that say two things, or that `weft apply`
// rejects: the mesh, the name or the namespace of the object is not known then.
func contradictory(fields map[string]any) []fault {
	var faults []fault
	raw := map[string]json.RawMessage{}
	_ = json.Unmarshal(encode(fields), &raw) // it was decoded from JSON
	if text(fields["apiVersion"]) != resource.APIVersion {
		for _, field := range []string{"type", "data"} { // of a Secret
			delete(raw, field)
		}
	}
	for _, p := range resource.FormProblems(raw) {
		faults = append(faults, fault{p.Field, p.Reason, "correct the document"})
	}
	metadata := mapping(fields["metadata"])
	is, label := text(metadata["namespace"]), text(mapping(metadata["labels"])[resource.NamespaceLabel])
	if is != "" && label != "" && is != label {
		faults = append(faults, fault{"metadata.labels[" + resource.NamespaceLabel + "]",
			fmt.Sprintf("is %q, and `metadata.namespace` is %q", label, is), "leave the label out"})
	}
	return faults
}

// contradicted leaves an object out. Its mesh may be another one than it says, so that it is of no mesh: a permission
// that denies callers may restrict those of any.
func (o *object) contradicted(faults []fault) {
	for _, f := range faults {
		o.omit(f.field, f.reason, withWhole(f.advice))
	}
	o.dropped = true
	if o.kind == kind.MeshTrafficPermissions.Name {
		o.mesh = ""
	}
}

// fromKubernetes makes the Universal form of an object. The one of a Secret is that of Kubernetes' own kind. It returns
// why the object is not one of Kuma; empty: it is.
func (o *object) fromKubernetes() (problem string) {
	fields, metadata := o.fields, mapping(o.fields["metadata"])
	o.namespace = text(metadata["namespace"])
	universal := map[string]any{"type": fields["kind"], "name": metadata["name"], "labels": metadata["labels"],
		"spec": fields["spec"]}
	mesh := text(fields["mesh"])
	named := mesh != "" || text(mapping(metadata["labels"])[resource.MeshLabel]) != ""
	d := kind.ByName(text(fields["kind"]))
	switch api := text(fields["apiVersion"]); {
	case api == resource.APIVersion:
	case api == "v1" && d == kind.Secrets:
		universal["data"] = mapping(fields["data"])["value"]
		delete(universal, "spec")
		switch of := text(fields["type"]); {
		case of == "system.kuma.io/global-secret", of == "" && !named:
			universal["type"], d = kind.GlobalSecrets.Name, kind.GlobalSecrets
		case of != "" && of != "system.kuma.io/secret":
			problem = fmt.Sprintf("its type %q is not one of Kuma", of)
		}
	default:
		problem = "its apiVersion " + api + " is not one of Kuma"
	}
	if !named && d != nil && d.Describe().Scope == resource.Mesh {
		mesh = defaultMesh
	}
	if mesh != "" {
		universal["mesh"] = mesh
	}
	maps.DeleteFunc(universal, func(_ string, v any) bool { return v == nil })
	o.fields = universal
	return problem
}

// defaultMesh is the mesh of a resource of Kubernetes that names none.
const defaultMesh = "default"

// classify rules out what is not to be translated.
func (t *translation) classify(o *object) {
	d := kind.ByName(o.kind)
	switch {
	case computedKinds[o.kind] || d != nil && d.Describe().ReadOnly && !d.Describe().Hidden:
		o.note(Skipped, "", "weft computes it", "")
	case o.ofEachMesh():
		o.note(Skipped, "", "Kuma makes it for each mesh; weft has defaults of its own, which docs/defaults.md lists",
			"")
	case kind.ReplacementOf(o.kind) != "" && o.name != "" && o.mesh != "": // decided together
	case kind.Lacks(o.kind):
		o.lacking()
	case d == nil || d.Describe().Hidden:
		o.omit("", "weft has no such kind", "leave the document out")
	case o.name == "":
		o.omit("", lacksText("name", o.fields["name"]), "correct the document")
	case d.Describe().Scope == resource.Mesh && o.mesh == "":
		o.omit("", "it names no mesh", "write `mesh` in the document")
	default:
		o.madeByKuma()
	}
}

// computedKinds are read-only kinds of Kuma that weft has no resources of.
var computedKinds = map[string]bool{"MeshInsight": true, "ServiceInsight": true, "Config": true}

func lacks(o *object) string { return o.kind + " is a kind of Kuma that this release lacks" }

// lacking notes an object of a kind that this release lacks.
func (o *object) lacking() {
	switch {
	case o.kind == "Workload":
		o.note(Skipped, "", "Kuma makes it of the label "+kind.WorkloadLabel+", which weft reads itself", "")
	default:
		o.omit("", lacks(o), kind.InsteadOf(o.kind))
	}
}

// madeByKuma skips resources that a Kuma control plane generates.
func (o *object) madeByKuma() {
	switch o.kind {
	case kind.MeshServices.Name:
		switch by := o.label(kind.ManagedBy); {
		case by == kind.GeneratedBy:
			o.note(Skipped, "", "a control plane of weft generated it", "")
		case strings.HasPrefix(by, "meshservice-generator"):
			o.note(Skipped, "", "Kuma generated it from Dataplanes, as weft does", "")
		case by == "k8s-controller" || o.label(kind.EnvLabel) == "kubernetes":
			o.ofPod = "Kuma made it of a Service of Kubernetes"
		}
	case kind.Dataplanes.Name:
		if o.label(kind.EnvLabel) == "kubernetes" {
			o.ofPod = "Kuma made it of a Pod"
		}
	case kind.GlobalSecrets.Name:
		if slices.Contains([]string{"envoy-admin-ca", "inter-cp-ca"}, o.name) {
			o.note(Skipped, "", "it is the CA of connections that weft does not have", "")
		}
	}
}

// zones skips resources of zones where the export has those of several zones: it is the copy of a global control plane.
// A permission that denies still restricts the others.
func (t *translation) zones() {
	owners := map[string]bool{}
	for _, o := range t.objects {
		if zone := o.zone(); zone != "" {
			owners[zone] = true
		}
	}
	t.global = len(owners) >= 2
	if !t.global {
		return
	}
	for _, o := range t.objects {
		if zone := o.zone(); zone != "" && !o.whole() {
			o.copyOf = zone
			o.note(Skipped, "", "it is the copy of a resource of zone "+zone,
				"export it from the control plane of that zone")
		}
	}
}

// zone is the zone that owns an object; empty: global does, or the object does not say.
func (o *object) zone() string {
	if o.kind == kind.ZoneIngresses.Name || o.kind == kind.ZoneEgresses.Name {
		if zone := text(o.fields["zone"]); zone != "" {
			return zone
		}
	}
	if o.kind == kind.Zones.Name || o.label(kind.OriginLabel) != "zone" {
		return ""
	}
	return o.label(kind.ZoneLabel)
}

// encode writes fields as JSON.
func encode(fields map[string]any) []byte {
	raw, _ := json.Marshal(fields) // it was decoded from JSON
	return raw
}

// numberOf is a number as a decoded document has it.
func numberOf(digits string) json.Number { return json.Number(digits) }

// text is a string; empty for any other value.
func text(v any) string { s, _ := v.(string); return s }

// mapping is a mapping; nil for any other value.
func mapping(v any) map[string]any { m, _ := v.(map[string]any); return m }

// list is a list; nil for any other value.
func list(v any) []any { l, _ := v.([]any); return l }

// spec are the fields of an object's kind: under `spec`, or beside its type.
func (o *object) spec() map[string]any {
	if spec := mapping(o.fields["spec"]); spec != nil {
		return spec
	}
	return o.fields
}
