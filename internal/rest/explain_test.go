package rest

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// TestExplainedRequestIsBounded: the headers and the path of a request to explain have bounds, and an error names them.
func TestExplainedRequestIsBounded(t *testing.T) {
	many := url.Values{"to": {"b"}}
	for range 65 {
		many.Add("header", "a: b")
	}
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	w.put(t, "/meshes/default/dataplanes/a", `{"type":"Dataplane","mesh":"default","name":"a",`+
		`"networking":{"address":"10.0.0.1","inbound":[{"port":8080,"tags":{"kuma.io/service":"a"}}]}}`)
	for want, query := range map[string]url.Values{
		"header is given 65 times, at most 64 are possible": many,
		"header[0] has 4099 bytes, at most 4096 are possible": {"to": {"b"},
			"header": {"a: " + strings.Repeat("b", 4096)}},
		"to \\\"\\\\xff\\\" has a control character, or bytes that are no UTF-8":    {"to": {"\xff"}},
		"method \\\"\\\\n\\\" has a control character, or bytes that are no UTF-8":  {"to": {"b"}, "method": {"\n"}},
		"path \\\"/\\\\xff\\\" has a control character, or bytes that are no UTF-8": {"to": {"b"}, "path": {"/\xff"}},
		"header[0] has a control character, or bytes that are no UTF-8, in its value": {"to": {"b"},
			"header": {"x: \xff"}},
		"path has 8193 bytes, at most 8192 are possible": {"to": {"b"}, "path": {"/" + strings.Repeat("b", 8192)}},
	} {
		field, reason, _ := strings.Cut(want, " ")
		r := w.do("GET", "/meshes/default/dataplanes/a/_explain?"+query.Encode(), "", nil)
		if body := text(r); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"field":"`+field+`"`) ||
			!strings.Contains(body, reason) {
			t.Errorf("%s: %s %s", want, r.Status, body)
		}
	}
	request, problems := explainedRequest(url.Values{"to": {"b"}, "header": {"X-A: b", "x-b:c", "x-a:\td "}})
	if want := map[string]string{"x-a": "b,d", "x-b": "c"}; len(problems) > 0 ||
		!reflect.DeepEqual(request.Headers, want) {
		t.Errorf("the headers are %v, %v, want %v", request.Headers, problems, want)
	}
}
