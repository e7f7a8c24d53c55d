package kube_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weft/internal/admission"
	"weft/internal/kube/crd"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// tampering is a transport that garbles the events of objects with "unreadable" in their names, and forbids requests
// for a collection for a while.
type tampering struct {
	next      http.RoundTripper
	path      string
	forbidden atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (t *tampering) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.forbidden.Load() && strings.HasSuffix(r.URL.Path, t.path) {
		return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader("{}")), Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}}, nil
	}
	response, err := t.next.RoundTrip(r)
	if err != nil || r.URL.Query().Get("watch") == "" {
		return response, err
	}
	body := response.Body
	reads, writes := io.Pipe()
	go func() {
		defer body.Close()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if bytes.Contains(line, []byte("unreadable")) {
				line = []byte(`{"type":"ADDED","object":{"metadata":7}}` + "\n")
			}
			if _, failed := writes.Write(line); failed != nil || err != nil {
				writes.CloseWithError(err)
				return
			}
		}
	}()
	response.Body = struct {
		io.Reader
		io.Closer
	}{reads, closer{reads, body}}
	return response, nil
}

type closer []io.Closer

// Close implements io.Closer.
func (all closer) Close() error {
	for _, c := range all {
		_ = c.Close()
	}
	return nil
}

// TestAKindThatCannotBeReadStopsNoOther: an event that cannot be decoded has its kind listed again. While the kind is
// forbidden, other kinds change.
func TestAKindThatCannotBeReadStopsNoOther(t *testing.T) {
	direct, server, _, mesh := opened(t)
	config := server.Config()
	transport := &tampering{path: "/meshtimeouts"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { transport.next = next; return transport })
	s, err := kube.Open(t.Context(), config, kube.Options{Namespace: mesh, Kinds: crd.Rows()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var mu sync.Mutex
	var names []string
	stopped, err := mirror.Start(t.Context(), mirror.Config{
		Store: s, Kinds: []string{kind.MeshTimeouts.Name, kind.MeshRetries.Name}, Decode: admission.Decode,
		Log: slog.New(slog.DiscardHandler), Apply: func(b mirror.Batch) {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range b.Put {
				names = append(names, o.Key().Name)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopped)
	awaitRow := func(row store.Row) {
		t.Helper()
		testwait.Until(t, "the mirror has "+row.Key.Name, func() error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(names, row.Key.Name) {
				return fmt.Errorf("it has %v", names)
			}
			return nil
		})
	}
	timeout := func(name string) store.Row {
		return create(t, direct, kind.MeshTimeouts.Make(mesh, name+"."+mesh, kind.MeshTimeout{}), meshKey(mesh))
	}
	awaitRow(timeout("unreadable"))
	awaitRow(timeout("readable"))
	transport.forbidden.Store(true)
	late := timeout("unreadable-too")
	for i := range 3 {
		awaitRow(create(t, direct, kind.MeshRetries.Make(mesh, fmt.Sprintf("r%d.%s", i, mesh), kind.MeshRetry{}),
			meshKey(mesh)))
	}
	transport.forbidden.Store(false)
	awaitRow(late)
}

func meshKey(mesh string) *resource.Key {
	key := kind.Meshes.Key("", mesh)
	return &key
}
