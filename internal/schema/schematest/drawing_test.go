package schematest

import (
	"encoding/json"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestDrawingIsRepeatable: equal seeds draw equal documents, and other seeds draw others.
func TestDrawingIsRepeatable(t *testing.T) {
	drawn := func(seed uint64) string {
		d := NewDrawing(seed)
		d.Names, d.Labels = []string{"web"}, [][2]string{{"app", "web"}}
		var all []any
		for range 20 {
			all = append(all, d.Document(kind.MeshTimeouts, "m", "t"))
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if drawn(1) != drawn(1) {
		t.Error("a seed draws different documents")
	}
	if drawn(1) == drawn(2) {
		t.Error("two seeds draw the same documents")
	}
}

// TestRepair: a problem adds a missing field, removes a field, or draws it anew, in lists too.
func TestRepair(t *testing.T) {
	d := NewDrawing(1)
	d.Names, d.Labels = []string{"web"}, [][2]string{{"app", "web"}}
	item := map[string]any{"targetRef": map[string]any{"kind": "Mesh", "name": "a"}}
	document := map[string]any{"type": "MeshTimeout", "spec": map[string]any{"to": []any{item}}}
	for _, problem := range []resource.Problem{
		{Field: "spec.to[0].default", Reason: "is required"},
		{Field: "spec.to[0].targetRef.name", Reason: "has no meaning here; leave it out"},
	} {
		if !d.Repair(kind.MeshTimeouts, document, problem) {
			t.Errorf("%s: %s is not repaired", problem.Field, problem.Reason)
		}
	}
	if _, ok := item["targetRef"].(map[string]any)["name"]; ok || item["default"] == nil {
		t.Errorf("the document is %v", document)
	}
	for _, field := range []string{"", "spec.to[1].default", "spec.nothing.at.all", "metadata.namespace"} {
		if d.Repair(kind.MeshTimeouts, document, resource.Problem{Field: field}) {
			t.Errorf("the problem of %q is repaired", field)
		}
	}
}
