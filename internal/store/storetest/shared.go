package storetest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"weft/internal/store"
	"weft/internal/testwait"
	"weft/resource"
)

// OpenShared returns stores of one empty database, one for each replica of a control plane.
type OpenShared func(t *testing.T, stores int) []store.Store

// RunShared runs the tests of several stores of one database.
func RunShared(t *testing.T, open OpenShared) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, []store.Store)
	}{
		{"a row that another store wrote is read", testReadOther},
		{"an update is based on a version that another store wrote", testUpdateOther},
		{"one of several concurrent creations succeeds", testOneCreates},
		{"a watch receives the writes of other stores", testWatchOther},
		{"a cursor is valid in every store", testCursorOther},
		{"counting in several stores loses nothing", testCountersShared},
		{"versions grow across stores", testVersionsGrow},
		{"no row is left whose owner another store deleted", testOwnerDeleted},
		{"watchers of every store receive every write", testReplicasShared},
	} {
		t.Run(test.name, func(t *testing.T) {
			stores := open(t, 3)
			for _, s := range stores {
				t.Cleanup(func() { _ = s.Close() })
			}
			test.run(t, stores)
		})
	}
}

func testReadOther(t *testing.T, s []store.Store) {
	row := create(t, s[0], key("a"), "one")
	got, err := s[1].Get(t.Context(), key("a"))
	if err != nil {
		t.Fatal(err)
	}
	wantRow(t, "Get", got, row)
	remove(t, s[1], key("a"))
	_, err = s[0].Get(t.Context(), key("a"))
	wantError(t, "Get of a row that the other store deleted", err, store.ErrNotFound)
}

func testUpdateOther(t *testing.T, s []store.Store) {
	first := create(t, s[0], key("a"), "one")
	second := update(t, s[1], first, "two")
	_, err := s[0].Update(t.Context(), first)
	wantError(t, "Update of a version that the other store replaced", err, store.ErrStale)
	update(t, s[0], second, "three")
}

// testOneCreates: exactly one of several concurrent creations of a row succeeds. Leases depend on it.
func testOneCreates(t *testing.T, s []store.Store) {
	for round := range 20 {
		var running sync.WaitGroup
		failures := make([]error, len(s))
		for i := range s {
			running.Go(func() {
				_, failures[i] = s[i].Create(t.Context(),
					store.Row{Key: key(strconv.Itoa(round)), Body: []byte{byte(i)}})
			})
		}
		running.Wait()
		created := 0
		for _, err := range failures {
			if err == nil {
				created++
			} else {
				wantError(t, "the Create that came later", err, store.ErrExists)
			}
		}
		if created != 1 {
			t.Fatalf("%d stores created the row, want 1", created)
		}
	}
}

func testWatchOther(t *testing.T, s []store.Store) {
	_, at := list(t, s[1], "Thing")
	live := watch(t, s[1], "Thing", at)
	want := history(t, s[0])
	wantEvents(t, collect(t, live, len(want)), want)
}

func testCursorOther(t *testing.T, s []store.Store) {
	_, at := list(t, s[0], "Thing")
	want := history(t, s[0])
	all := collect(t, watch(t, s[1], "Thing", at), len(want))
	rest := collect(t, watch(t, s[2], "Thing", all[0].Cursor), len(want)-1)
	wantEvents(t, rest, want[1:])
}

func testCountersShared(t *testing.T, s []store.Store) {
	const each = 25
	create(t, s[0], key("counter"), "0")
	var running sync.WaitGroup
	for _, s := range s {
		for range 2 {
			running.Go(func() {
				for range each {
					if err := increment(t.Context(), s, key("counter")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	running.Wait()
	row, err := s[0].Get(t.Context(), key("counter"))
	if err != nil || string(row.Body) != strconv.Itoa(2*each*len(s)) {
		t.Errorf("the counter is at %s (%v), want %d", row.Body, err, 2*each*len(s))
	}
}

// testVersionsGrow: a version is never reused, so a writer with an older one is stale.
func testVersionsGrow(t *testing.T, s []store.Store) {
	seen := map[string]bool{}
	for n := range 30 {
		row := create(t, s[n%len(s)], key("a"), "")
		if seen[row.Version] {
			t.Fatalf("version %s was given twice", row.Version)
		}
		seen[row.Version] = true
		remove(t, s[(n+1)%len(s)], key("a"))
	}
}

func testOwnerDeleted(t *testing.T, s []store.Store) {
	owner := resource.Key{Kind: "Owner", Name: "owner"}
	var running sync.WaitGroup
	for round := range 20 {
		create(t, s[0], owner, "")
		for i := range s {
			running.Go(func() {
				_, err := s[i].Create(t.Context(), store.Row{Key: key(fmt.Sprintf("%d-%d", round, i)), Owner: &owner})
				if err != nil {
					wantError(t, "Create under an owner that is being deleted", err, store.ErrNoOwner)
				}
			})
		}
		remove(t, s[1], owner)
		running.Wait()
	}
	testwait.UntilTrue(t, "every owned row is gone", func() bool {
		rows, _ := list(t, s[2], "Thing")
		return len(rows) == 0
	})
}

func testReplicasShared(t *testing.T, s []store.Store) {
	const writes = 60
	var writing, watching sync.WaitGroup
	half := make(chan struct{}, 2*len(s))
	for w := range 2 * len(s) {
		writing.Go(func() { scribble(t, s[w%len(s)], w, writes, half) })
	}
	last := key("last")
	replicas := make([]map[resource.Key]store.Row, 2*len(s))
	for i := range replicas {
		if i == len(s) {
			<-half // the later watchers start in the middle
		}
		watching.Go(func() { replicas[i] = replicate(t, s[i%len(s)], last) })
	}
	writing.Wait()
	create(t, s[0], last, "")
	watching.Wait()
	rows, _ := list(t, s[1], "Thing")
	for i, replica := range replicas {
		wantReplica(t, i, replica, rows)
	}
}
