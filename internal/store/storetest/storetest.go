// Package storetest is the conformance suite for stores. It tests each sentence of the contract of package store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"weft/internal/store"
	"weft/resource"
)

// Open returns an empty store. The store keeps at least the given number of events, and at most ten times as many.
type Open func(t *testing.T, history int) store.Store

// Compacter is a store whose database keeps a history of its own length, and loses it when the test says so.
type Compacter interface{ Compact(t *testing.T) }

// plenty is a number of events that no test exceeds.
const plenty = 100_000

// Run runs the suite, each test with a store of its own.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name    string
		history int
		run     func(*testing.T, store.Store)
	}{
		{"a row that was created is read", plenty, testCreate},
		{"an update is based on a version", plenty, testUpdate},
		{"a deletion is based on a version or on none", plenty, testDelete},
		{"a list is one kind in order", plenty, testList},
		{"the caller's bytes are copied", plenty, testCopied},
		{"an owned row is deleted with its owner", plenty, testOwner},
		{"no row is left without its owner", plenty, testNoOwner},
		{"an invalid name", plenty, testInvalidNames},
		{"a canceled context", plenty, testCanceled},
		{"a closed store is unavailable", plenty, testClosed},
		{"a watch continues a list", plenty, testWatch},
		{"a watch continues after any event", plenty, testResume},
		{"a watch ends with its context", plenty, testWatchEnds},
		{"a watch receives the deletion of owned rows", plenty, testWatchOwner},
		{"writes of all kinds have one order", plenty, testOrder},
		{"a list of several kinds is one snapshot", plenty, testSnapshot},
		{"a cursor that was compacted away", 10, testTooOld},
		{"a cursor of another store", plenty, testCursorOfAnotherStore},
		{"a lagging watcher is closed", 10, testLaggingWatcher},
		{"a quiet kind outlives a busy one", 10, testQuiet},
		{"counting at the same time loses nothing", plenty, testCounters},
		{"watchers receive every write of many writers", plenty, testReplicas},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, test.history)
			t.Cleanup(func() { _ = s.Close() })
			test.run(t, s)
		})
	}
}

func key(name string) resource.Key {
	return resource.Key{Kind: "Thing", Mesh: "default", Name: name}
}

func create(t *testing.T, s store.Store, k resource.Key, body string) store.Row {
	t.Helper()
	row, err := s.Create(t.Context(), store.Row{Key: k, Body: []byte(body)})
	if err != nil {
		t.Fatalf("Create %s: %v", k, err)
	}
	return row
}

func update(t *testing.T, s store.Store, row store.Row, body string) store.Row {
	t.Helper()
	row.Body = []byte(body)
	row, err := s.Update(t.Context(), row)
	if err != nil {
		t.Fatalf("Update %s: %v", row.Key, err)
	}
	return row
}

func remove(t *testing.T, s store.Store, k resource.Key) {
	t.Helper()
	if err := s.Delete(t.Context(), k, ""); err != nil {
		t.Fatalf("Delete %s: %v", k, err)
	}
}

func list(t *testing.T, s store.Store, kind string) ([]store.Row, store.Cursor) {
	t.Helper()
	rows, at, err := s.List(t.Context(), kind)
	if err != nil {
		t.Fatalf("List %s: %v", kind, err)
	}
	return rows, at
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantRow compares all fields of a row.
func wantRow(t *testing.T, what string, got, want store.Row) {
	t.Helper()
	if difference := rowDifference(got, want); difference != "" {
		t.Errorf("%s: %s", what, difference)
	}
}

// rowDifference returns the first field that differs, or "".
func rowDifference(got, want store.Row) string {
	switch {
	case got.Key != want.Key:
		return fmt.Sprintf("key %v, want %v", got.Key, want.Key)
	case got.Version != want.Version:
		return fmt.Sprintf("%s: version %s, want %s", got.Key, got.Version, want.Version)
	case !bytes.Equal(got.Body, want.Body):
		return fmt.Sprintf("%s: body %q, want %q", got.Key, got.Body, want.Body)
	case !got.Created.Equal(want.Created) || !got.Modified.Equal(want.Modified):
		return fmt.Sprintf("%s: times %v %v, want %v %v", got.Key, got.Created, got.Modified, want.Created,
			want.Modified)
	case (got.Owner == nil) != (want.Owner == nil) || got.Owner != nil && *got.Owner != *want.Owner:
		return fmt.Sprintf("%s: owner %v, want %v", got.Key, got.Owner, want.Owner)
	}
	return ""
}

func gone(s store.Store, k resource.Key) func() bool {
	return func() bool {
		_, err := s.Get(context.Background(), k)
		return errors.Is(err, store.ErrNotFound)
	}
}
