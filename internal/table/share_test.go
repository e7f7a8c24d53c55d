package table_test

import (
	"fmt"
	"sync"
	"testing"

	"weft/internal/table"
)

// TestAnEvalReadsSharedValues: a kept value of a shared table is computed once, by the commit, for all snapshots that
// have it.
func TestAnEvalReadsSharedValues(t *testing.T) {
	w := newWorld()
	put := func(value int) {
		w.db.Commit(func(tx *table.Tx) { w.items.Put(tx, item{"i", "a", "b", value}) })
	}
	put(1)
	w.sums.Pin("a")
	former := w.db.ComputedSnapshot()
	put(2)
	newest := w.db.ComputedSnapshot()
	clear(w.runs)
	if got := w.sums.Get(table.Eval(newest), "a"); got != 20 {
		t.Errorf("the sum is %d, want 20", got)
	}
	if w.runs["sums a"] > 0 {
		t.Error("a shared value is computed again")
	}
	if got := w.sums.Get(table.Eval(former), "a"); got != 11 {
		t.Errorf("the sum before the commit is %d, want 11", got)
	}
	w.sums.Unpin("a")
	put(3)
	if got := w.sums.Get(table.Eval(w.db.ComputedSnapshot()), "a"); got != 31 || w.runs["sums a"] == 0 {
		t.Errorf("the sum is %d, want 31, computed for the reader: no kept value follows the change", got)
	}
}

// TestACommitHidesOutdatedValues: until a commit has computed a shared value, an Eval of its snapshot has none.
func TestACommitHidesOutdatedValues(t *testing.T) {
	w := newWorld()
	var during []string
	w.hops.Pin("a")
	w.db.Commit(func(tx *table.Tx) { w.items.Put(tx, item{"i", "a", "a", 1}) })
	w.db.Observe(func(stage table.Stage) {
		if stage.Table == "parity" { // before the sums
			during = append(during, fmt.Sprint(w.sums.Get(table.Eval(w.db.Snapshot()), "a"),
				w.sums.Get(table.Eval(w.db.ComputedSnapshot()), "a")))
		}
	})
	w.db.Commit(func(tx *table.Tx) { w.items.Put(tx, item{"i", "a", "a", 2}) })
	if got := fmt.Sprint(during); got != "[20 11]" {
		t.Errorf("during the commit, the sums of the new and of the computed state are %s, want 20 and 11", got)
	}
}

// TestAFailedValueIsNotShared: an Eval has the same result of a function that panics, whether or not its value is kept.
func TestAFailedValueIsNotShared(t *testing.T) {
	db := table.New()
	db.Contain(func(table.Failure) {})
	items := table.NewInput(db, func(i item) string { return i.name })
	half := table.NewDerived(db, "half", func(r *table.Reader, name string) int {
		i, _ := items.Get(r, name)
		if i.value%2 != 0 {
			panic("odd")
		}
		return i.value / 2
	}, func(a, b int) bool { return a == b })
	table.Share(half, func(name string) string { return name })
	half.Pin("a")
	for _, c := range []struct{ value, kept, shared int }{{4, 2, 2}, {5, 2, 0}, {4, 2, 2}} {
		db.Commit(func(tx *table.Tx) { items.Put(tx, item{name: "a", value: c.value}) })
		if kept, _ := half.Value("a"); kept != c.kept {
			t.Errorf("the kept half of %d is %d, want %d", c.value, kept, c.kept)
		}
		if shared := half.Get(table.Eval(db.ComputedSnapshot()), "a"); shared != c.shared {
			t.Errorf("the shared half of %d is %d, want %d", c.value, shared, c.shared)
		}
	}
}

// TestSharedValuesHaveManyReaders: readers of any goroutine have the values of one state while commits follow each
// other.
func TestSharedValuesHaveManyReaders(t *testing.T) {
	w := newWorld()
	for _, group := range groups {
		w.sums.Pin(group)
	}
	commits := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range commits {
				s := w.db.ComputedSnapshot()
				row, _ := w.items.Get(table.Eval(s), "i")
				if got := w.sums.Get(table.Eval(s), "a"); got != 10*row.value {
					t.Errorf("the sum is %d, want that of the row, %d", got, 10*row.value)
				}
			}
		})
	}
	for value := range 200 {
		w.db.Commit(func(tx *table.Tx) { w.items.Put(tx, item{"i", "a", "b", 2 * value}) })
		commits <- struct{}{}
	}
	close(commits)
	readers.Wait()
}
