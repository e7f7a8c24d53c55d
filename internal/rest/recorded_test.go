package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/access"
	"weft/internal/rest/kumactl"
)

// TestRecordedKumactl replays what the real kumactl sent in a session: each kind is applied, read, written back and
// applied again, then inspected, exported and deleted, and the exports are applied to empty control planes. Every
// request gets its recorded status. What the client wrote back is what it would write back of the present responses,
// and changes nothing.
func TestRecordedKumactl(t *testing.T) {
	for _, path := range glob(t, "testdata/kumactl/recorded-*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, agent, _ := strings.Cut(string(archive.Comment), "User-Agent: kumactl/")
			release, _, _ := strings.Cut(agent, " ")
			r := &recording{release: release, certificate: certificateText(t)}
			for _, section := range archive.Files {
				r.next(t, section)
			}
			r.end(t)
			if r.writesBack < 15 {
				t.Errorf("%d resources were written back", r.writesBack)
			}
		})
	}
}

// TestKumactlOfSomeMeshes: kumactl works for a user of some meshes. Each request about these has its recorded status,
// and lists show no other mesh.
func TestKumactlOfSomeMeshes(t *testing.T) {
	for _, path := range glob(t, "testdata/kumactl/recorded-*.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := &recording{certificate: certificateText(t)}
		r.start(t)
		r.put(t, "/meshes/hidden", `{"type":"Mesh"}`)
		config := r.config()
		config.Inspector, config.Guard.Rules = knowing{}, limitedRules("default", "shop", "vault-2")
		api := New(config)
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := access.NewUser("ann", nil, access.ByCertificate)
			api.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), user)))
		})
		r.socket = listen(t, r.world)
		checked := 0
		for _, section := range archive.Files {
			method, path, isRequest := strings.Cut(section.Name, " ")
			if section.Name == "$ new control plane" {
				break
			}
			switch ofMesh := strings.Contains(r.request, " /meshes"); {
			case method == "$":
				r.command = path
			case isRequest:
				r.next(t, section)
			case ofMesh:
				r.next(t, section)
				checked++
			}
			if strings.Contains(r.reply, "hidden") {
				t.Errorf("%s shows the other mesh: %s", r.request, r.reply)
			}
		}
		if checked < 100 {
			t.Errorf("%s: %d requests are about the meshes", path, checked)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return paths
}

// recording is a session of a kumactl that is replayed.
type recording struct {
	release, certificate string
	*socket
	command, request string // those that ran last
	body             string
	status           int    // of the response to the last request
	reply            string // to the last request
	read, version    string // what the last GET of a resource returned, and its ETag
	writesBack       int
}

// next replays a section: a command, a request, or the status of its response.
func (r *recording) next(t *testing.T, section txtar.File) {
	t.Helper()
	method, path, isRequest := strings.Cut(section.Name, " ")
	switch {
	case section.Name == "$ new control plane":
		r.start(t)
	case method == "$":
		r.end(t)
		r.command = path
	case isRequest:
		r.send(t, method, path, strings.ReplaceAll(string(section.Data), "@CERTIFICATE@", r.certificate))
	default:
		if want, err := strconv.Atoi(method); err != nil || r.status != want {
			t.Errorf("%s: %s: %d, and was %s\n%s", r.command, r.request, r.status, method, r.reply)
		}
	}
}

func (r *recording) start(t *testing.T) {
	w := newWorld(t, newStore(t))
	config := w.config()
	config.Inspector = knowing{}
	w.handler = New(config)
	w.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	r.socket = listen(t, w)
}

func (r *recording) send(t *testing.T, method, path, body string) {
	t.Helper()
	if r.socket == nil {
		r.start(t)
	}
	r.request, r.body = method+" "+path, body
	var header http.Header
	agent := agentOf(r.release)
	if strings.HasPrefix(r.command, "weft ") {
		agent = nil
	}
	r.status, header, r.reply = r.socket.send(t, method, path, body, agent)
	if method == http.MethodGet && strings.Contains(r.command, " | ") && r.status == http.StatusOK {
		r.read, r.version = r.reply, header.Get("ETag")
	}
}

// end checks that a command that wrote back what it had read has changed nothing.
func (r *recording) end(t *testing.T) {
	t.Helper()
	path, wrote := strings.CutPrefix(r.request, "PUT ")
	if !wrote || !strings.Contains(r.command, " | ") {
		return
	}
	r.writesBack++
	if _, header, now := r.socket.send(t, "GET", path, "", agentOf(r.release)); header.Get("ETag") != r.version {
		t.Errorf("%s: it was\n%s\nand is\n%s", r.command, r.read, now)
	}
	types := r.release
	if strings.Contains(types, "preview") {
		types = "3.0.0" // those of the recorded build; the server knows no release of it
	}
	want, sent := fieldsIn(t, asKumactl(t, r.read, types)), fieldsIn(t, r.body)
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if value, ok := sent[field]; !ok || value != want[field] {
			t.Errorf("%s: the response has %s: %s, and the client sent %s", r.command, field, want[field], value)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(sent)) {
		if _, ok := want[field]; !ok && !isFilled(t, r.body, field, sent[field]) {
			t.Errorf("%s: the client sent %s: %s, and the response lacks it", r.command, field, sent[field])
		}
	}
	r.request = ""
}

// isFilled reports whether a kumactl writes a value into a field that is absent.
func isFilled(t *testing.T, body, field, value string) bool {
	t.Helper()
	var doc struct{ Type string }
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(regexp.MustCompile(`\[\d+\]`).ReplaceAllString(field, "[]"), ".spec.")
	computed := map[string]string{"state": "Unavailable", "tls.allowRenegotiation": "false", "tls.enabled": "false"}
	return kumactl.FillsByKind[doc.Type][path] == value || computed[path] == value
}

// fieldsIn returns the scalars of a document by path. It leaves out what kumactl computes and empty objects.
func fieldsIn(t *testing.T, document string) map[string]string {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(document), &doc); err != nil {
		t.Fatalf("%v: %s", err, document)
	}
	for _, name := range []string{"kri", "snis", "status"} {
		delete(doc, name)
	}
	if spec, ok := doc["spec"].(map[string]any); ok {
		delete(spec, "identities")
	}
	fields := map[string]string{}
	var visit func(path string, value any)
	visit = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				visit(path+"."+name, inner)
			}
		case []any:
			for i, inner := range value {
				visit(fmt.Sprintf("%s[%d]", path, i), inner)
			}
		default:
			fields[path] = fmt.Sprint(value)
		}
	}
	visit("", doc)
	return fields
}

// TestWhatKumactlFillsInIsNoChange: another client wrote the resource without the defaults of Kuma's schemas.
func TestWhatKumactlFillsInIsNoChange(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	for path, spec := range map[string][2]string{
		"meshexternalservices/MeshExternalService": {
			`{"match":{"port":443},"endpoints":[{"address":"a.example","port":443}],"tls":{"enabled":true,"version":` +
				`{"min":"TLS12"}}}`,
			`{"match":{"type":"HostnameGenerator","port":443,"protocol":"tcp"},"endpoints":[{"address":"a.example",` +
				`"port":443}],"tls":{"enabled":true,"version":{"min":"TLS12","max":"TLSAuto"},"allowRenegotiation":false}}`},
		"meshretries/MeshRetry": {
			`{"to":[{"targetRef":{"kind":"Mesh"},"default":{"http":{"hostSelection":[{"predicate":` +
				`"OmitPreviousPriorities"}]}}}]}`,
			`{"to":[{"targetRef":{"kind":"Mesh"},"default":{"http":{"hostSelection":[{"predicate":` +
				`"OmitPreviousPriorities","updateFrequency":2}]}}}]}`},
	} {
		plural, kindName, _ := strings.Cut(path, "/")
		document := func(spec string) string {
			return `{"type":"` + kindName + `","mesh":"default","name":"a","spec":` + spec + `}`
		}
		at := "/meshes/default/" + plural + "/a"
		s.put(t, at, document(spec[0]))
		if status, result, reply := s.apply(t, at, document(spec[1]), agentOf("2.14.3")); status != http.StatusOK ||
			result.Changed {
			t.Errorf("%s: %d %s", kindName, status, reply)
		}
	}
}
