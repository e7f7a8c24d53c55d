package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"weft/internal/store"
	"weft/internal/testwait"
	"weft/resource"
)

func testCreate(t *testing.T, s store.Store) {
	_, err := s.Get(t.Context(), key("a"))
	wantError(t, "Get of a missing row", err, store.ErrNotFound)

	before := time.Now().Add(-time.Second)
	row := create(t, s, key("a"), "one")
	if row.Version == "" || row.Created.Before(before) || !row.Created.Equal(row.Modified) {
		t.Errorf("Create returns version %q, created %v, modified %v", row.Version, row.Created, row.Modified)
	}
	got, err := s.Get(t.Context(), key("a"))
	if err != nil {
		t.Fatal(err)
	}
	wantRow(t, "Get", got, row)

	_, err = s.Create(t.Context(), store.Row{Key: key("a"), Body: []byte("two")})
	wantError(t, "Create of an existing row", err, store.ErrExists)
	got, _ = s.Get(t.Context(), key("a"))
	wantRow(t, "after a rejected Create", got, row)
}

func testUpdate(t *testing.T, s store.Store) {
	_, err := s.Update(t.Context(), store.Row{Key: key("a"), Version: "1"})
	wantError(t, "Update of a missing row", err, store.ErrNotFound)

	owner := key("owner")
	create(t, s, owner, "")
	first, err := s.Create(t.Context(), store.Row{Key: key("a"), Owner: &owner, Body: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Update(t.Context(), store.Row{Key: key("a"), Version: first.Version, Body: []byte("two")})
	if err != nil {
		t.Fatal(err)
	}
	if second.Version == first.Version {
		t.Error("Update kept the version")
	}
	if !second.Created.Equal(first.Created) || second.Owner == nil || *second.Owner != owner {
		t.Errorf("Update changed created to %v, owner to %v", second.Created, second.Owner)
	}
	first.Body = []byte("three")
	_, err = s.Update(t.Context(), first)
	wantError(t, "Update of an older version", err, store.ErrStale)
	got, _ := s.Get(t.Context(), key("a"))
	wantRow(t, "Get", got, second)
}

func testDelete(t *testing.T, s store.Store) {
	wantError(t, "Delete of a missing row", s.Delete(t.Context(), key("a"), ""), store.ErrNotFound)
	first := create(t, s, key("a"), "one")
	second := update(t, s, first, "two")
	wantError(t, "Delete of an older version", s.Delete(t.Context(), key("a"), first.Version), store.ErrStale)
	if err := s.Delete(t.Context(), key("a"), second.Version); err != nil {
		t.Errorf("Delete of the current version: %v", err)
	}
	_, err := s.Get(t.Context(), key("a"))
	wantError(t, "Get after Delete", err, store.ErrNotFound)

	again := create(t, s, key("a"), "one")
	if again.Version == first.Version || again.Version == second.Version {
		t.Error("a row that is created again has a version of its predecessor")
	}
	remove(t, s, key("a"))
}

func testList(t *testing.T, s store.Store) {
	keys := []resource.Key{
		{Kind: "Thing", Name: "global"},
		{Kind: "Thing", Mesh: "a", Name: "z"},
		{Kind: "Thing", Mesh: "b", Name: "a"},
		{Kind: "Thing", Mesh: "b", Name: "a-1"},
		{Kind: "Thing", Mesh: "b", Name: "a.1"},
	}
	for i := range keys {
		create(t, s, keys[len(keys)-1-i], "")
	}
	create(t, s, resource.Key{Kind: "Other", Name: "x"}, "")
	rows, _ := list(t, s, "Thing")
	if len(rows) != len(keys) {
		t.Fatalf("List returns %d rows, want %d", len(rows), len(keys))
	}
	for i, row := range rows {
		if row.Key != keys[i] {
			t.Errorf("row %d is %s, want %s", i, row.Key, keys[i])
		}
	}
	if rows, at := list(t, s, "Nothing"); len(rows) != 0 || at == "" {
		t.Errorf("List of an unknown kind returns %d rows and the cursor %q", len(rows), at)
	}
}

func testCopied(t *testing.T, s store.Store) {
	body, owner := []byte("one"), key("owner")
	create(t, s, owner, "")
	if _, err := s.Create(t.Context(), store.Row{Key: key("a"), Owner: &owner, Body: body}); err != nil {
		t.Fatal(err)
	}
	body[0], owner.Name = 'X', "other"
	got, _ := s.Get(t.Context(), key("a"))
	if string(got.Body) != "one" || got.Owner == nil || *got.Owner != key("owner") {
		t.Errorf("the row is %q of %v after the caller changed the bytes and the owner that it had passed", got.Body,
			got.Owner)
	}
}

func testOwner(t *testing.T, s store.Store) {
	create(t, s, key("root"), "")
	owned := map[string]string{"child": "root", "grandchild": "child", "other-child": "root"}
	for _, name := range []string{"child", "grandchild", "other-child"} {
		owner := key(owned[name])
		if _, err := s.Create(t.Context(), store.Row{Key: key(name), Owner: &owner}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, key("free"), "")
	remove(t, s, key("other-child"))
	remove(t, s, key("root"))
	testwait.UntilTrue(t, "the child is gone", gone(s, key("child")))
	testwait.UntilTrue(t, "the grandchild is gone", gone(s, key("grandchild")))
	if rows, _ := list(t, s, "Thing"); len(rows) != 1 || rows[0].Key != key("free") {
		t.Errorf("left are %d rows, want the free one", len(rows))
	}
	create(t, s, key("root"), "")
	create(t, s, key("child"), "")
	if _, err := s.Get(t.Context(), key("child")); err != nil {
		t.Errorf("a row that was created again after its owner: %v", err)
	}
}

// testInvalidNames: a path of the API may have any name, so a store receives names that no row can have.
func testInvalidNames(t *testing.T, s store.Store) {
	for _, name := range []string{"", "a\x00b", "\xff", "'; DROP TABLE resources; --"} {
		_, err := s.Get(t.Context(), key(name))
		wantError(t, fmt.Sprintf("Get of %q", name), err, store.ErrNotFound)
		wantError(t, fmt.Sprintf("Delete of %q", name), s.Delete(t.Context(), key(name), ""), store.ErrNotFound)
	}
	create(t, s, key("a"), "")
}

func testNoOwner(t *testing.T, s store.Store) {
	owner := key("missing")
	_, err := s.Create(t.Context(), store.Row{Key: key("a"), Owner: &owner})
	if err != nil {
		wantError(t, "Create under a missing owner", err, store.ErrNoOwner)
	}
	testwait.UntilTrue(t, "the row without its owner is gone", gone(s, key("a")))
}

func testCanceled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, key("a"))
	wantError(t, "Get", err, context.Canceled)
	_, _, err = s.List(ctx, "Thing")
	wantError(t, "List", err, context.Canceled)
	_, err = s.Create(ctx, store.Row{Key: key("a")})
	wantError(t, "Create", err, context.Canceled)
}

func testClosed(t *testing.T, s store.Store) {
	_, at := list(t, s, "Thing")
	events, err := s.Watch(t.Context(), []string{"Thing"}, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for range events {
	}
	_, err = s.Get(t.Context(), key("a"))
	wantError(t, "Get", err, store.ErrUnavailable)
	_, _, err = s.List(t.Context(), "Thing")
	wantError(t, "List", err, store.ErrUnavailable)
	_, err = s.Create(t.Context(), store.Row{Key: key("a")})
	wantError(t, "Create", err, store.ErrUnavailable)
	_, err = s.Watch(t.Context(), []string{"Thing"}, at)
	wantError(t, "Watch", err, store.ErrUnavailable)
}

func testCounters(t *testing.T, s store.Store) {
	const writers, each = 8, 25
	create(t, s, key("counter"), "0")
	_, at := list(t, s, "Thing")
	events, err := s.Watch(t.Context(), []string{"Thing"}, at)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for range each {
				if err := increment(t.Context(), s, key("counter")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for want := 1; want <= writers*each; {
		for _, e := range receive(t, events) {
			if got := string(e.Row.Body); got != strconv.Itoa(want) {
				t.Fatalf("the watcher saw %s, want %d next", got, want)
			}
			want++
		}
	}
	running.Wait()
}

// increment adds 1 to the number in a row, and retries after a conflict.
func increment(ctx context.Context, s store.Store, k resource.Key) error {
	for {
		row, err := s.Get(ctx, k)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(row.Body))
		if err != nil {
			return err
		}
		row.Body = []byte(strconv.Itoa(n + 1))
		if _, err = s.Update(ctx, row); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}
