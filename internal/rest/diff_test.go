package rest

import (
	"net/http"
	"strings"
	"testing"
)

// TestDiffRejects: what a diff cannot compare has an error that names it, and nothing is written.
func TestDiffRejects(t *testing.T) {
	s := shop(t)
	many := strings.TrimSuffix(strings.Repeat(`{"type": "MeshTimeout", "mesh": "shop", "name": "a"}, `, 1001), ", ")
	for name, test := range map[string]struct {
		query, body string
		status      int
		want        string
	}{
		"nothing":   {"", `{}`, 400, "the request has 0 resources, want 1 to 1000"},
		"too much":  {"", `{"delete": [` + many + `]}`, 400, "the request has 1001 resources"},
		"no object": {"", `[]`, 400, "the body is a JSON array"},
		"a field":   {"", `{"put": []}`, 400, "unknown field"},
		"a query":   {"?fields=maybe", `{}`, 400, "is neither true nor false"},
		"a type":    {"", `{"delete": [{"type": "No", "name": "a"}]}`, 400, "is not a type of this control plane"},
		"a read type": {"", `{"delete": [{"type": "ZoneInsight", "name": "a"}]}`, 403,
			"written by the control plane only"},
		"an absent one": {"", `{"delete": [{"type": "MeshTimeout", "mesh": "shop", "name": "no"}]}`, 400,
			"does not exist"},
		"no name": {"", `{"apply": [{"type": "Mesh"}]}`, 400, "has no name"},
		"a value": {"", `{"apply": [{"type": "MeshTimeout", "mesh": "shop", "name": "a", "spec": {"to": [{"targetRef": ` +
			`{"kind": "Mesh"}, "default": {"connectionTimeout": "0s"}}]}}]}`, 400,
			"apply[0].spec.to[0].default.connectionTimeout"},
		"a size": {"", `{"apply": ["` + strings.Repeat("a", maxDiffBytes) + `"]}`, http.StatusRequestEntityTooLarge, ""},
	} {
		status, _, response := s.send(t, "POST", "/_diff"+test.query, test.body, nil)
		if status != test.status || !strings.Contains(response, test.want) {
			t.Errorf("%s: %d %.300s, want %d with %q", name, status, response, test.status, test.want)
		}
	}
	body := `{"apply": [{"type": "Mesh", "name": "new"}], "delete": [{"type": "Mesh", "name": "new"}]}`
	if status, _, response := s.send(t, "POST", "/_diff", body, nil); status != http.StatusOK {
		t.Errorf("a resource that is written and deleted: %d %s", status, response)
	}
	if status, _, _ := s.send(t, "GET", "/meshes/new", "", nil); status != http.StatusNotFound {
		t.Errorf("the diff wrote a Mesh: %d", status)
	}
}
