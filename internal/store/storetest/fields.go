package storetest

import (
	"encoding/json"
	"reflect"
	"testing"

	"weft/internal/store"
	"weft/resource"
)

// RunFields tests that rows of resources keep every field of their bodies: a later release may write other ones than
// labels, a spec and vouched facts, and zone sync carries bodies as they are stored. The store knows the kinds.
func RunFields(t *testing.T, s store.Store) {
	for kind, spec := range map[string]string{
		"MeshService": `{"selector":{"dataplaneTags":{"a":"b"}},"ports":[{"port":80}]}`,
		"Secret":      `{"data":"YQ=="}`,
	} {
		t.Run("a "+kind+" keeps unknown fields", func(t *testing.T) { testFields(t, s, kind, spec) })
	}
}

func testFields(t *testing.T, s store.Store, kind, spec string) {
	k := resource.Key{Kind: kind, Mesh: "default", Name: "web"}
	_, at := list(t, s, kind)
	events := watch(t, s, kind, at)
	body := func(fields string) []byte {
		return []byte(`{"labels":{"team":"blue"},` + fields + `"spec":` + spec + `}`)
	}
	written := func(what string, want []byte, row store.Row, err error) store.Row {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		read, err := s.Get(t.Context(), k)
		if err != nil || read.Version != row.Version {
			t.Errorf("Get after %s: version %q, want %q (%v)", what, read.Version, row.Version, err)
		}
		listed, _ := list(t, s, kind)
		for from, got := range map[string]store.Row{"the result of": row, "Get after": read, "List after": listed[0],
			"the event of": collect(t, events, 1)[0].Row} {
			if got, want := beside(t, got.Body), beside(t, want); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s has %v, want %v", from, what, got, want)
			}
		}
		return row
	}

	first := body(`"later":{"than":["this",1]},"none":null,"vouched":{"operator":["fact"]},`)
	row, err := s.Create(t.Context(), store.Row{Key: k, Body: first})
	row = written("Create", first, row, err)

	second, before := body(`"later":{"than":["this",2]},`), row.Version
	row.Body = second
	row, err = s.Update(t.Context(), row)
	if row = written("Update", second, row, err); row.Version == before {
		t.Error("Update of a field kept the version")
	}

	row.Body = body("")
	row, err = s.Update(t.Context(), row)
	written("Update without the field", body(""), row, err)
}

// beside returns the fields of a body beside the spec.
func beside(t *testing.T, body []byte) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	delete(fields, "spec")
	return fields
}
