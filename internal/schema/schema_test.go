package schema_test

import (
	"strings"
	"testing"

	"weft/internal/schema"
	"weft/internal/schema/schematest"
	"weft/kind"
)

// TestSchemasReject: an editor shows the errors that a schema finds, long before the control plane rejects the
// document.
func TestSchemasReject(t *testing.T) {
	for _, test := range []struct{ name, doc, says string }{
		{"another kind", `{type: Meshes, name: m}`, "/type"},
		{"a name", `{type: Mesh, name: A}`, "/name"},
		{"an unknown field", `{type: Mesh, name: m, mtsl: {}}`, "mtsl"},
		{"a field that has no effect", `{type: Mesh, name: m, constraints: {}}`, "constraints"},
		{"a value of another type", `{type: Zone, name: z, enabled: "no"}`, "/enabled"},
		{"a port", `{type: Dataplane, mesh: m, name: d, networking: {inbound: [{port: 70000}]}}`,
			"/networking/inbound/0/port"},
		{"an address", `{type: Dataplane, mesh: m, name: d, networking: {address: "web 1"}}`, "/networking/address"},
		{"a choice", `{type: Dataplane, mesh: m, name: d, networking: {inbound: [{port: 1, protocol: udp}]}}`,
			"/networking/inbound/0/protocol"},
		{"a duration",
			`{type: Dataplane, mesh: m, name: d, networking: {inbound: [{port: 1, serviceProbe: {interval: soon}}]}}`,
			"/interval"},
		{"a tag", `{type: Dataplane, mesh: m, name: d, networking: {inbound: [{port: 1, tags: {a: "b c"}}]}}`,
			"/tags/a"},
		{"nothing that is required", `{type: Secret, mesh: m, name: s}`, "data"},
		{"no base64", `{type: Secret, mesh: m, name: s, data: "?"}`, "/data"},
		{"no spec", `{type: MeshTrust, mesh: m, name: t}`, "spec"},
		{"two selectors",
			`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneTags: {a: b}, dataplaneRef: {name: ` +
				`a}}, ports: [{port: 80}]}}`, "/spec/selector"},
		{"no port", `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: a}}, ports: []}}`,
			"/spec/ports"},
		{"the Kubernetes form",
			`{apiVersion: kuma.io/v1alpha1, kind: MeshService, metadata: {name: S}, spec: {selector: {dataplaneRef: ` +
				`{name: a}}, ports: [{port: 80}]}}`, "/metadata/name"},
		{"another apiVersion", `{apiVersion: v1, kind: Mesh, metadata: {name: m}}`, "/apiVersion"},
	} {
		name := kindOf(test.doc)
		err := schematest.Check(kind.ByName(name), []byte(test.doc))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: the schema of %s says %v, want something of %q", test.name, name, err, test.says)
		}
	}
}

// kindOf returns the kind of a test's document, or Mesh if the document has no type.
func kindOf(doc string) string {
	for _, d := range kind.All() {
		if name := d.Describe().Name; strings.Contains(doc, "type: "+name+",") ||
			strings.Contains(doc, "kind: "+name+",") {
			return name
		}
	}
	return kind.Meshes.Name
}

// TestEveryFieldIsDescribed: the pages and editors have only the doc comments of kinds and fields.
func TestEveryFieldIsDescribed(t *testing.T) {
	for _, d := range kind.All() {
		if d.Describe().Hidden {
			continue
		}
		if schema.Description(d) == "" {
			t.Errorf("%s has no comment", d.Describe().Name)
		}
		for _, f := range schema.Fields(d) {
			if f.Meaning == "" {
				t.Errorf("%s: %s has no comment", d.Describe().Name, f.Path)
			}
		}
	}
}

// TestReferencesStayInTheirMesh: no field of a document names the mesh of another resource, so that a user of one mesh
// reads nothing of another one by what it writes.
func TestReferencesStayInTheirMesh(t *testing.T) {
	var visit func(of string, properties map[string]*schema.Schema)
	visit = func(of string, properties map[string]*schema.Schema) {
		for name, field := range properties {
			if strings.EqualFold(name, "mesh") {
				t.Errorf("%s names a mesh", of)
			}
			visit(of+"."+name, field.Properties)
		}
	}
	for _, d := range kind.Written() {
		document := schema.ForKind(d)
		for name, definition := range document.Defs {
			if definition.Properties["status"] == nil && !strings.HasSuffix(name, "Status") {
				visit(d.Describe().Name+" "+name, definition.Properties)
			}
		}
	}
}
