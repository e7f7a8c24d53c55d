package rest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weft/internal/schema"
	"weft/internal/schema/schematest"
	"weft/kind"
	"weft/resource"
)

// TestExamplesOfKinds writes the example of each kind, and reads it in both forms. The response conforms to the kind's
// schema and to the OpenAPI document, and can be written back.
func TestExamplesOfKinds(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	api := schema.OpenAPI("1")
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden || info.ReadOnly {
			continue
		}
		t.Run(info.Name, func(t *testing.T) {
			example, err := os.ReadFile(filepath.Join("../../examples/kinds", strings.ToLower(info.Name)+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			described, err := schematest.Compile(api, "/components/schemas/"+info.Name)
			if err != nil {
				t.Fatal(err)
			}
			at := pathOf(t, example)
			w.put(t, at, string(example))
			for _, form := range []string{"universal", "k8s"} {
				read := text(w.do("GET", at+"?format="+form, "", nil))
				if err := schematest.Check(d, []byte(read)); err != nil {
					t.Errorf("%v\n%s", err, read)
				}
				if err := schematest.Validate(described, []byte(read)); err != nil {
					t.Errorf("OpenAPI: %v\n%s", err, read)
				}
				if again := w.do("PUT", at, read, nil); again.StatusCode != http.StatusOK ||
					!strings.Contains(text(again), `"changed":false`) {
					t.Errorf("writing what was read answers %s\n%s", again.Status, read)
				}
			}
		})
	}
}

// pathOf returns the path of a resource.
func pathOf(t *testing.T, document []byte) string {
	t.Helper()
	o, err := resource.Parse(document, kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	at := "/" + kind.ByName(o.Key().Kind).Describe().Plural + "/" + o.Key().Name
	if mesh := o.Key().Mesh; mesh != "" {
		at = "/meshes/" + mesh + at
	}
	return at
}

// TestOpenAPISaysWhatIsServed: the API serves every request of the document, and the document has every path of a kind.
func TestOpenAPISaysWhatIsServed(t *testing.T) {
	a := newAPI(newWorld(t, newStore(t)).config())
	described := map[string]bool{}
	for path, operations := range schema.OpenAPI("1").Paths {
		for method := range operations {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	served := map[string]bool{}
	for _, d := range kind.All() {
		info := d.Describe()
		if info.Hidden {
			continue
		}
		for _, segment := range info.Segments() {
			for _, r := range a.kindRoutes(d, segment) {
				served[r.pattern] = true
				if !described[r.pattern] {
					t.Errorf("%s is served and not described", r.pattern)
				}
			}
		}
	}
	for request := range described {
		if !served[request] {
			t.Errorf("%s is described and not served", request)
		}
	}
}

// TestOpenAPIIsWhole: every reference has a target, and no two operations have the same name.
func TestOpenAPIIsWhole(t *testing.T) {
	w := newWorld(t, newStore(t))
	body := text(w.do("GET", "/openapi.json", "", nil))
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`"\$ref":"#/([^"]+)"`).FindAllStringSubmatch(body, -1) {
		at := document
		for step := range strings.SplitSeq(found[1], "/") {
			inner, _ := at.(map[string]any)
			at = inner[step]
		}
		if at == nil {
			t.Errorf("there is no %s", found[1])
		}
	}
	taken := map[string]bool{}
	for _, found := range regexp.MustCompile(`"operationId":"([^"]+)"`).FindAllStringSubmatch(body, -1) {
		if taken[found[1]] {
			t.Errorf("there are two operations %s", found[1])
		}
		taken[found[1]] = true
	}
}

func TestSchemasAreServed(t *testing.T) {
	w := newWorld(t, newStore(t))
	var index struct{ Schemas map[string]string }
	if err := json.Unmarshal([]byte(text(w.do("GET", "/_schemas", "", nil))), &index); err != nil {
		t.Fatal(err)
	}
	for name, at := range index.Schemas {
		r := w.do("GET", at, "", nil)
		if body := text(r); r.StatusCode != http.StatusOK ||
			r.Header.Get("Content-Type") != "application/schema+json" || !strings.Contains(body, `"title":"`+name+`"`) {
			t.Errorf("%s: %s %s", at, r.Status, body)
		}
	}
	if len(index.Schemas) == 0 || index.Schemas["DataplaneListenerStatus"] != "" {
		t.Errorf("the schemas are %v", index.Schemas)
	}
	for _, absent := range []string{"/_schemas/Pod", "/_schemas/DataplaneListenerStatus"} {
		if r := w.do("GET", absent, "", nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %s", absent, r.Status)
		}
	}
}
