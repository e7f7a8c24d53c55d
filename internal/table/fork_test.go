package table_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/table"
)

// drawChange returns a change of a few rows, which can be applied several times.
func drawChange(t *rapid.T, w *world) func(*table.Tx) {
	group := rapid.SampledFrom(groups)
	var steps []func(*table.Tx)
	for range rapid.IntRange(0, 3).Draw(t, "writes") {
		name := rapid.SampledFrom([]string{"i1", "i2", "i3", "i4", "i5"}).Draw(t, "name")
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			steps = append(steps, func(tx *table.Tx) { w.items.Delete(tx, name) })
			continue
		}
		row := item{name, group.Draw(t, "group"), group.Draw(t, "next"), rapid.IntRange(0, 3).Draw(t, "value")}
		steps = append(steps, func(tx *table.Tx) { w.items.Put(tx, row) })
	}
	return func(tx *table.Tx) {
		for _, step := range steps {
			step(tx)
		}
	}
}

// TestForkEqualsTheCommitOfItsChange: both Readers of a fork return what a rebuild before and after the commit of the
// same change returns, in any order of reads, and the fork changes nothing.
func TestForkEqualsTheCommitOfItsChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.totals.Pin(len(groups))
		w.db.Commit(drawChange(t, w))
		w.db.Commit(drawChange(t, w))
		change := drawChange(t, w)
		present := w.db.Snapshot()
		fork := present.Fork(change)
		if w.db.Snapshot() != present {
			t.Fatal("the fork is a commit")
		}
		old := table.Eval(present)
		w.db.Commit(change)
		next := table.Eval(w.db.Snapshot())
		before, after := fork.Eval()
		for range rapid.IntRange(1, 6).Draw(t, "reads") {
			n := rapid.IntRange(0, len(groups)).Draw(t, "n")
			late, want := before, old
			if rapid.Bool().Draw(t, "after") {
				late, want = after, next
			}
			if got, want := w.totals.Get(late, n), w.totals.Get(want, n); got != want {
				t.Fatalf("totals(%d) is %d, want %d", n, got, want)
			}
		}
	})
}

// TestForkComputesWhatItChanges: what reads nothing of the change is computed once for the state before and after it.
func TestForkComputesWhatItChanges(t *testing.T) {
	w := newWorld()
	w.db.Commit(func(tx *table.Tx) {
		for i, group := range groups {
			w.items.Put(tx, item{fmt.Sprint("i", i), group, group, i})
		}
	})
	fork := w.db.Snapshot().Fork(func(tx *table.Tx) { w.items.Put(tx, item{"i1", "b", "b", 5}) })
	clear(w.runs)
	before, after := fork.Eval()
	if w.totals.Get(before, 4) == w.totals.Get(after, 4) {
		t.Error("the change has no effect")
	}
	for _, group := range groups {
		want := 1
		if group == "b" {
			want = 2
		}
		if got := w.runs["sums "+group]; got != want {
			t.Errorf("the sum of %s is computed %d times, want %d", group, got, want)
		}
	}
}
