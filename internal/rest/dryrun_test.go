package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/internal/testwait"
)

// TestDryRunOfAChange: each write and deletion of a change is checked as if those before it were stored, and nothing is
// stored.
func TestDryRunOfAChange(t *testing.T) {
	s := shop(t)
	body := `{"apply": [{"type": "Mesh", "name": "new"},
		{"type": "MeshTimeout", "mesh": "new", "name": "a", "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default":
			{"connectionTimeout": "1s"}}]}},
		{"type": "MeshTimeout", "mesh": "new", "name": "a", "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default":
			{"connectionTimeout": "2s"}}]}}],
		"delete": [{"type": "MeshTimeout", "mesh": "new", "name": "a"}, {"type": "MeshTimeout", "mesh": "new", "name": "b"}]}`
	status, _, response := s.send(t, "POST", "/_dry-run", body, nil)
	var got DryRunResponse
	if err := json.Unmarshal([]byte(response), &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, response)
	}
	outcomes := ""
	for _, r := range got.Resources {
		outcomes += r.Type + " " + r.Name + " " + r.Outcome + ", "
	}
	const want = "Mesh new created, MeshTimeout a created, MeshTimeout a updated, MeshTimeout a deleted, " +
		"MeshTimeout b absent, "
	if outcomes != want || !strings.Contains(string(got.Resources[2].Resource), `"connectionTimeout":"2s"`) {
		t.Errorf("the outcomes are %s, want %s: %s", outcomes, want, response)
	}
	if status, _, _ := s.send(t, "GET", "/meshes/new", "", nil); status != http.StatusNotFound {
		t.Errorf("the dry run wrote a Mesh: %d", status)
	}
}

// TestRejectedDryRun: the error of a dry run names every write that would be rejected. What lacks only a Mesh that is
// rejected itself is said to.
func TestRejectedDryRun(t *testing.T) {
	s := shop(t)
	many := strings.TrimSuffix(strings.Repeat(`{"type": "MeshTimeout", "mesh": "shop", "name": "a"}, `,
		MaxDryRunItems+1), ", ")
	for name, test := range map[string]struct {
		body   string
		status int
		want   []string
	}{
		"nothing":       {`{}`, 400, []string{"the request has 0 resources"}},
		"a list twice":  {`{"apply": [], "Apply": []}`, 400, []string{`an object has \"Apply\" twice`}},
		"a field twice": {`{"delete": [{"type": "Mesh", "name": "a", "name": "b"}]}`, 400, []string{`\"name\" twice`}},
		"no names": {`{"delete": [{"type": "MeshTimeout", "mesh": "shop"}, {"type": "MeshTimeout", "name": "a"},
			{"type": "Mesh", "mesh": "shop", "name": "a"}, {"type": "Mesh", "name": "A b"}]}`, 400,
			[]string{`"delete[0].name","reason":"is required`, `"delete[1].mesh","reason":"is required`,
				`"delete[2].mesh","reason":"is \"shop\"`, `"delete[3].name"`}},
		"too many": {`{"delete": [` + many + `]}`, 400, []string{"the request has 10001 resources", "in parts"}},
		"a size": {`{"apply": ["` + strings.Repeat("a", MaxDryRunBytes) + `"]}`, http.StatusRequestEntityTooLarge,
			nil},
		"several": {`{"apply": [{"type": "Mesh", "name": "bad", "routing": {"zoneEgress": "maybe"}},
			{"type": "Mesh", "name": "Bad"}, {"type": "MeshTimeout", "mesh": "bad", "name": "a", "spec": {"to":
			[{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]}},
			{"type": "MeshTimeout", "mesh": "shop", "name": "a", "spec": {"to": [{"targetRef": {"kind": "Mesh"},
			"default": {"connectionTimeout": "0s"}}]}}, {"type": "No", "name": "a"}],
			"delete": [{"type": "ZoneInsight", "name": "a"}]}`, 403,
			[]string{`"apply[0]`, `"apply[1].name"`, "once the Mesh bad", "apply[3].spec.to[0].default.connectionTimeout",
				`"apply[4]`, `"delete[0]"`, "written by the control plane only"}},
	} {
		status, _, response := s.send(t, "POST", "/_dry-run", test.body, nil)
		if status != test.status {
			t.Errorf("%s: %d %.300s, want %d", name, status, response, test.status)
		}
		for _, want := range test.want {
			if !strings.Contains(response, want) {
				t.Errorf("%s: %s, want %q", name, response, want)
			}
		}
	}
}

// TestUnknownParametersOfAChange: a parameter that a diff or a dry run does not have is an error.
func TestUnknownParametersOfAChange(t *testing.T) {
	s := shop(t)
	const body = `{"apply": [{"type": "Mesh", "name": "new"}]}`
	for path, want := range map[string]string{
		"/_dry-run?foo=1": `"foo"`, "/_dry-run?fields=true": `"fields"`, "/_diff?shadow=true&Fields=true": `"Fields"`,
		"/_dry-run": "", "/_diff?fields=true&shadow=false": "",
	} {
		status, _, response := s.send(t, "POST", path, body, nil)
		if want == "" && status != http.StatusOK || want != "" && (status != 400 || !strings.Contains(response, want)) {
			t.Errorf("%s: %d %s, want %q", path, status, response, want)
		}
	}
}

// TestCallersOfADryRun: a dry run takes the permissions of its writes, and shows nothing to callers without them.
func TestCallersOfADryRun(t *testing.T) {
	a := newActors(t)
	a.put(t, "/meshes/default", `{"type":"Mesh"}`)
	const secret = `{"apply":[{"type":"Secret","mesh":"default","name":"a","data":"c3dvcmRmaXNo"}]}`
	const timeout = `{"apply":[{"type":"MeshTimeout","mesh":"default","name":"a","spec":{"to":[{"targetRef":` +
		`{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}}]}`
	for _, test := range []struct {
		role, body string
		want       int
	}{
		{"read", timeout, 403}, {"preview", timeout, 403}, {"read,preview", timeout, 200},
		{"read,preview", secret, 403},
		{"write", timeout, 200}, {"write", secret, 403}, {"adminResources", secret, 200},
		{"adminResources", timeout, 403}, {"ops", strings.Repeat(" ", MaxDryRunBytes+1), 403},
		{access.AdminGroup, secret, 200},
	} {
		got := a.as(test.role, "POST", "/_dry-run", test.body)
		if got.Code != test.want || test.want != 200 && strings.Contains(got.Body.String(), "c3dvcmRmaXNo") {
			t.Errorf("%s, %.40s: %d %s", test.role, test.body, got.Code, got.Body)
		}
	}
}

// TestDryRunsOfOneUser: a user who has a dry run waits for its end, and another user does not.
func TestDryRunsOfOneUser(t *testing.T) {
	var turns userTurns
	release, err := turns.acquire(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.acquire(ctx, "ann"); err == nil {
		t.Error("ann has two turns at once")
	}
	other, err := turns.acquire(ctx, "bob")
	if err != nil {
		t.Fatal("bob waits for ann: ", err)
	}
	other()
	waits := make(chan func())
	go func() {
		next, err := turns.acquire(t.Context(), "ann")
		if err != nil {
			t.Error(err)
		}
		waits <- next
	}()
	release()
	testwait.Receive(t, "the next turn of ann", waits)()
	if len(turns.busy) != 0 {
		t.Errorf("%d users are kept", len(turns.busy))
	}
}

// TestChangesTakeTurns: a diff or a dry run of a user waits for the end of the one before.
func TestChangesTakeTurns(t *testing.T) {
	w := newWorld(t, newStore(t)) // its servers are no part of the bubble
	bubble.Test(t, func(t *testing.T) {
		config := w.config()
		config.Inspector = knowing{}
		a := newAPI(config)
		for _, path := range []string{"/_diff", "/_dry-run"} {
			release, err := a.diffs.turns.acquire(t.Context(), access.Administrator().Name)
			if err != nil {
				t.Fatal(err)
			}
			codes := make(chan int, 1)
			go func() {
				recorder := httptest.NewRecorder()
				AsAdministrator(a.Guard.identify(http.HandlerFunc(a.route))).ServeHTTP(recorder,
					httptest.NewRequestWithContext(t.Context(), "POST", path,
						strings.NewReader(`{"apply": [{"type": "Mesh", "name": "Bad"}]}`)))
				codes <- recorder.Code
			}()
			synctest.Wait()
			if len(codes) > 0 {
				t.Errorf("%s does not wait", path)
			}
			release()
			if code := <-codes; code != http.StatusBadRequest {
				t.Errorf("%s gets %d after its turn", path, code)
			}
		}
	})
}

// BenchmarkDryRun checks 5,000 policies of one mesh.
func BenchmarkDryRun(b *testing.B) {
	s := shop(b)
	var documents []string
	for i := range 5000 {
		documents = append(documents, fmt.Sprintf(`{"type": "MeshTimeout", "mesh": "shop", "name": "a-%d", "spec": {"to":
			[{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]}}`, i))
	}
	body := `{"apply": [` + strings.Join(documents, ",") + `]}`
	for b.Loop() {
		if status, _, response := s.send(b, "POST", "/_dry-run", body, nil); status != http.StatusOK {
			b.Fatalf("%d %.300s", status, response)
		}
	}
}
