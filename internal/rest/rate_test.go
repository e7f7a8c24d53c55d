package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/resource"
)

// TestWritesOfAUserWait: writes of a user beyond the rate wait for their turn, then they are rejected. Those of another
// user, and of an operator, do not wait.
func TestWritesOfAUserWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		guard := &Guard{Rules: access.Rules{access.OperatorResources: {Users: []string{"oscar"}}}, Now: time.Now}
		write := func(ctx context.Context, user string) (time.Duration, error) {
			began := time.Now()
			r := httptest.NewRequest("PUT", "/meshes/m/meshtimeouts/t", nil)
			ctx = access.WithUser(ctx, access.NewUser(user, nil, access.ByUserToken))
			return time.Since(began), guard.awaitTurn(httptest.NewRecorder(), r.WithContext(ctx), 1)
		}
		began := time.Now()
		for i := range writesAtOnce + 2*writesASecond {
			if _, err := write(t.Context(), "ann"); err != nil {
				t.Fatalf("write %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the writes took %s, want 2 s", took)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		for range writesASecond * int(longestTurn/time.Second) {
			if _, err := write(ended, "ann"); !errors.Is(err, context.Canceled) {
				t.Fatalf("a client that is gone: %v", err)
			}
		}
		began = time.Now()
		if _, err := write(t.Context(), "ann"); resource.CodeOf(err) != resource.Unavailable {
			t.Errorf("beyond the longest turn: %v", err)
		}
		for _, other := range []string{"bob", "oscar"} {
			if _, err := write(t.Context(), other); err != nil || time.Since(began) > 0 {
				t.Errorf("%s waits for %s (%v)", other, time.Since(began), err)
			}
		}
		for range 2 * (writesAtOnce + writesASecond) {
			if _, err := write(t.Context(), "oscar"); err != nil || time.Since(began) > 0 {
				t.Fatalf("an operator waits for %s (%v)", time.Since(began), err)
			}
		}
	})
}

// TestAWriteThatIsTooMany: the response of a PUT and a DELETE states the bound and when to try again, and nothing is
// written. A read is served.
func TestAWriteThatIsTooMany(t *testing.T) {
	a := newActors(t)
	a.put(t, "/meshes/default", `{"type":"Mesh"}`)
	config := a.config()
	config.Guard.Rules[access.Write] = access.Rule{Groups: []string{"write"}}
	a.handler = New(config)
	now := time.Now()
	config.Guard.Now = func() time.Time { return now }
	config.Guard.writes.of("ann").Charge(writesAtOnce+writesASecond*5, now, longestTurn)
	const path, timeout = "/meshes/default/meshtimeouts/t",
		`{"type":"MeshTimeout","spec":{"rules":[{"default":{"idleTimeout":"1s"}}]}}`
	for _, method := range []string{"PUT", "DELETE"} {
		r := a.as("write", method, path, timeout)
		want := `the user \"ann\" writes more than 100 resources a second, and 1000 at once; try again in 6 s`
		if r.Code != 503 || r.Header().Get("Retry-After") != "6" || !strings.Contains(r.Body.String(), want) {
			t.Errorf("%s: %d, Retry-After %q: %s", method, r.Code, r.Header().Get("Retry-After"), r.Body)
		}
	}
	if r := a.do("GET", path, "", nil); r.StatusCode != 404 {
		t.Errorf("the read returns %s", r.Status)
	}
	now = now.Add(time.Minute)
	if r := a.as("write", "PUT", path, timeout); r.Code != 201 {
		t.Errorf("a minute later: %d %s", r.Code, r.Body)
	}
}

// TestTheRateIsDocumented: docs/operations/bounds.md has the numbers of the code.
func TestTheRateIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/bounds.md")
	want := fmt.Sprintf("| %d at once then %d a second | they wait for %d s at most", writesAtOnce, writesASecond,
		int(longestTurn.Seconds()))
	if err != nil || !strings.Contains(strings.ReplaceAll(string(text), ",", ""), want) {
		t.Errorf("docs/operations/bounds.md lacks %q (%v)", want, err)
	}
}
