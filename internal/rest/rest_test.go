package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/preview"
	"weft/internal/proxy"
	"weft/internal/replica"
	"weft/internal/settings"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/table"
	"weft/internal/token/tokentest"
	"weft/internal/view"
	"weft/internal/view/viewtest"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/stories")

// world is an API over an empty store.
type world struct {
	handler http.Handler
	store   store.Store
	view    *view.View
	writer  *admission.Writer
	keys    *pki.Keyring
	log     *bytes.Buffer
	audit   bytes.Buffer
}

func newWorld(t testing.TB, rows store.Store) *world { return newWorldOf(t, rows, "east") }

// newWorldOf returns the API of a control plane of a zone, or of global for an empty zone.
func newWorldOf(t testing.TB, rows store.Store, zone string) *world {
	t.Helper()
	reads, stop, err := viewtest.New(rows, zone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	writer := admission.New(reads.Store(), admission.Options{Zone: zone, Patches: envoy.TypeNames(nil)})
	w := &world{store: reads.Store(), view: reads, writer: writer, log: &bytes.Buffer{}}
	w.handler = New(w.config())
	return w
}

func (w *world) config() Config {
	rows := w.store
	tokens, keys := tokentest.New(rows, w.writer)
	w.keys = keys
	return Config{
		Guard: &Guard{Rules: access.Defaults(), Keys: keys, Denied: access.NewDenials(slog.New(slog.DiscardHandler)),
			Now: time.Now},
		Tokens: tokens, Audit: audit.New(&w.audit, "instance-1", time.Now, slog.New(slog.NewTextHandler(w.log, nil))),
		View: w.view, Writer: w.writer, Inspector: stranger{}, RemoteZones: zonequery.NewZone("east", nil, nil),
		Connections: connections{},
		Zone:        "east", InstanceID: "instance-1",
		Expired: replica.NewSingle(replica.Config{ID: "instance-1"}).HasExpired, Version: "1.2.3",
		Settings: []settings.Value{{Path: "store.postgres.password", Value: "***",
			Source: "KUMA_STORE_POSTGRES_PASSWORD"}},
		Now: time.Now, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
}

func newStore(t testing.TB) store.Store {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	return rows
}

// stranger is an inspector that knows no proxy.
type stranger struct{}

func (stranger) Config(state.ProxyKey) ([]*xds.Resource, bool)                  { return nil, false }
func (stranger) ShadowConfig(state.ProxyKey) ([]*xds.Resource, bool)            { return nil, false }
func (stranger) AppliedConfs(state.ProxyKey, ...string) *inspect.Applied        { return nil }
func (stranger) Modifications(*table.Reader, proxy.WholeKey) []inspect.Modified { return nil }
func (stranger) BackingOf(state.ServiceKey, inspect.CallersPage) *inspect.Backing {
	return nil
}
func (stranger) Diff(context.Context, preview.Change, preview.Options) (*preview.Diff, error) {
	return &preview.Diff{Groups: []preview.Group{}}, nil
}
func (stranger) Explain(req envoysim.Request, _ envoysim.RemoteZones) (*envoysim.Explanation, error) {
	return nil, fmt.Errorf("%s reaches nothing at %q", req.From, req.To)
}

// do sends a request over the administrator's socket.
func (w *world) do(method, target, body string, header http.Header) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "uid 1000, pid 4711", "localhost:5681"
	for name, values := range header {
		r.Header[name] = values
	}
	recorder := httptest.NewRecorder()
	AsAdministrator(w.handler).ServeHTTP(recorder, r)
	return recorder.Result()
}

// put writes a valid resource.
func (w *world) put(t testing.TB, path, body string) {
	t.Helper()
	if r := w.do("PUT", path, body, nil); r.StatusCode >= 300 {
		t.Fatalf("PUT %s: %s %s", path, r.Status, text(r))
	}
}

func text(r *http.Response) string {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body) // of a recorder
	return b.String()
}

// TestStories replays requests and compares the responses. A section is a request, "METHOD PATH" followed by headers,
// and the next section is its response. A section STORE is a row that the control plane writes. -update rewrites the
// responses.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/stories/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { replay(t, path) })
	}
}

func replay(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, newStore(t))
	played := &txtar.Archive{Comment: archive.Comment}
	for _, section := range archive.Files {
		method, rest, ok := strings.Cut(section.Name, " ")
		if !ok || method != strings.ToUpper(method) || strings.ContainsAny(method, "0123456789") {
			continue // a response
		}
		if method == "STORE" {
			w.storeOwn(t, section)
			played.Files = append(played.Files, section)
			continue
		}
		target, header := parseTarget(t, rest)
		response := w.do(method, target, string(section.Data), header)
		played.Files = append(played.Files, section,
			txtar.File{Name: response.Status, Data: normalised(text(response))})
	}
	got := txtar.Format(played)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(txtar.Format(archive)), string(got)); diff != "" {
		t.Errorf("the API answers otherwise than %s says (understand the difference before -update):\n%s", path, diff)
	}
}

// storeOwn writes a row of the control plane itself, "STORE KIND MESH/NAME" with the row's body: a proxy's connection,
// a listener status.
func (w *world) storeOwn(t *testing.T, section txtar.File) {
	t.Helper()
	fields := strings.Fields(section.Name)
	mesh, name, _ := strings.Cut(fields[2], "/")
	o, err := resource.FromBody(kind.ByName(fields[1]), resource.Meta{Mesh: mesh, Name: name}, section.Data)
	if err != nil {
		t.Fatalf("%s: %v", section.Name, err)
	}
	w.storeRow(t, o)
}

// storeRow writes a row of the control plane itself.
func (w *world) storeRow(t testing.TB, o resource.Any) {
	t.Helper()
	if _, err := w.writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
		t.Fatalf("%s: %v", o.Key(), err)
	}
}

// parseTarget reads "PATH HEADER=VALUE...".
func parseTarget(t *testing.T, rest string) (string, http.Header) {
	header := http.Header{}
	fields := strings.Fields(rest)
	for _, field := range fields[1:] {
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			t.Fatalf("%q is not HEADER=VALUE", field)
		}
		header.Set(name, value)
	}
	return fields[0], header
}

var passing = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// normalised indents a response and replaces values that differ from run to run.
func normalised(response string) []byte {
	var b bytes.Buffer
	if json.Indent(&b, []byte(response), "", "  ") != nil {
		return []byte(response)
	}
	return passing.ReplaceAll(b.Bytes(), []byte("TIME"))
}

// A kind that the table lacks could not be read.
func TestTheTableHoldsEveryKindOfTheAPI(t *testing.T) {
	state := graph.NewState("east")
	for _, d := range kind.All() {
		info := d.Describe()
		if shown := !info.Hidden || info.StatusOf != ""; shown && !state.Tables.HasRows(info.Name) {
			t.Errorf("%s has no rows in graph.State", info.Name)
		}
	}
}

// A resource that exists during the whole iteration is on one of the pages, once.
func TestPagesOfAChangingList(t *testing.T) {
	w := newWorld(t, newStore(t))
	for _, name := range []string{"b", "d", "f", "h"} {
		w.put(t, "/meshes/"+name, `{"type":"Mesh"}`)
	}
	first, next := w.names(t, "/meshes?size=2")
	w.put(t, "/meshes/a", `{"type":"Mesh"}`) // before the resources that were read
	if r := w.do("DELETE", "/meshes/b", "", nil); r.StatusCode != http.StatusOK {
		t.Fatal(text(r))
	}
	second, next := w.names(t, next)
	if got := strings.Join(append(first, second...), " "); got != "b d f h" || next != "" {
		t.Errorf("the pages hold %s, and go on at %q", got, next)
	}
}

// names returns the names on a page, and the next page.
func (w *world) names(t *testing.T, target string) (names []string, next string) {
	t.Helper()
	var page struct {
		Items []struct{ Name string }
		Next  *string
	}
	if err := json.Unmarshal([]byte(text(w.do("GET", target, "", nil))), &page); err != nil {
		t.Fatal(err)
	}
	for _, item := range page.Items {
		names = append(names, item.Name)
	}
	if page.Next == nil {
		return names, ""
	}
	at, err := url.Parse(*page.Next)
	if err != nil {
		t.Fatal(err)
	}
	return names, at.RequestURI()
}

func TestPagesCoverTheList(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	for i := range 25 {
		name := fmt.Sprintf("s-%02d", i)
		w.put(t, "/meshes/default/meshservices/"+name,
			`{"type":"MeshService","name":"`+name+
				`","spec":{"selector":{"dataplaneTags":{"a":"b"}},"ports":[{"port":80}]}}`)
	}
	var names []string
	pages := 0
	for target := "/meshes/default/meshservices?size=10&name=s-"; target != ""; pages++ {
		var page struct {
			Total int
			Items []struct{ Name string }
			Next  *string
		}
		if err := json.Unmarshal([]byte(text(w.do("GET", target, "", nil))), &page); err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if page.Total != 25 {
			t.Fatalf("total is %d, want 25", page.Total)
		}
		target = ""
		if page.Next != nil {
			next, err := url.Parse(*page.Next)
			if err != nil || next.Host != "localhost:5681" {
				t.Fatalf("next is %q: %v", *page.Next, err)
			}
			target = next.RequestURI()
		}
	}
	if pages != 3 || len(names) != 25 || names[0] != "s-00" || names[24] != "s-24" {
		t.Errorf("%d pages with %v", pages, names)
	}
}

func TestWriteBasedOnAVersion(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	etag := w.do("GET", "/meshes/default", "", nil).Header.Get("ETag")
	change := `{"type":"Mesh","name":"default","skipCreatingInitialPolicies":["*"]}`

	first := w.do("PUT", "/meshes/default", change, http.Header{"If-Match": {etag}})
	if first.StatusCode != http.StatusOK || first.Header.Get("ETag") == etag {
		t.Fatalf("based on the current version: %s, ETag %s", first.Status, first.Header.Get("ETag"))
	}
	if r := w.do("PUT", "/meshes/default", `{"type":"Mesh","name":"default"}`,
		http.Header{"If-Match": {etag}}); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("based on an old version: %s", r.Status)
	}
	if r := w.do("DELETE", "/meshes/default", "",
		http.Header{"If-Match": {etag}}); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("deleting an old version: %s", r.Status)
	}
	if r := w.do("PUT", "/meshes/default", change,
		http.Header{"If-Match": {`W/"x"`}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a weak ETag: %s", r.Status)
	}
}

func TestLargeBodyIsRejected(t *testing.T) {
	w := newWorld(t, newStore(t))
	for _, test := range []struct {
		method, path string
		size         int
		says         string
	}{
		{"PUT", "/meshes/a", resource.MaxBytes + 1, "the body has 1048577 bytes, at most 1048576 are read"},
		{"PUT", "/globalsecrets/a", kind.GlobalSecrets.MaxBytes + 1, "at most 2097152 are read"},
		{"POST", "/tokens/dataplane", maxRequest + 1, "the body has 65537 bytes, at most 65536 are read"},
	} {
		r := w.do(test.method, test.path, strings.Repeat("a", test.size), nil)
		if body := text(r); r.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, test.says) {
			t.Errorf("%s %s: %s %s, want 413 that says %q", test.method, test.path, r.Status, body, test.says)
		}
	}
}

func TestLargeQueriesAreRejected(t *testing.T) {
	w := newWorld(t, newStore(t))
	for query, says := range map[string]string{
		"name=" + strings.Repeat("a", maxQuery):             "the query has 16389 bytes, at most 16384",
		strings.Repeat("tag=a:b&", maxFilters+1):            "the query has 33 parameters, at most 32",
		strings.Repeat("filter[labels.a]=b&", maxFilters+1): "the query has 33 parameters, at most 32",
		"size=" + strings.Repeat("9", 400):                  "is not a number from 1 to 1000",
		"offset=-1":                                         "is not a number",
	} {
		r := w.do("GET", "/dataplanes?"+query, "", nil)
		if body := text(r); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, says) {
			t.Errorf("%.40s: %s %.300s, want 400 that says %q", query, r.Status, body, says)
		}
	}
}

// TestTheBoundsAreDocumented: docs/operations/bounds.md has the actual limits.
func TestTheBoundsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(string(page), ",", "")
	for _, line := range []string{
		fmt.Sprintf("write no resource | %d bytes", maxRequest), fmt.Sprintf("query | %d bytes", maxQuery),
		fmt.Sprintf("filters included | %d |", maxFilters), fmt.Sprintf("of a page | %d |", largestPage),
		fmt.Sprintf("made at once | %d |", maxWhole),
	} {
		if !strings.Contains(plain, line) {
			t.Errorf("docs/operations/bounds.md lacks %q", line)
		}
	}
}

// TestHostileDocumentsAreRejected: a document that would cost seconds to parse is rejected by a bound, before that.
func TestHostileDocumentsAreRejected(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	var labels, inbounds strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&labels, ",\"l%d\":\"\"", i)
	}
	for i := range 60_000 {
		fmt.Fprintf(&inbounds, ",{\"port\":%d}", i+1)
	}
	const path = "/meshes/default/dataplanes/a"
	for name, body := range map[string]string{
		"100,000 labels": `{"type":"Dataplane","name":"a","labels":{"a":"b"` + labels.String()[:900_000] + `x"}}`,
		"60,000 inbounds": `{"type":"Dataplane","name":"a","networking":{"address":"10.0.0.1","inbound":[{"port":1}` +
			inbounds.String() + `]}}`,
	} {
		r := w.do("PUT", path, body, nil)
		said := text(r)
		if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusRequestEntityTooLarge ||
			!regexp.MustCompile(`at most \d+ are read`).MatchString(said) {
			t.Errorf("%s: %s: %.300s", name, r.Status, said)
		}
		t.Logf("%s of %d bytes: %s: %.200s", name, len(body), r.Status, said)
	}
}

// broken is a store whose reads fail.
type broken struct {
	store.Store
	err error
}

func (b broken) Get(context.Context, resource.Key) (store.Row, error) { return store.Row{}, b.err }

func TestFailuresOfTheStore(t *testing.T) {
	tests := map[string]struct {
		err  error
		want int
	}{
		"unavailable": {fmt.Errorf("%w: disk /var is full", store.ErrUnavailable), http.StatusServiceUnavailable},
		"anything":    {errors.New("secret-table-name is broken"), http.StatusInternalServerError},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, broken{newStore(t), test.err})
			r := w.do("PUT", "/meshes/default", `{"type":"Mesh"}`, nil)
			if r.StatusCode != test.want {
				t.Errorf("status %s, want %d", r.Status, test.want)
			}
			if body := text(r); strings.Contains(body, "disk") || strings.Contains(body, "secret-table") {
				t.Errorf("the caller is shown the store's own error: %s", body)
			}
			if !strings.Contains(w.log.String(), test.err.Error()) {
				t.Errorf("the log lacks the error: %s", w.log)
			}
		})
	}
}

func TestInsightShowsWhatIsServed(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	w.put(t, "/meshes/default/dataplanes/web-1",
		`{"type":"Dataplane","name":"web-1","networking":{"address":"10.0.0.1","inbound":[{"port":8080,`+
			`"tags":{"kuma.io/service":"web"}}]}}`)
	err := admission.Modify(t.Context(), w.writer, kind.DataplaneListenerStatuses, "default", "web-1",
		func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			o.Spec.Inbounds = []kind.ServedInbound{{Inbound: kind.Inbound{Address: "10.0.0.1", Port: 8080}}}
			return true
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/meshes/default/dataplanes/web-1/_overview", "/meshes/default/dataplanes/_overview",
		"/dataplanes/_overview"} {
		if r := w.do("GET", path, "", nil); r.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %s", path, r.Status)
		} else if body := text(r); !strings.Contains(body, `"readyListeners":["10.0.0.1:8080"]`) {
			t.Errorf("GET %s does not tell what the proxy serves: %s", path, body)
		}
	}
}

// TestServicesShowWhereOtherZonesReachThem: in both forms, for one service and in a list. A response can be written
// back.
func TestServicesShowWhereOtherZonesReachThem(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	const path = "/meshes/default/meshservices/web"
	w.put(t, path,
		`{"type":"MeshService","name":"web","spec":{"selector":{"dataplaneTags":{"kuma.io/service":"web"}},`+
			`"ports":[{"port":80}]}}`)
	if body := text(w.do("GET", path, "", nil)); strings.Contains(body, "zoneIngress") {
		t.Errorf("a service of a zone without an ingress: %s", body)
	}
	if err := admission.Modify(t.Context(), w.writer, kind.MeshZoneAddresses, "default", "east",
		func(o *resource.Object[kind.MeshZoneAddress]) bool {
			o.Spec.Ingresses = []kind.ZoneProxyAddress{
				{Name: "one", Address: "192.168.1.100", Port: 30001},
				{Name: "two", Address: "192.168.1.101", Port: 30001, Healthy: true},
			}
			return true
		}); err != nil {
		t.Fatal(err)
	}
	name := sni.V1.Name(sni.Port{Kind: "MeshService", Mesh: "default", Zone: "east", Name: "web", Number: 80})
	want := `"zoneIngress":{"address":"192.168.1.101","port":30001,"sni":"` + name + `","endpoints":[` +
		`{"address":"192.168.1.100","port":30001,"healthy":false},{"address":"192.168.1.101","port":30001,` +
		`"healthy":true}]}`
	for _, from := range []string{path, path + "?format=k8s", "/meshes/default/meshservices",
		"/meshservices?format=k8s"} {
		body := text(w.do("GET", from, "", nil))
		if !strings.Contains(body, want) {
			t.Errorf("GET %s: %s\nwant %s", from, body, want)
		}
		if !strings.HasPrefix(from, path) {
			continue
		}
		if r := w.do("PUT", path, body, nil); r.StatusCode != http.StatusOK ||
			!strings.Contains(text(r), `"changed":false`) {
			t.Errorf("PUT of what GET %s answered: %s", from, r.Status)
		}
	}
}

// TestTheZoneIngressOfAServiceIsReadInOtherZones: a service of another zone has the zone ingress of its own zone, on a
// third zone and on global.
func TestTheZoneIngressOfAServiceIsReadInOtherZones(t *testing.T) {
	west := kind.Owner{Zone: "west"}
	for _, zone := range []string{"east", ""} {
		t.Run("in the zone "+zone, func(t *testing.T) {
			w := newWorldOf(t, newStore(t), zone)
			w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
			receive := func(of resource.Descriptor, name, spec string) string {
				t.Helper()
				body := `{"labels":{"kuma.io/display-name":"` + name +
					`","kuma.io/origin":"zone","kuma.io/zone":"west"},"spec":` + spec + `}`
				r := admission.Received{Kind: of, Mesh: "default", Name: name, Owner: west, Body: []byte(body)}
				if err := w.writer.Receive(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				return r.Key().Name
			}
			port := sni.Port{Kind: "MeshService", Mesh: "default", Zone: "west", Name: "web", Number: 80}
			name := receive(kind.MeshServices, "web",
				`{"selector":{"dataplaneTags":{"kuma.io/service":"web"}},"ports":[{"port":80,"snis":[{"value":"`+
					sni.V1.Name(port)+`"}]}]}`)
			receive(kind.MeshZoneAddresses, "west",
				`{"ingresses":[{"name":"i","address":"192.168.2.1","port":30002,"healthy":true}]}`)
			if zone != "" {
				if err := admission.Modify(t.Context(), w.writer, kind.MeshZoneAddresses, "default", zone,
					func(o *resource.Object[kind.MeshZoneAddress]) bool {
						o.Spec.Ingresses = []kind.ZoneProxyAddress{{Name: "i", Address: "192.168.1.1", Port: 30001,
							Healthy: true}}
						return true
					}); err != nil {
					t.Fatal(err)
				}
			}
			want := `"zoneIngress":{"address":"192.168.2.1","port":30002,"sni":"` + sni.V1.Name(port) + `"`
			for _, path := range []string{"/meshes/default/meshservices/" + name, "/meshes/default/meshservices"} {
				if body := text(w.do("GET", path, "", nil)); !strings.Contains(body, want) {
					t.Errorf("GET %s: %s\nwant %s", path, body, want)
				}
			}
		})
	}
}

// TestExternalServicesShowTheirZoneEgress: the status has the first egress of the zone that clients may dial, and all
// egresses, or none.
func TestExternalServicesShowTheirZoneEgress(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	const path = "/meshes/default/meshexternalservices/api"
	w.put(t, path, `{"type":"MeshExternalService","name":"api","spec":{"match":{"port":443},`+
		`"endpoints":[{"address":"api.example.com","port":443}]}}`)
	egresses := func(all ...kind.ZoneProxyAddress) {
		if err := admission.Modify(t.Context(), w.writer, kind.MeshEgressAddresses, "default", "east",
			func(o *resource.Object[kind.MeshEgressAddress]) bool {
				o.Spec.Egresses = all
				return true
			}); err != nil {
			t.Fatal(err)
		}
	}
	none := func(when string) {
		if body := text(w.do("GET", path, "", nil)); strings.Contains(body, "zoneEgress") {
			t.Errorf("%s there is no way out, and it is shown: %s", when, body)
		}
	}
	none("without an egress")
	one, two := kind.ZoneProxyAddress{Name: "one", Address: "192.168.0.1", Port: 10003},
		kind.ZoneProxyAddress{Name: "two", Address: "192.168.0.2", Port: 10003, Healthy: true}
	egresses(one)
	none("while no egress is ready")
	egresses(one, two)
	name := sni.V1.Name(sni.Port{Kind: "MeshExternalService", Mesh: "default", Zone: "east", Name: "api", Number: 443})
	want := `"zoneEgress":{"address":"192.168.0.2","port":10003,"sni":"` + name + `","endpoints":[` +
		`{"address":"192.168.0.1","port":10003,"healthy":false},{"address":"192.168.0.2","port":10003,"healthy":true}]}`
	for _, from := range []string{path, path + "?format=k8s", "/meshes/default/meshexternalservices",
		"/meshexternalservices?format=k8s"} {
		body := text(w.do("GET", from, "", nil))
		if !strings.Contains(body, want) {
			t.Errorf("GET %s: %s\nwant %s", from, body, want)
		}
		if !strings.HasPrefix(from, path) {
			continue
		}
		if r := w.do("PUT", path, body, nil); r.StatusCode != http.StatusOK ||
			!strings.Contains(text(r), `"changed":false`) {
			t.Errorf("PUT of what GET %s answered: %s", from, r.Status)
		}
	}
}

// FuzzPut: no body fails the API. It is accepted, or rejected as an error of the caller.
func FuzzPut(f *testing.F) {
	f.Add(
		`{"type":"Dataplane","mesh":"default","name":"a","networking":{"address":"10.0.0.1","inbound":[{"port":80}]}}`)
	f.Add("apiVersion: kuma.io/v1alpha1\nkind: Dataplane\nmetadata: {name: a, labels: {kuma.io/mesh: " +
		"default}}\nspec: {networking: {}}\n")
	f.Add("type: Dataplane\nnetworking: &x {inbound: [*x]}\n")
	w := newWorld(f, newStore(f))
	w.put(f, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	f.Fuzz(func(t *testing.T, body string) {
		if r := w.do("PUT", "/meshes/default/dataplanes/a", body, nil); r.StatusCode >= 500 {
			t.Errorf("%s %s", r.Status, w.log)
		}
	})
}

// FuzzRead: no path or query fails the API, and every response is JSON.
func FuzzRead(f *testing.F) {
	f.Add("dataplanes", "size=1&offset=1&name=a&filter[labels.team]=x&format=k8s")
	f.Add("dataplanes/_overview", "status=online&tag=kuma.io/service:web&tag=a")
	f.Add("dataplanes/a/_explain", "to=web:80&method=GET&path=/")
	f.Add("meshservices/../../..//a", "filter[x]=%00;%zz")
	w := newWorld(f, newStore(f))
	w.put(f, "/meshes/default", `{"type":"Mesh","name":"default"}`)
	w.put(f, "/meshes/default/dataplanes/a",
		`{"type":"Dataplane","mesh":"default","name":"a","networking":{"address":"10.0.0.1","inbound":[{"port":80}]}}`)
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", "http://127.0.0.1/", nil)
		r.URL.Path, r.URL.RawQuery = "/meshes/default/"+path, query
		response := httptest.NewRecorder()
		AsAdministrator(w.handler).ServeHTTP(response, r)
		if response.Code >= 500 && response.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s %s", response.Code, response.Body, w.log)
		}
		if response.Code/100 != 3 && !json.Valid(response.Body.Bytes()) {
			t.Errorf("%d with no JSON: %s", response.Code, response.Body)
		}
	})
}

// A killed replica could not record that its connections ended.
func TestAConnectionToAFormerInstanceIsOver(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	for _, name := range []string{"now", "before"} {
		w.put(t, "/meshes/default/dataplanes/"+name,
			`{"type": "Dataplane", "mesh": "default", "name": "`+name+
				`", "networking": {"address": "10.0.0.1", "inbound": [{"port": 80, "servicePort": 8080}]}}`)
		instance := map[string]string{"now": "instance-1", "before": "instance-0"}[name]
		err := admission.Modify(t.Context(), w.writer, kind.DataplaneInsights, "default", name,
			func(o *resource.Object[kind.DataplaneInsight]) bool {
				o.Spec.Subscriptions = []kind.Subscription{{ID: "1", ControlPlaneInstanceID: instance}}
				return true
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, over := range map[string]bool{"now": false, "before": true} {
		for _, path := range []string{"/meshes/default/dataplanes/" + name + "/_overview",
			"/meshes/default/dataplane-insights/" + name} {
			if body := text(w.do("GET", path, "", nil)); strings.Contains(body, "disconnectTime") != over {
				t.Errorf("GET %s: over is not %v: %s", path, over, body)
			}
		}
	}
}
