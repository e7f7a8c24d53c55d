package table_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/table"
)

// lease is a row with its end and its owner.
type lease struct {
	name, owner string
	end         time.Time
}

// leases are rows, a value for each of them, kept while the row exists, and one for each owner.
type leases struct {
	db    *table.DB
	now   time.Time
	rows  table.Input[lease]
	of    table.Index[lease]
	open  table.Derived[string, bool]
	count table.Derived[string, int]
	runs  int
}

func newLeases() *leases {
	w := &leases{db: table.New(), now: time.Unix(1000, 0)}
	w.db.Clock = func() time.Time { return w.now }
	w.rows = table.NewInput(w.db, func(l lease) string { return l.name })
	w.of = table.NewIndex(w.rows, func(l lease) []string { return []string{l.owner} })
	w.open = table.NewDerived(w.db, "open", func(r *table.Reader, name string) bool {
		w.runs++
		l, ok := w.rows.Get(r, name)
		return ok && !r.Past(l.end)
	}, func(a, b bool) bool { return a == b })
	w.count = table.NewDerived(w.db, "count", func(r *table.Reader, owner string) int {
		n := 0
		for _, l := range w.of.List(r, owner) {
			if w.open.Get(r, l.name) {
				n++
			}
		}
		return n
	}, func(a, b int) bool { return a == b })
	table.KeepFor(w.rows, w.count, func(l lease) []string { return []string{l.owner} })
	return w
}

func (w *leases) put(name, owner string, in time.Duration) *table.Changes {
	return w.db.Commit(func(tx *table.Tx) { w.rows.Put(tx, lease{name, owner, w.now.Add(in)}) })
}

func (w *leases) pass(d time.Duration) *table.Changes {
	w.now = w.now.Add(d)
	return w.db.Commit(func(*table.Tx) {})
}

func TestTimeIsARead(t *testing.T) {
	w := newLeases()
	w.put("a", "me", time.Minute)
	w.put("b", "me", time.Hour)
	next, _ := w.db.NextDeadline()
	if want := w.now.Add(time.Minute); !next.Equal(want) {
		t.Fatalf("the next deadline is %v, want %v", next, want)
	}
	w.runs = 0
	if changes := w.pass(time.Minute - 1); w.runs != 0 || len(maps.Collect(table.ChangedValues(w.count, changes))) > 0 {
		t.Error("a value is recomputed before its time")
	}
	if got := maps.Collect(table.ChangedValues(w.count, w.pass(1))); got["me"] != 1 || w.runs != 1 {
		t.Errorf("after a deadline %v changes in %d runs, want me: 1 in one", got, w.runs)
	}
	w.put("b", "me", -time.Second)
	if next, _ = w.db.NextDeadline(); !next.IsZero() {
		t.Errorf("the next deadline is %v, and nothing waits", next)
	}
}

// A goroutine that waits for the next deadline receives a signal for an earlier one, also for one of a value that is
// computed outside a commit.
func TestAnEarlierDeadlineIsSignaled(t *testing.T) {
	w := newLeases()
	w.put("a", "me", time.Hour)
	_, changed := w.db.NextDeadline()
	<-changed
	w.put("b", "me", time.Minute)
	select {
	case <-changed:
	default:
		t.Fatal("an earlier deadline of a commit is not signaled")
	}
	w.db.Commit(func(tx *table.Tx) { w.rows.Delete(tx, "b") })
	<-changed
	sooner := table.NewDerived(w.db, "sooner", func(r *table.Reader, in time.Duration) bool {
		return r.Past(w.now.Add(in))
	},
		func(a, b bool) bool { return a == b })
	sooner.Pin(time.Second)
	select {
	case <-changed:
	default:
		t.Fatal("an earlier deadline of a pin is not signaled")
	}
	if next, _ := w.db.NextDeadline(); !next.Equal(w.now.Add(time.Second)) {
		t.Errorf("the next deadline is %v", next)
	}
}

func TestRowsKeepValues(t *testing.T) {
	w := newLeases()
	if got := maps.Collect(table.ChangedValues(w.count, w.put("a", "me", time.Hour))); got["me"] != 1 {
		t.Errorf("a new row changes %v", got)
	}
	w.put("b", "me", time.Hour)
	changes := w.db.Commit(func(tx *table.Tx) { w.rows.Delete(tx, "b") })
	if got := slices.Collect(table.DroppedKeys(w.count, changes)); len(got) > 0 {
		t.Errorf("%v is dropped, and another row keeps it", got)
	}
	changes = w.put("a", "you", time.Hour)
	if got := slices.Collect(table.DroppedKeys(w.count, changes)); !slices.Equal(got, []string{"me"}) {
		t.Errorf("dropped %v, want me", got)
	}
	if got := maps.Collect(table.ChangedValues(w.count, changes)); !maps.Equal(got, map[string]int{"you": 1}) {
		t.Errorf("changed %v, want you: 1", got)
	}
	w.db.Commit(func(tx *table.Tx) { w.rows.Delete(tx, "a") })
	if next, _ := w.db.NextDeadline(); w.count.Len()+w.open.Len() != 0 || !next.IsZero() {
		t.Errorf("%d values are kept without a row, until %v", w.count.Len(), next)
	}
}

func TestKeptValuesEqualARebuildAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newLeases()
		reported := map[string]int{}
		observe := func(changes *table.Changes) {
			for owner := range table.DroppedKeys(w.count, changes) {
				delete(reported, owner)
			}
			for owner, n := range table.ChangedValues(w.count, changes) {
				reported[owner] = n
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				observe(w.db.Commit(func(tx *table.Tx) {
					for range rapid.IntRange(1, 3).Draw(t, "writes") {
						name := fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "name"))
						if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
							w.rows.Delete(tx, name)
							continue
						}
						owner := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner")
						w.rows.Put(tx,
							lease{name, owner,
								w.now.Add(time.Duration(rapid.IntRange(-2, 9).Draw(t, "end")) * time.Second)})
					}
				}))
			},
			"time goes by": func(t *rapid.T) {
				observe(w.pass(time.Duration(rapid.IntRange(0, 4).Draw(t, "seconds")) * time.Second))
			},
			"the next deadline comes": func(*rapid.T) {
				if next, _ := w.db.NextDeadline(); !next.IsZero() {
					observe(w.pass(next.Sub(w.now)))
				}
			},
			"": func(t *rapid.T) {
				r := table.Eval(w.db.Snapshot())
				owners := map[string]int{}
				for l := range w.rows.All(w.db.Snapshot()) {
					owners[l.owner] = w.count.Get(r, l.owner)
				}
				if !maps.Equal(reported, owners) {
					t.Fatalf("reported %v, rebuilt %v", reported, owners)
				}
				if next, _ := w.db.NextDeadline(); !next.Equal(r.Deadline()) {
					t.Fatalf("the next deadline is %v, rebuilt %v", next, r.Deadline())
				}
			},
		})
	})
}
