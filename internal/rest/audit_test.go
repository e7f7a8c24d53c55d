package rest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weft/internal/audit"
)

// entries returns the entries of the audit log.
func (w *world) entries(t *testing.T) (all []audit.Entry) {
	t.Helper()
	for line := range strings.Lines(w.audit.String()) {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

func TestWhatIsRecorded(t *testing.T) {
	w := newWorld(t, newStore(t))
	secret := base64.StdEncoding.EncodeToString([]byte("swordfish"))
	token := text(w.do("POST", "/tokens/user", `{"name":"ann","groups":["ops"],"validFor":"1h"}`, nil))
	ann := http.Header{"Authorization": {"Bearer " + token}, "X-Forwarded-For": {"203.0.113.9"}}
	for _, request := range []struct {
		method, path, body string
		header             http.Header
	}{
		{"PUT", "/meshes/default", `{"type":"Mesh","name":"default"}`, nil},
		{"PUT", "/meshes/default", `{"type":"Mesh","name":"default","labels":{"team":"a"}}`, nil},
		{"PUT", "/meshes/default/secrets/s", `{"type":"Secret","data":"` + secret + `"}`, nil},
		{"GET", "/meshes/default/secrets/s", "", nil},
		{"GET", "/meshes/default", "", nil}, // every caller may
		{"DELETE", "/meshes/default/secrets/s", "", nil},
		{"DELETE", "/meshes/default", "", ann},
		{"PUT", "/meshes/default", `{"type":"Mesh","name":"other"}`, nil},
	} {
		w.do(request.method, request.path, request.body, request.header)
	}
	w.from("192.0.2.7:4000", "DELETE", "/meshes/default") // an unauthenticated caller leaves no entry

	want := []struct {
		request string
		status  int
		check   func(audit.Entry) bool
	}{
		{"POST /tokens/user", 200, func(e audit.Entry) bool { return e.Token != nil && e.Token.Kind == "user-token" }},
		{"PUT /meshes/default", 201, func(e audit.Entry) bool {
			return e.Before == nil && e.VersionBefore == "" && e.After != nil && e.Resource.Type == "Mesh" &&
				e.User.Proof == "adminSocket"
		}},
		{"PUT /meshes/default", 200, func(e audit.Entry) bool {
			return !strings.Contains(string(e.Before), "team") && strings.Contains(string(e.After), `"team":"a"`) &&
				e.VersionBefore != e.VersionAfter
		}},
		{"PUT /meshes/default/secrets/s", 201, func(e audit.Entry) bool {
			return strings.Contains(string(e.After), `"data":"***"`)
		}},
		{"GET /meshes/default/secrets/s", 200, func(e audit.Entry) bool {
			return e.Action == "adminResources" && e.After == nil
		}},
		{"DELETE /meshes/default/secrets/s", 200, func(e audit.Entry) bool {
			return e.After == nil && e.VersionBefore != "" && e.Resource.Name == "s" && e.Resource.Mesh == "default"
		}},
		{"DELETE /meshes/default", 403, func(e audit.Entry) bool {
			return e.User.Name == "ann" && e.User.TokenID != "" && e.From == "uid 1000, pid 4711" &&
				strings.Contains(e.Error, "may not write")
		}},
		{"PUT /meshes/default", 400, func(e audit.Entry) bool { return strings.Contains(e.Error, "do not agree") }},
	}
	got := w.entries(t)
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d:\n%s", len(got), len(want), &w.audit)
	}
	for i, e := range got {
		if e.Request != want[i].request || e.Status != want[i].status || e.Instance != "instance-1" ||
			e.Time.IsZero() || !want[i].check(e) {
			t.Errorf("entry %d: %s", i, strings.Split(w.audit.String(), "\n")[i])
		}
	}
	for _, value := range []string{secret, "swordfish", token} {
		if strings.Contains(w.audit.String(), value) {
			t.Errorf("the audit log shows %q", value)
		}
	}
}

// A dry run is recorded with its action, and as unchanged.
func TestADryRunChangedNothing(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.do("PUT", "/meshes/default?dryRun=true", `{"type":"Mesh","name":"default"}`, nil)
	if got := w.entries(t); len(got) != 1 || got[0].Request != "PUT /meshes/default?dryRun=true" ||
		got[0].Resource != nil || got[0].After != nil {
		t.Errorf("entries:\n%s", &w.audit)
	}
}

// A note is in the entry of its request. A faulty one changes nothing, and tells a stranger nothing.
func TestNotesAreRecorded(t *testing.T) {
	w := newWorld(t, newStore(t))
	note := http.Header{audit.NoteHeader: {"INC-7: a second mesh"}}
	w.do("PUT", "/meshes/shop", `{"type":"Mesh"}`, note)
	w.do("GET", "/global-secrets", "", note)
	if r := w.do("PUT", "/meshes/other", `{"type":"Mesh"}`,
		http.Header{audit.NoteHeader: {"a\tb"}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a faulty note: %s", r.Status)
	}
	if r := w.do("GET", "/meshes/other", "", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("the write of a faulty note: %s", r.Status)
	}
	var notes []string
	for _, e := range w.entries(t) {
		notes = append(notes, e.Request+": "+e.Note)
	}
	want := []string{"PUT /meshes/shop: INC-7: a second mesh", "GET /global-secrets: INC-7: a second mesh",
		"PUT /meshes/other: "}
	if !slices.Equal(notes, want) {
		t.Errorf("the entries are %q, want %q", notes, want)
	}
	stranger := httptest.NewRequest("PUT", "/meshes/other", strings.NewReader(`{"type":"Mesh"}`))
	stranger.Header.Set(audit.NoteHeader, "a\tb")
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, stranger)
	if recorder.Code != http.StatusUnauthorized {
		t.Errorf("a stranger: %d", recorder.Code)
	}
}
