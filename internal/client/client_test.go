package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(Options{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestListFollowsEveryPage(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := "null"
		offset := r.URL.Query().Get("offset")
		switch offset {
		case "":
			next = fmt.Sprintf("%q", "http://other.example/meshes?offset=1&size=1000")
		case "1":
			next = fmt.Sprintf("%q", "http://other.example/meshes?offset=2&size=1000")
		}
		fmt.Fprintf(w, `{"total":3,"items":[{"name":"m%s"}],"next":%s}`, offset, next)
	})
	items, err := c.List(t.Context(), "/meshes", nil)
	if err != nil || len(items) != 3 || !strings.Contains(string(items[2]), "m2") {
		t.Errorf("items %s, %v", items, err)
	}
}

func TestErrorsAreShownInFull(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		code   resource.Code
		want   []string
	}{
		"of a field": {
			http.StatusBadRequest,
			`{"title":"Bad Request","detail":"Mesh a is invalid","invalid_parameters":[{"field":"name","reason":"is ` +
				`too long"}]}`,
			resource.Invalid, []string{"Mesh a is invalid", "name: is too long"},
		},
		"without detail": {http.StatusConflict, `{"title":"Conflict"}`, resource.Conflict, []string{"Conflict"}},
		"of a proxy": {http.StatusBadGateway, `<html>`, resource.Internal,
			[]string{"127.0.0.1", "502 Bad Gateway", "no answer of a control plane"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			})
			err := c.Delete(t.Context(), kind.Meshes, "", "a")
			if resource.CodeOf(err) != test.code {
				t.Errorf("code %d, want %d: %v", resource.CodeOf(err), test.code, err)
			}
			for _, part := range test.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.URL
	server.Close()
	c, err := New(Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	var unreachable *Unreachable
	if err := c.Get(t.Context(), "/", nil, nil); !errors.As(err, &unreachable) || unreachable.Address != address {
		t.Errorf("error %v, want that %s is unreachable", err, address)
	}
}

func TestAddressesOfAnAPI(t *testing.T) {
	for address, want := range map[string]bool{
		"http://127.0.0.1:5681": true, "https://cp.example.com/weft/": true,
		"127.0.0.1:5681": false, "unix:///run/weft": true, "unix:data/admin.sock": true, "unix:": false, "": false,
	} {
		if _, err := New(Options{Address: address}); (err == nil) != want {
			t.Errorf("New(%q): %v", address, err)
		}
	}
}

func TestPathsAreEscaped(t *testing.T) {
	tests := []struct {
		got, want string
	}{
		{Path(kind.MeshServices, "default", "web"), "/meshes/default/meshservices/web"},
		{Path(kind.MeshServices, "", ""), "/meshservices"},
		{Path(kind.Meshes, "", "a/../b"), "/meshes/a%2F..%2Fb"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("path %s, want %s", test.got, test.want)
		}
	}
}

func TestAWriteOfAnotherVersionIsStale(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if match := r.Header.Get("If-Match"); match != "" && match != `"2"` {
			w.WriteHeader(http.StatusPreconditionFailed)
			fmt.Fprint(w, `{"title":"Precondition Failed","detail":"Mesh a was changed since"}`)
			return
		}
		w.Header().Set("ETag", `"2"`)
		fmt.Fprint(w, `{"changed":true}`)
	})
	etag, err := c.Read(t.Context(), "/meshes/a", nil, &struct{}{})
	if err != nil || etag != `"2"` {
		t.Errorf("ETag %s, %v", etag, err)
	}
	for etag, code := range map[string]resource.Code{`"1"`: resource.Stale, `"2"`: 0, "": 0} {
		_, err := c.PutIfMatch(t.Context(), kind.Meshes.Make("", "a", kind.Mesh{}), kind.Meshes, etag)
		if (err != nil || code != 0) && resource.CodeOf(err) != code {
			t.Errorf("writing over the ETag %s: %v", etag, err)
		}
	}
}

// Writes have the note of the client, and reads have none.
func TestWritesHaveTheNote(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.Header.Get("Weft-Note"))
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	c, err := New(Options{Address: server.URL, Note: "INC-7: größer"})
	if err != nil {
		t.Fatal(err)
	}
	mesh := kind.Meshes.Make("", "shop", kind.Mesh{})
	_, put := c.Put(t.Context(), mesh, kind.Meshes)
	err = errors.Join(put, c.Delete(t.Context(), kind.Meshes, "", "shop"), c.Post(t.Context(), "/_sni", 1, &[]byte{}),
		c.Get(t.Context(), "/meshes", nil, &[]byte{}))
	const note = " INC-7: größer"
	if want := []string{"PUT" + note, "DELETE" + note, "POST" + note, "GET "}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the requests are %q, want %q: %v", got, want, err)
	}
	if _, err := New(Options{Address: server.URL, Note: "a\nb"}); err == nil ||
		!strings.Contains(err.Error(), "the note has a line break") {
		t.Errorf("a note of two lines: %v", err)
	}
}
