package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each request by which a command writes has the note of --note, and the command needs none.
func TestWritingCommandsTakeNotes(t *testing.T) {
	canary := `{"type":"MeshTimeout","mesh":"default","name":"web","labels":{"weft.io/canary-selector":"version=v2"},` +
		`"spec":{"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"1s"}}]}}`
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(file, []byte("type: Mesh\nname: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writes, noted := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, canary)
			return
		case strings.HasSuffix(r.URL.Path, "_replace"):
			fmt.Fprint(w, `{"zoneInsight":{}}`)
		case r.URL.Path == "/_dry-run":
			fmt.Fprint(w, `{"resources":[{"outcome":"deleted"}]}`)
		default:
			fmt.Fprint(w, `{}`)
		}
		writes++
		if r.Header.Get("Weft-Note") == "INC-7" {
			noted++
		}
	}))
	defer server.Close()
	t.Setenv("WEFT_API", server.URL)
	t.Setenv("WEFT_CONFIG", filepath.Join(t.TempDir(), "config"))
	for _, line := range []string{
		"apply -f " + file, "delete mesh shop", "delete -f " + file, "promote meshtimeout web", "sni migrate --to v2",
		"zone replace east", "generate dataplane-token --name web", "generate user-token --name ann",
		"generate zone-token --zone east",
	} {
		for _, withNote := range []bool{true, false} {
			writes, noted = 0, 0
			args := strings.Fields(line)
			if withNote {
				args = append(args, "--note", "INC-7")
			}
			var out, errs bytes.Buffer
			if code := run(t.Context(), args, nil, &out, &errs); code != 0 {
				t.Fatalf("weft %s: %s", line, &errs)
			}
			if writes == 0 || withNote && noted != writes || !withNote && noted != 0 {
				t.Errorf("weft %q: %d of %d requests have the note", args, noted, writes)
			}
		}
	}
}
