package rest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weft/internal/access"
)

func TestWhoIsLetIn(t *testing.T) {
	allowed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	tests := map[string]struct {
		method, peer, host string
		header             http.Header
		socket             bool // the administrator's
		want               int
	}{
		"this machine":             {peer: "127.0.0.1:4000", host: "localhost:5681", want: 401},
		"another loopback address": {peer: "127.20.0.1:4000", host: "127.20.0.1", want: 401},
		"IPv6":                     {peer: "[::1]:4000", host: "[::1]:5681", want: 401},
		"IPv4 in IPv6":             {peer: "[::ffff:127.0.0.1]:4000", host: "LOCALHOST", want: 401},
		"another machine":          {peer: "10.0.0.1:4000", host: "localhost:5681", want: 401},
		"a name for this machine":  {peer: "127.0.0.1:4000", host: "rebound.example.com", want: 401},
		"who claims to be forwarded": {peer: "127.0.0.1:4000", host: "localhost",
			header: http.Header{"X-Forwarded-For": {"127.0.0.1"}}, want: 401},
		"who claims the socket": {peer: "uid 0, pid 1", host: "localhost", want: 401},
		"the socket":            {peer: "uid 0, pid 1", host: "localhost", socket: true, want: 204},
		"the socket with a token that is none": {peer: "uid 0, pid 1", host: "localhost", socket: true,
			header: http.Header{"Authorization": {"Basic YTpi"}}, want: 401},
		"a page of another site": {method: "POST", peer: "uid 0, pid 1", host: "localhost", socket: true,
			header: http.Header{"Sec-Fetch-Site": {"cross-site"}}, want: 403},
		"a page of another origin": {method: "POST", peer: "uid 0, pid 1", host: "localhost:5681", socket: true,
			header: http.Header{"Origin": {"http://evil.example"}}, want: 403},
		"a page of this API itself": {method: "POST", peer: "uid 0, pid 1", host: "localhost:5681", socket: true,
			header: http.Header{"Origin": {"http://localhost:5681"}}, want: 204},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, "/meshes", nil)
			r.RemoteAddr, r.Host = test.peer, test.host
			for name, values := range test.header {
				r.Header[name] = values
			}
			w := httptest.NewRecorder()
			guard := &Guard{Rules: access.Defaults(), Denied: access.NewDenials(slog.New(slog.DiscardHandler))}
			handler := guard.Protect(access.Write, allowed)
			if test.socket {
				handler = AsAdministrator(handler)
			}
			handler.ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("status %d, want %d: %s", w.Code, test.want, w.Body)
			}
		})
	}
}

// Every path of the API has an action, and an unauthenticated caller reaches only the index.
func TestEveryRouteHasItsRule(t *testing.T) {
	w := newWorld(t, newStore(t))
	rules := access.Defaults()
	for _, route := range newAPI(w.config()).routes() {
		if _, ruled := rules[route.action]; !ruled && route.action != access.Open && route.action != access.Known {
			t.Errorf("%s is for action %q, which no setting rules", route.pattern, route.action)
		}
		method, path, _ := strings.Cut(route.pattern, " ")
		path = strings.NewReplacer("{mesh}", "default", "{name}", "a", "{$}", "").Replace(path)
		want := http.StatusUnauthorized
		if path == "/" {
			want = http.StatusOK
		}
		if got := w.from("192.0.2.7:4000", method, path); got.Code != want {
			t.Errorf("%s %s from another machine: %d, want %d", method, path, got.Code, want)
		}
	}
	if got := w.from("192.0.2.7:4000", "GET", "/nothing"); got.Code != http.StatusUnauthorized ||
		got.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("a stranger learns which paths there are: %d", got.Code)
	}
}

// from sends a request from another machine.
func (w *world) from(peer, method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = peer, "cp.example.com"
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	return recorder
}

func TestIndexNamesTheControlPlane(t *testing.T) {
	body := text(newWorld(t, newStore(t)).do("GET", "/", "", nil))
	for _, part := range []string{`"product":"weft"`, `"version":"1.2.3"`, `"instanceId":"instance-1"`,
		`"clusterId":"east"`, `"hostname":`} {
		if !strings.Contains(body, part) {
			t.Errorf("the index lacks %s: %s", part, body)
		}
	}
}
