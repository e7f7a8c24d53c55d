package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"weft/internal/terminal"
)

func TestColorsAreForTerminals(t *testing.T) {
	const diff = "@@ -1 +1 @@\n-a\n+b\n c\n"
	if got := paletteOf(terminal.NewWriter(&bytes.Buffer{})).diff(diff); got != diff {
		t.Errorf("what is no terminal is written %q", got)
	}
}

// hostileText has what a terminal would act on: escape sequences, C1, bidirectional overrides, invisible characters.
const hostileText = "a\x1b[2J\x1b]0;title\a\u009b31m\u202eb\u200b\x7f\U000e0001\u2028c\n\xc3\xa9: 'x' \" \\"

// acting is each character of hostileText on which a terminal acts.
const acting = "\x1b\a\u009b\u202e\u200b\x7f\U000e0001\u2028"

// TestNothingPrintedActsOnTheTerminal: an error, a table and a document of a control plane that has texts of others
// are printed without their control characters, and a document keeps its values.
func TestNothingPrintedActsOnTheTerminal(t *testing.T) {
	const plain = "a\u202eb" // the encoder of YAML does not quote it
	document, err := json.Marshal(map[string]any{"type": "Mesh", "name": hostileText, hostileText: []any{hostileText},
		"plain": plain})
	if err != nil {
		t.Fatal(err)
	}
	problem, err := json.Marshal(map[string]any{"title": hostileText, "detail": hostileText, "status": 400})
	if err != nil {
		t.Fatal(err)
	}
	fails := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case fails:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(problem)
		case strings.HasSuffix(r.URL.Path, "/meshes"):
			_, _ = w.Write([]byte(`{"total":1,"items":[` + string(document) + `],"next":null}`))
		default:
			_, _ = w.Write(document)
		}
	}))
	defer server.Close()
	for _, command := range []string{"get meshes", "get meshes -o json", "get meshes -o yaml", "get mesh a -o json",
		"get mesh a -o yaml", "describe mesh a", "get mesh fails"} {
		t.Run(command, func(t *testing.T) {
			fails = strings.HasSuffix(command, "fails")
			var out, errs bytes.Buffer
			code := run(context.Background(), append([]string{"--api", server.URL}, strings.Fields(command)...), nil,
				&out, &errs)
			all := out.String() + errs.String()
			if strings.ContainsAny(all, acting) {
				t.Errorf("the terminal gets %q", all)
			}
			if all == "" || code == 0 == fails {
				t.Fatalf("it exits with %d: %s", code, all)
			}
			if !strings.HasPrefix(command, "get mesh a") {
				return
			}
			var got struct{ Name, Plain string }
			if strings.HasSuffix(command, "json") {
				err = json.Unmarshal(out.Bytes(), &got)
			} else {
				err = yaml.Unmarshal(out.Bytes(), &got)
			}
			if err != nil || got.Name != hostileText || got.Plain != plain {
				t.Errorf("the document has %q (%v), want %q and %q:\n%s", got, err, hostileText, plain, out.String())
			}
		})
	}
}
