package storetest

import (
	"testing"

	"weft/internal/store"
)

// RunDurable runs the tests of durable stores. The first call of reopen returns an empty store. A later call returns
// the store of the call before, which is closed, with its rows and its events.
func RunDurable(t *testing.T, reopen func(t *testing.T) store.Store) {
	s := reopen(t)
	_, at := list(t, s, "Thing")
	events := history(t, s)
	kept, _ := list(t, s, "Thing")
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}

	s = reopen(t)
	rows, end := list(t, s, "Thing")
	if len(rows) != len(kept) {
		t.Fatalf("%d rows after opening again, want %d", len(rows), len(kept))
	}
	for i, row := range rows {
		wantRow(t, "after opening again", row, kept[i])
	}
	wantEvents(t, collect(t, watch(t, s, "Thing", at), len(events)), events)

	next := []store.Event{{Row: update(t, s, rows[0], "next")}}
	wantEvents(t, collect(t, watch(t, s, "Thing", end), 1), next)
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}
