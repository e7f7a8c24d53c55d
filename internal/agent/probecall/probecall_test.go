package probecall_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"weft/internal/agent/probecall"
)

// TestDeclaration: a call that an HTTP client sends is declared by what the Pod has, whatever the client adds.
func TestDeclaration(t *testing.T) {
	declared := http.Header{"x-b": {" two\t", "three"}, "A": {"one"}, "user-agent": {"mine"}, "Accept": {""}}
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = probecall.Declaration(r.URL.RequestURI(), r.Header)
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/80/a?b=c", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range declared {
		for _, value := range values {
			request.Header.Add(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if want := probecall.Declaration("/80/a?b=c", declared); got != want || got == "/80/a?b=c" {
		t.Errorf("the call is %q, the Pod declares %q", got, want)
	}
	for name, other := range map[string]http.Header{
		"no header":       {},
		"another value":   {"X-B": {"two", "four"}, "A": {"one"}},
		"another header":  {"X-B": {"two", "three"}, "A": {"one"}, "C": {""}},
		"a moved value":   {"X-B": {"two"}, "A": {"one", "three"}},
		"another timeout": {"X-B": {"two", "three"}, "A": {"one"}, probecall.TimeoutHeader: {"600"}},
	} {
		if probecall.Declaration("/80/a?b=c", other) == got {
			t.Errorf("a call with %s is declared too", name)
		}
	}
}
