package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"weft/internal/rest"
	"weft/internal/store/memory"
	"weft/internal/view/viewtest"
)

// TestChangesAtAnEarlierRelease: a control plane that cannot check a change as a whole gets its writes and deletions
// one by one, with a warning. A dry run is an error that says what to do.
func TestChangesAtAnEarlierRelease(t *testing.T) {
	reads, stop, err := viewtest.New(memory.New(memory.Options{}), "east")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	current := newAPI(reads, nil, nil)
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests = append(requests, r.Method)
		mu.Unlock()
		if r.URL.Path == "/_dry-run" {
			http.NotFound(w, r)
			return
		}
		rest.AsAdministrator(current).ServeHTTP(w, r)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	const text = "{type: Mesh, name: a}\n---\n{type: Mesh, name: b}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command, method string
		writes          int
		says            string
	}{
		{"apply", http.MethodPut, 2, "those before it stay written"},
		{"delete", http.MethodDelete, 2, "those before it stay written"},
		{"apply --dry-run", http.MethodPut, 0, "is of an earlier release"},
		{"delete --dry-run", http.MethodDelete, 0, "is of an earlier release"},
	} {
		requests = nil
		var out, errs bytes.Buffer
		code := run(t.Context(), append(strings.Fields(c.command), "--api", server.URL, "-f", file), nil, &out, &errs)
		writes := len(slices.DeleteFunc(slices.Clone(requests), func(m string) bool { return m != c.method }))
		if (code == 0) != (c.writes > 0) || writes != c.writes || !strings.Contains(errs.String(), c.says) {
			t.Errorf("weft %s exits with %d after %d writes, want %d: %s%s", c.command, code, writes, c.writes, &out,
				&errs)
		}
	}
}
