package kind_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"weft/kind"
	"weft/resource"
)

// FuzzForms: every valid document has the same meaning after it was read and written in either form, and the kind's
// schema accepts both.
func FuzzForms(f *testing.F) {
	files, err := filepath.Glob("../examples/kinds/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d examples (%v)", len(files), err)
	}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, err := resource.Parse(doc, kind.ByName)
		if err != nil {
			return
		}
		d := kind.ByName(o.Key().Kind)
		inMesh := d.Describe().Scope == resource.Mesh
		if len(d.Prepare(o)) > 0 || inMesh != (o.Key().Mesh != "") || inMesh &&
			resource.MeshNameProblem(o.Key().Mesh) != "" {
			return // the mesh is resolved when the resource is written
		}
		for _, form := range []resource.Form{resource.Universal, resource.Kubernetes} {
			same(t, o, d, form)
		}
	})
}

// same writes a resource in a form, reads it, and requires the same stored form.
func same(t *testing.T, o resource.Any, d resource.Descriptor, form resource.Form) {
	t.Helper()
	written, err := resource.MarshalJSON(o, nil, d, form)
	if err != nil {
		t.Fatal(err)
	}
	described(t, o, string(written))
	again, err := resource.Parse(written, kind.ByName)
	if err != nil {
		t.Fatalf("%s\n%v", written, err)
	}
	if problems := d.Prepare(again); len(problems) > 0 {
		t.Fatalf("%s\nis rejected: %v", written, problems)
	}
	if before, after := stored(t, o), stored(t, again); again.Key() != o.Key() || !bytes.Equal(before, after) {
		t.Errorf("%s became %s\n%s", o.Key(), again.Key(), written)
		t.Errorf("before %s\n after %s", before, after)
	}
}

func stored(t *testing.T, o resource.Any) []byte {
	t.Helper()
	body, err := resource.Body(o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
