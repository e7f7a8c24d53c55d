package kube_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/store"
	"weft/internal/store/kube"
	"weft/internal/testwait"
	"weft/kind"
)

// countingTransport counts requests, by method and URL, and has the methods and paths in their order.
type countingTransport struct {
	next     http.RoundTripper
	counts   func(*http.Request) bool
	mu       sync.Mutex
	requests map[string]int
	order    []string
}

// RoundTrip implements http.RoundTripper.
func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.counts(r) {
		c.mu.Lock()
		c.requests[r.Method+" "+r.URL.RequestURI()]++
		c.order = append(c.order, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// openCounted opens a store whose requests are counted.
func openCounted(t *testing.T, server *kubetest.Server, namespace string, counts func(*http.Request) bool) (*kube.Store,
	*countingTransport) {
	t.Helper()
	counting := &countingTransport{counts: counts, requests: map[string]int{}}
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counting.next = next; return counting })
	s, err := kube.Open(t.Context(), config, kube.Options{Namespace: namespace, Kinds: crd.Rows()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, counting
}

// TestRequestsOfWrites: a store writes an object that it wrote or read before without reading it again. It reads one
// that others have changed since. A new row reads its owner once, after the write.
func TestRequestsOfWrites(t *testing.T) {
	other, server, client, mesh := opened(t)
	s, counting := openCounted(t, server, mesh, func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/apis/kuma.io/") && r.URL.Query().Get("watch") == "" &&
			r.URL.Query().Get("limit") == ""
	})
	expect := func(what string, want ...string) {
		t.Helper()
		if got := counting.take(); !slices.Equal(got, want) {
			t.Errorf("%s: the requests are %v, want %v", what, got, want)
		}
	}
	update := func(s *kube.Store, row store.Row, image string) store.Row {
		t.Helper()
		row.Body = rowOf(t, service(mesh, "web", image), nil).Body
		stored, err := s.Update(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	owner := kind.Meshes.Key("", mesh)
	if _, err := s.Get(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	counting.take()
	objects := crd.Path(kind.MeshServices, mesh)
	object, status, ownerPath := objects+"/web", objects+"/web/status", crd.Path(kind.Meshes, "")+"/"+mesh

	web := create(t, s, service(mesh, "web", "a"), &owner)
	expect("a row is created", "POST "+objects, "GET "+ownerPath)
	of := kind.MeshServiceStatuses.Make(mesh, web.Key.Name, kind.MeshServiceStatus{})
	row := create(t, s, of, &web.Key)
	expect("its status is created", "PUT "+status)
	web = update(s, web, "b")
	expect("the row is changed", "PUT "+object)
	if err := s.Delete(t.Context(), row.Key, row.Version); err != nil {
		t.Fatal(err)
	}
	expect("its status is deleted", "PUT "+status)
	web = update(other, web, "c")
	web = update(s, web, "d")
	expect("another store has changed the row", "GET "+object, "PUT "+object)
	var edited map[string]any
	get(t, client, object, &edited)
	set(edited, "yes", "metadata", "annotations", "kept")
	if err := client.Update(t.Context(), object, edited, nil); err != nil {
		t.Fatal(err)
	}
	web = update(s, web, "e")
	expect("a user has changed the object", "PUT "+object, "GET "+object, "PUT "+object)
	var kept struct {
		Metadata struct{ Annotations map[string]string }
	}
	if get(t, client, object, &kept); kept.Metadata.Annotations["kept"] != "yes" {
		t.Errorf("the annotations are %v, and lack that of the user", kept.Metadata.Annotations)
	}
	if err := s.Delete(t.Context(), web.Key, web.Version); err != nil {
		t.Fatal(err)
	}
	expect("the row is deleted, and then what it owned", "DELETE "+object, "GET "+object)
	if _, err := s.Update(t.Context(), web); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an update of the deleted row: %v, want %v", err, store.ErrNotFound)
	}
	none := kind.MeshServices.Key(mesh, "none")
	row = rowOf(t, kind.MeshServiceStatuses.Make(mesh, "none", kind.MeshServiceStatus{}), &none)
	if _, err := s.Create(t.Context(), row); !errors.Is(err, store.ErrNoOwner) {
		t.Errorf("the status of no object: %v, want %v", err, store.ErrNoOwner)
	}
}

// TestAFormerOwner: a row whose owner was deleted by another store, and created again, belongs to the new owner. It is
// not created while there is no owner.
func TestAFormerOwner(t *testing.T) {
	other, server, _, mesh := opened(t)
	s := open(t, server, kube.Options{Namespace: mesh, Kinds: crd.Rows()})
	first := create(t, s, kind.Meshes.Make("", mesh+"-1", kind.Mesh{}), nil)
	deleted := func() {
		t.Helper()
		if err := other.Delete(t.Context(), first.Key, ""); err != nil {
			t.Fatal(err)
		}
	}
	deleted()
	of := func(name string) store.Row {
		o := service(mesh, name, "a")
		o.Mesh = first.Key.Name
		return rowOf(t, o, &first.Key)
	}
	missing := of("one")
	if _, err := s.Create(t.Context(), missing); !errors.Is(err, store.ErrNoOwner) {
		t.Errorf("without the owner: %v, want %v", err, store.ErrNoOwner)
	}
	if _, err := s.Get(t.Context(), missing.Key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row without an owner: %v, want %v", err, store.ErrNotFound)
	}
	create(t, s, kind.Meshes.Make("", mesh+"-1", kind.Mesh{}), nil)
	deleted()
	create(t, other, kind.Meshes.Make("", mesh+"-1", kind.Mesh{}), nil)
	row, err := s.Create(t.Context(), of("two"))
	if err != nil {
		t.Fatal(err)
	}
	deleted()
	if _, err := s.Get(t.Context(), row.Key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row after its owner: %v, want %v", err, store.ErrNotFound)
	}
}

// TestOwnersAreCollectedOnce: the rows of an owner are looked for once, whether the store deletes the owner or a user.
func TestOwnersAreCollectedOnce(t *testing.T) {
	_, server, client, mesh := opened(t)
	s, counting := openCounted(t, server, mesh, func(r *http.Request) bool {
		return strings.Contains(r.URL.Query().Get("labelSelector"), "kuma.io/owner=")
	})
	byStore := create(t, s, kind.Meshes.Make("", mesh+"-1", kind.Mesh{}), nil)
	byUser := create(t, s, kind.Meshes.Make("", mesh+"-2", kind.Mesh{}), nil)
	if err := s.Delete(t.Context(), byStore.Key, ""); err != nil {
		t.Fatal(err)
	}
	places := counting.different()
	if places == 0 {
		t.Fatal("no rows were looked for")
	}
	if err := client.Delete(t.Context(), crd.Path(kind.Meshes, "")+"/"+byUser.Key.Name, "", ""); err != nil {
		t.Fatal(err)
	}
	// The events of the owners come in their order.
	testwait.UntilTrue(t, "the rows of the owner that the user deleted are looked for", func() bool {
		return counting.different() >= 2*places
	})
	counting.mu.Lock()
	defer counting.mu.Unlock()
	for list, n := range counting.requests {
		if n != 1 {
			t.Errorf("%d times: %s", n, list)
		}
	}
}

// different is the number of different requests.
func (c *countingTransport) different() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// take returns the requests since the last call.
func (c *countingTransport) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	order := c.order
	c.order = nil
	return order
}
