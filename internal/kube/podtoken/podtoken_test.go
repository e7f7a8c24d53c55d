package podtoken

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/rest"

	"weft/internal/kube/api"
	"weft/resource"
)

// reviewer is an API server that reviews tokens with a fixed status.
type reviewer struct {
	status string
	mu     sync.Mutex
	specs  []string
}

func (r *reviewer) start(t *testing.T, now func() time.Time) *Verifier {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var review struct{ Spec json.RawMessage }
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.specs = append(r.specs, string(review.Spec))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":%s}`, r.status)
	}))
	t.Cleanup(server.Close)
	client, err := api.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, "weft", now)
}

func tokenUntil(t *testing.T, expires time.Time) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"exp": expires.Unix()}).
		SignedString([]byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// user is a reviewed Pod, as the API server describes it.
const user = `"user":{"username":"system:serviceaccount:shop:web","extra":` +
	`{"authentication.kubernetes.io/pod-name":["web-1"],"authentication.kubernetes.io/pod-uid":["u1"]}}`

// TestAudiences: a review counts only if the API server has checked the audience. One that does not know audiences
// accepts tokens for the API server, and returns no audience.
func TestAudiences(t *testing.T) {
	for _, test := range []struct{ status, problem string }{
		{`{"authenticated":true,"audiences":["weft"],` + user + `}`, ""},
		{`{"authenticated":true,"audiences":["other","weft"],` + user + `}`, ""},
		{`{"authenticated":true,` + user + `}`, "accepts the token for the audiences []"},
		{`{"authenticated":true,"audiences":["https://kubernetes.default.svc"],` + user + `}`, `and want "weft"`},
		{`{"authenticated":false,"audiences":["weft"],"error":"no",` + user + `}`, "does not accept the token (no)"},
		{`{"authenticated":true,"audiences":["weft"],"user":{"username":"system:serviceaccount:shop:web"}}`,
			"is not bound to a Pod"},
		{`{"authenticated":true,"audiences":["weft"],"user":{"username":"web-1"}}`, "is not bound to a Pod"},
	} {
		r := &reviewer{status: test.status}
		v := r.start(t, time.Now)
		token := tokenUntil(t, time.Now().Add(time.Hour))
		pod, err := v.Verify(t.Context(), token)
		switch {
		case test.problem == "":
			if err != nil || pod.String() != "shop/web-1" || pod.UID != "u1" || pod.ServiceAccount != "web" {
				t.Errorf("%s: %v, %v", test.status, pod, err)
			}
		case resource.CodeOf(err) != resource.Unauthorized || !strings.Contains(err.Error(), test.problem):
			t.Errorf("%s: %v, want %s", test.status, err, test.problem)
		}
		if err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("the error has the token: %v", err)
		}
		if _, known := v.Known(token); known != (test.problem == "") {
			t.Errorf("%s: the token is known: %v", test.status, known)
		}
		if want := fmt.Sprintf(`{"audiences":["weft"],"token":"%s"}`, token); r.specs[0] != want {
			t.Errorf("the review has the spec %s, want %s", r.specs[0], want)
		}
	}
}

// TestKnown: a token is known for 5 minutes, until it expires, or until it is removed.
func TestKnown(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	r := &reviewer{status: `{"authenticated":true,"audiences":["weft"],` + user + `}`}
	v := r.start(t, func() time.Time { return now })
	known := func(token string, want bool) {
		t.Helper()
		if _, got := v.Known(token); got != want {
			t.Errorf("the token is known: %v, want %v", got, want)
		}
	}
	verify := func(token string) {
		t.Helper()
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		known(token, true)
	}
	long, short := tokenUntil(t, now.Add(time.Hour)), tokenUntil(t, now.Add(time.Minute))
	verify(long)
	verify(short)
	now = now.Add(time.Minute)
	known(short, false)
	known(long, true)
	if _, err := v.Verify(t.Context(), short); resource.CodeOf(err) != resource.Unauthorized ||
		!strings.Contains(err.Error(), "has expired") {
		t.Errorf("an expired token: %v", err)
	}
	now = now.Add(4 * time.Minute)
	known(long, false)
	verify(long)
	v.Remove(long)
	known(long, false)
	verify(long)
	if len(r.specs) != 4 {
		t.Errorf("there were %d reviews, want 4", len(r.specs))
	}
}
