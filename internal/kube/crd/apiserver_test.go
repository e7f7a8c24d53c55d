package crd_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/kind"
	"weft/resource"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// installed returns a client of an API server that has the definitions.
func installed(t *testing.T) *api.Client {
	t.Helper()
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := crd.Install(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestAPIServerAcceptsDefinitions: the schemas are structural, and their rules are within the budget of CEL.
func TestAPIServerAcceptsDefinitions(t *testing.T) {
	client := installed(t)
	for _, d := range crd.All() {
		var found struct {
			Status struct{ Conditions []kind.Condition }
		}
		if err := client.Get(t.Context(), crd.Definitions+"/"+d.Metadata.Name, nil, &found); err != nil {
			t.Error(err)
		}
		for _, c := range found.Status.Conditions {
			if (c.Type == "NonStructuralSchema") == (c.Status == "True") {
				t.Errorf("%s: the condition %s is %s: %s", d.Metadata.Name, c.Type, c.Status, c.Message)
			}
		}
	}
}

// TestAPIServerAcceptsExamples: every example of the documentation is accepted in its Kubernetes form, and read back
// with the spec that admission gives it.
func TestAPIServerAcceptsExamples(t *testing.T) {
	client := installed(t)
	examples(t, func(at, name string, d resource.Descriptor, o resource.Any) {
		acceptExample(t, client, at, name, d, o)
	})
}

// TestRowsOfExamples: a row of every example is read with the bytes that were stored, by which zones and global compare
// their resources.
func TestRowsOfExamples(t *testing.T) {
	const namespace = "rows"
	rows := openRows(t, namespace)
	examples(t, func(at, name string, d resource.Descriptor, o resource.Any) {
		meta := o.Envelope()
		meta.Name = name + "." + namespace
		if d == kind.Meshes || d == kind.Zones {
			meta.Name = "row-" + name
		}
		meta.Vouched.Operator = []string{"kuma.io/service=a"}
		body, err := resource.Body(o)
		if err != nil {
			t.Fatal(err)
		}
		created, err := rows.Create(t.Context(), store.Row{Key: o.Key(), Body: body})
		if err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		read, err := rows.Get(t.Context(), o.Key())
		if err != nil || read.Version != created.Version || string(read.Body) != string(body) {
			t.Errorf("%s: the store has %v\n%s\nwant\n%s", at, err, read.Body, body)
		}
	})
}

// TestFieldsOfALaterReleaseAreKept: the API server stores fields that this release does not know, at any depth, and the
// store returns them after a write of such a row too.
func TestFieldsOfALaterReleaseAreKept(t *testing.T) {
	rows := openRows(t, "later")
	key := kind.MeshServices.Key("default", "web.later")
	const body = `{"spec":{"ports":[{"port":%d,"later":{"than":["this",1]}}],"selector":{"dataplaneTags":{"a":"b"}},` +
		`"later":true}}`
	row, err := rows.Create(t.Context(), store.Row{Key: key, Body: fmt.Appendf(nil, body, 80)})
	if err != nil {
		t.Fatal(err)
	}
	row.Body = fmt.Appendf(nil, body, 81)
	if _, err := rows.Update(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	read, err := rows.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"port":81`, `"later":{"than":["this",1]}`, `"later":true`} {
		if !strings.Contains(string(read.Body), want) {
			t.Errorf("the store has %s, which lacks %s", read.Body, want)
		}
	}
}

// openRows returns the store of a new system namespace.
func openRows(t *testing.T, namespace string) *kube.Store {
	t.Helper()
	client := installed(t)
	if err := client.Create(t.Context(), "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}}, nil); err != nil {
		t.Fatal(err)
	}
	rows, err := kube.Open(t.Context(), kubetest.Start(t).Config(),
		kube.Options{Namespace: namespace, Kinds: crd.Rows()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rows.Close() })
	return rows
}

// examples calls with every example of the documentation that users may write.
func examples(t *testing.T, call func(at, name string, d resource.Descriptor, o resource.Any)) {
	t.Helper()
	accepted := 0
	for _, at := range []string{"../../../examples", "../../../docs"} {
		if err := filepath.WalkDir(at, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".md" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, doc := range documents(path, text) {
				o, err := resource.Parse(doc.Text, kind.ByName)
				if err != nil || o.Key().Name == "" {
					continue // another kind of document, or a part of one
				}
				d := kind.ByName(o.Key().Kind)
				if d.Describe().Encrypted || d.Describe().ReadOnly || len(d.Prepare(o)) > 0 {
					continue
				}
				accepted++
				call(fmt.Sprintf("%s, document %d", path, i), fmt.Sprintf("e%d", accepted), d, o)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if accepted < 90 {
		t.Errorf("%d examples were read, want all", accepted)
	}
}

// documents returns the documents of a YAML file, or of the code blocks of a page.
func documents(path string, text []byte) []resource.YAMLDocument {
	if filepath.Ext(path) == ".yaml" {
		return resource.SplitYAML(text)
	}
	var all []resource.YAMLDocument
	for i, block := range strings.Split(string(text), "```") {
		if doc, isYAML := strings.CutPrefix(block, "yaml\n"); isYAML && i%2 == 1 {
			all = append(all, resource.SplitYAML([]byte(doc))...)
		}
	}
	return all
}

func acceptExample(t *testing.T, client *api.Client, at, name string, d resource.Descriptor, o resource.Any) {
	t.Helper()
	want := string(mustJSON(t, resource.SpecOf(o)))
	o.Envelope().Name = name
	written, err := resource.MarshalJSON(o, nil, d, resource.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	path := crd.Path(d, "default")
	var stored struct{ Spec json.RawMessage }
	if err := client.Create(t.Context(), path, json.RawMessage(written), &stored); err != nil {
		t.Errorf("%s: %v\n%s", at, err, written)
		return
	}
	read := d.New()
	if err := json.Unmarshal(stored.Spec, resource.SpecOf(read)); err != nil {
		t.Errorf("%s: %v", at, err)
		return
	}
	d.Prepare(read)
	if got := string(mustJSON(t, resource.SpecOf(read))); got != want {
		t.Errorf("%s: the API server has\n%s\nwant\n%s", at, got, want)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestAPIServerRejects: a document that violates a rule is rejected without a control plane, and the text says which
// rule.
func TestAPIServerRejects(t *testing.T) {
	client := installed(t)
	for _, test := range []struct {
		name string
		kind resource.Descriptor
		doc  string
		says []string
	}{
		{"the name of a mesh", kind.Meshes, `{metadata: {name: a.b}, spec: {}}`,
			[]string{"the name of a Mesh has lower case letters"}},
		{"a port", kind.Dataplanes,
			`{metadata: {name: d}, spec: {networking: {address: 10.0.0.1, inbound: [{port: 70000}]}}}`,
			[]string{"spec.networking.inbound[0].port", "65535"}},
		{"a choice", kind.MeshServices, `{metadata: {name: s}, spec: {state: Gone, selector: {dataplaneRef: {name: a}},
			ports: [{port: 80}]}}`, []string{"spec.state", "Available"}},
		{"two selectors", kind.MeshServices, `{metadata: {name: s}, spec: {ports: [{port: 80}], selector: {dataplaneTags:
			{a: b}, dataplaneRef: {name: a}}}}`, []string{"spec.selector", "must have exactly one of"}},
		{"a required field", kind.HostnameGenerators, `{metadata: {name: h}, spec: {selector: {meshService: {}}}}`,
			[]string{"spec.template", "Required value"}},
		{"no spec", kind.MeshTrusts, `{metadata: {name: t}}`, []string{"spec", "Required value"}},
		{"another type", kind.Zones, `{metadata: {name: z}, spec: {enabled: "no"}}`, []string{"spec.enabled", "boolean"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := client.Create(t.Context(), crd.Path(test.kind, "default"), object(t, test.kind, test.doc), nil)
			status, rejected := api.Status(err)
			if !rejected || status.Code != 422 {
				t.Fatalf("the API server says %v, want 422", err)
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the API server says %v, want something of %q", err, says)
				}
			}
		})
	}
}

// TestMeshOfAResourceStays: a resource does not move to another mesh, in which other people decide.
func TestMeshOfAResourceStays(t *testing.T) {
	client := installed(t)
	path := crd.Path(kind.Dataplanes, "default")
	written := object(t, kind.Dataplanes, `{mesh: default, metadata: {name: moved}, spec: {networking: {address: 10.0.0.1,
		inbound: [{port: 80}]}}}`)
	var stored map[string]any
	if err := client.Create(t.Context(), path, written, &stored); err != nil {
		t.Fatal(err)
	}
	if stored["mesh"] != "default" {
		t.Errorf("the mesh beside metadata is %v, want default", stored["mesh"])
	}
	stored["mesh"] = "other"
	if err := client.Update(t.Context(), path+"/moved", stored, nil); err == nil ||
		!strings.Contains(err.Error(), "the mesh of a resource cannot change") {
		t.Errorf("the API server says %v to another mesh", err)
	}
}

// TestStatusIsASubresource: a user's write changes no status, and a status changes no generation.
func TestStatusIsASubresource(t *testing.T) {
	client := installed(t)
	path := crd.Path(kind.MeshServices, "default")
	var stored struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       any            `json:"spec"`
		Status     map[string]any `json:"status,omitempty"`
	}
	if err := client.Create(t.Context(), path, object(t, kind.MeshServices, `{metadata: {name: st}, spec: {ports: [{port:
		80}], selector: {dataplaneRef: {name: a}}}, status: {vips: [{ip: 10.0.0.9}]}}`), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Status != nil {
		t.Errorf("the creation has the status %v", stored.Status)
	}
	generation := stored.Metadata["generation"]
	stored.Status = map[string]any{"vips": []any{map[string]any{"ip": "10.0.0.9"}}}
	if err := client.Update(t.Context(), path+"/st/status", stored, &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Status == nil || stored.Metadata["generation"] != generation {
		t.Errorf("the status is %v, the generation %v, want %v", stored.Status, stored.Metadata["generation"],
			generation)
	}
}

// object returns a document with its kind.
func object(t *testing.T, d resource.Descriptor, doc string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
		t.Fatal(err)
	}
	o["apiVersion"], o["kind"] = resource.APIVersion, d.Describe().Name
	return o
}
