package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/internal/bubble"
	"weft/internal/preview"
	"weft/internal/testwait"
	"weft/resource"
)

const newTimeout = `{"type":"MeshTimeout","mesh":"default","name":"a","spec":{"to":[{"targetRef":{"kind":"Mesh"},` +
	`"default":{"idleTimeout":"1s"}}]}}`

// slowReaders holds the diffs of readers until their requests end.
type slowReaders struct {
	stranger
	began chan struct{}
}

func (s slowReaders) Diff(ctx context.Context, _ preview.Change, options preview.Options) (*preview.Diff, error) {
	if !options.Reader {
		return &preview.Diff{Groups: []preview.Group{}}, nil
	}
	s.began <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// asUser serves a request of a user of some groups, without the authentication.
func (a *api) asUser(ctx context.Context, name, group, method, path string, body io.Reader) *httptest.ResponseRecorder {
	user := access.NewUser(name, []string{group}, access.ByCertificate)
	recorder := httptest.NewRecorder()
	a.route(recorder, httptest.NewRequestWithContext(access.WithUser(ctx, user), method, path, body))
	return recorder
}

// previews are a preview of each form, with its body.
var previews = map[string]string{"POST /_diff": `{"apply":[` + newTimeout + `]}`,
	"POST /_dry-run": `{"apply":[` + newTimeout + `]}`,
	"PUT /meshes/default/meshtimeouts/a?dryRun=true":      newTimeout,
	"DELETE /meshes/default/meshtimeouts/stored?dryRun=1": ""}

// TestReadersDelayNoWriter: while the previews of readers fill their place, a writer previews and writes. A further
// preview of a reader waits until the request of another one ends.
func TestReadersDelayNoWriter(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	w.put(t, "/meshes/default/meshtimeouts/stored", strings.Replace(newTimeout, `"a"`, `"stored"`, 1))
	config := w.config()
	slow := slowReaders{began: make(chan struct{})}
	config.Inspector = slow
	config.Guard.Rules[access.Write] = access.Rule{Groups: []string{"writers"}}
	a := newAPI(config)
	send := func(ctx context.Context, name, group, request, body string) *httptest.ResponseRecorder {
		method, path, _ := strings.Cut(request, " ")
		return a.asUser(ctx, name, group, method, path, strings.NewReader(body))
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ends := make(chan int, maxReaderPreviews)
	for i := range maxReaderPreviews {
		go func() {
			ends <- send(ctx, fmt.Sprint("ann-", i), "readers", "POST /_diff", previews["POST /_diff"]).Code
		}()
		testwait.Receive(t, "the diff of a reader", slow.began)
	}
	for request, body := range previews {
		if got := send(t.Context(), "ops", "writers", request, body); got.Code != http.StatusOK {
			t.Errorf("the writer's %s beside the readers: %d %s", request, got.Code, got.Body)
		}
	}
	if got := send(t.Context(), "ops", "writers", "PUT /meshes/default/meshtimeouts/a", newTimeout); got.Code != 201 {
		t.Errorf("the write beside the readers: %d %s", got.Code, got.Body)
	}
	further := make(chan int, 1)
	go func() {
		further <- send(t.Context(), "eve", "readers", "POST /_dry-run", previews["POST /_dry-run"]).Code
	}()
	testwait.Until(t, "a further reader waits", func() error {
		a.readers.turns.mu.Lock()
		defer a.readers.turns.mu.Unlock()
		if n := len(a.readers.turns.busy); n != maxReaderPreviews+1 {
			return fmt.Errorf("%d readers have their turn", n)
		}
		return nil
	})
	if len(further) > 0 {
		t.Errorf("%d readers have a place at once", maxReaderPreviews+1)
	}
	end()
	if code := testwait.Receive(t, "the response to the further reader", further); code != http.StatusOK {
		t.Errorf("the further reader gets %d", code)
	}
	for range maxReaderPreviews {
		testwait.Receive(t, "the end of a diff", ends)
	}
}

// TestReadersPreviewOnceAtATime: a second preview of a reader waits for the first one, for a time.
func TestReadersPreviewOnceAtATime(t *testing.T) {
	w := newWorld(t, newStore(t)) // its servers are no part of the bubble
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(w.config())
		leave, err := a.readers.enter(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for request, body := range previews {
			method, path, _ := strings.Cut(request, " ")
			began := time.Now()
			got := a.asUser(t.Context(), "ann", "readers", method, path, strings.NewReader(body))
			if waited := time.Since(began); got.Code != http.StatusServiceUnavailable || waited != maxPreviewTime {
				t.Errorf("%s: %d %s after %s", request, got.Code, got.Body, waited)
			}
		}
	})
}

// TestZonesComputeReadersApart: in a zone, the diffs of readers take no place of those of writers, and none waits.
func TestZonesComputeReadersApart(t *testing.T) {
	slow := slowReaders{began: make(chan struct{})}
	w := newWorld(t, newStore(t))
	zone := NewZoneDiffs(w.writer, slow)
	ctx, end := context.WithCancel(t.Context())
	ends := make(chan error)
	for range maxReaderPreviews {
		go func() {
			_, err := zone.DiffReceived(ctx, preview.Received{}, preview.Options{Reader: true})
			ends <- err
		}()
		<-slow.began
	}
	if _, err := zone.DiffReceived(t.Context(), preview.Received{}, preview.Options{Reader: true}); resource.CodeOf(
		err) != resource.Unavailable {
		t.Errorf("a further reader: %v", err)
	}
	if _, err := zone.DiffReceived(t.Context(), preview.Received{}, preview.Options{}); err != nil {
		t.Errorf("a writer beside the readers: %v", err)
	}
	end()
	for range maxReaderPreviews {
		<-ends
	}
}

// TestAuditOfPreviews: a preview of a reader is recorded where it shows the configuration of proxies only. That of a
// writer is recorded.
func TestAuditOfPreviews(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	config := w.config()
	config.Guard.Rules[access.ViewConfigDump] = access.Rule{Groups: []string{"viewers"}}
	config.Guard.Rules[access.Write] = access.Rule{Groups: []string{"writers"}}
	a := newAPI(config)
	change := `{"apply":[` + newTimeout + `]}`
	for _, test := range []struct{ group, method, path, body, action string }{
		{"readers", "POST", "/_diff", change, ""},
		{"readers", "POST", "/_dry-run", change, ""},
		{"readers", "PUT", "/meshes/default/meshtimeouts/a?dryRun=true", newTimeout, ""},
		{"viewers", "POST", "/_diff?fields=true", change, "viewConfigDump"},
		{"writers", "POST", "/_dry-run", change, "preview"},
		{"writers", "PUT", "/meshes/default/meshtimeouts/a?dryRun=true", newTimeout, "write"},
	} {
		w.audit.Reset()
		got := a.asUser(t.Context(), "ann", test.group, test.method, test.path, strings.NewReader(test.body))
		var entry audit.Entry
		_ = json.Unmarshal(w.audit.Bytes(), &entry) // of no entry
		if got.Code != http.StatusOK || string(entry.Action) != test.action {
			t.Errorf("%+v: %d %s, recorded: %s", test, got.Code, got.Body, &w.audit)
		}
	}
}
