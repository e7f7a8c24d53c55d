package table_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/table"
)

type item struct {
	name  string
	group string
	next  string // another group
	value int
}

// world is a small mesh of derived values: sums over groups, sums that follow a reference chosen by the rows
// themselves, and a value over many of those.
type world struct {
	db     *table.DB
	items  table.Input[item]
	groups table.Index[item]
	parity table.Derived[string, int]
	sums   table.Derived[string, int]
	hops   table.Derived[string, int]
	totals table.Derived[int, int]
	runs   map[string]int
}

var groups = []string{"a", "b", "c", "d"}

func newWorld() *world {
	w := &world{db: table.New(), runs: map[string]int{}}
	equal := func(a, b int) bool { return a == b }
	w.items = table.NewInput(w.db, func(i item) string { return i.name })
	w.groups = table.NewIndex(w.items, func(i item) []string { return []string{i.group} })
	w.parity = table.NewDerived(w.db, "parity", func(r *table.Reader, name string) int {
		w.runs["parity "+name]++
		i, _ := w.items.Get(r, name)
		return i.value % 2
	}, equal)
	w.sums = table.NewDerived(w.db, "sums", func(r *table.Reader, group string) int {
		w.runs["sums "+group]++
		sum := 0
		for _, i := range w.groups.List(r, group) {
			sum += 10*i.value + w.parity.Get(r, i.name)
		}
		return sum
	}, equal)
	w.hops = table.NewDerived(w.db, "hops", func(r *table.Reader, group string) int {
		w.runs["hops "+group]++
		sum := 0
		for _, i := range w.groups.List(r, group) {
			sum += w.sums.Get(r, i.next)
		}
		return sum % 7
	}, equal)
	table.Share(w.sums, func(group string) string { return group })
	table.Share(w.hops, func(group string) string { return "of " + group })
	w.totals = table.NewDerived(w.db, "totals", func(r *table.Reader, n int) int {
		total := 0
		for _, g := range groups[:n] {
			total += w.hops.Get(r, g)
		}
		return total
	}, equal)
	return w
}

func TestKeptValuesEqualARebuildAfterAnyChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		pins := map[int]int{}
		seen := map[int]int{}
		names := rapid.SampledFrom([]string{"i1", "i2", "i3", "i4", "i5", "i6"})
		group := rapid.SampledFrom(groups)
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				changes := w.db.Commit(func(tx *table.Tx) {
					for range rapid.IntRange(1, 4).Draw(t, "writes") {
						name := names.Draw(t, "name")
						if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
							w.items.Delete(tx, name)
							continue
						}
						w.items.Put(tx, item{name, group.Draw(t, "group"), group.Draw(t, "next"),
							rapid.IntRange(0, 3).Draw(t, "value")})
					}
				})
				for n, v := range table.ChangedValues(w.totals, changes) {
					if seen[n] == v {
						t.Fatalf("totals(%d) is reported as changed and is %d as before", n, v)
					}
					seen[n] = v
				}
			},
			"pin": func(t *rapid.T) {
				n := rapid.IntRange(0, len(groups)).Draw(t, "n")
				pins[n]++
				seen[n] = w.totals.Pin(n)
			},
			"unpin": func(t *rapid.T) {
				n := rapid.IntRange(0, len(groups)).Draw(t, "n")
				if pins[n] == 0 {
					t.Skip("not pinned")
				}
				pins[n]--
				w.totals.Unpin(n)
				if pins[n] == 0 {
					delete(pins, n)
					delete(seen, n)
				}
			},
			"": func(t *rapid.T) {
				fresh, shared := table.Eval(w.db.Snapshot().UnsharedCopy()), table.Eval(w.db.ComputedSnapshot())
				for n := range pins {
					want := w.totals.Get(fresh, n)
					got, ok := w.totals.Value(n)
					if !ok || got != want || seen[n] != want {
						t.Fatalf("totals(%d): kept %d (%v), reported %d, rebuilt %d", n, got, ok, seen[n], want)
					}
				}
				for _, group := range groups {
					if got, want := w.hops.Get(shared, group), w.hops.Get(fresh, group); got != want {
						t.Fatalf("hops(%s): shared %d, rebuilt %d", group, got, want)
					}
				}
				if len(pins) == 0 && w.totals.Len()+w.hops.Len()+w.sums.Len()+w.parity.Len() != 0 {
					t.Fatalf("nothing is pinned, but values are kept")
				}
			},
		})
	})
}

func TestOnlyReadersOfAChangeAreRecomputed(t *testing.T) {
	w := newWorld()
	w.db.Commit(func(tx *table.Tx) {
		for i := range 100 {
			w.items.Put(tx, item{fmt.Sprintf("i%02d", i), groups[i%4], groups[(i+1)%4], i})
		}
	})
	w.totals.Pin(4)
	clear(w.runs)
	w.db.Commit(func(tx *table.Tx) { w.items.Put(tx, item{"i00", "a", "b", 2}) })
	var ran []string
	for name := range w.runs {
		ran = append(ran, name)
	}
	slices.Sort(ran)
	// Item i00 is of group a; only the items of group d refer to a. Its parity did not change.
	want := []string{"hops a", "hops d", "parity i00", "sums a"}
	if !slices.Equal(ran, want) {
		t.Errorf("recomputed %v, want %v", ran, want)
	}
}

// TestRowsAfterOneOfAnIndex: the rows under an index key follow each other in the order of their own keys, and those of
// another key, of which the former is a prefix, are none of them.
func TestRowsAfterOneOfAnIndex(t *testing.T) {
	w := newWorld()
	w.db.Commit(func(tx *table.Tx) {
		for _, row := range []item{{"i1", "a", "", 0}, {"i2", "b", "", 0}, {"i3", "a", "", 0}, {"i4", "aa", "", 0},
			{"i5", "a", "", 0}} {
			w.items.Put(tx, row)
		}
	})
	for after, want := range map[string]string{"": "[i1 i3 i5]", "i1": "[i3 i5]", "i2": "[i3 i5]", "i5": "[]"} {
		names := []string{}
		for row := range w.groups.RowsAfter(w.db.Snapshot(), "a", after) {
			names = append(names, row.name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("after %q are %s, want %s", after, got, want)
		}
	}
}

func TestReadingALaterTablePanics(t *testing.T) {
	db := table.New()
	equal := func(a, b int) bool { return a == b }
	var late table.Derived[int, int]
	early := table.NewDerived(db, "early", func(r *table.Reader, k int) int { return late.Get(r, k) }, equal)
	late = table.NewDerived(db, "late", func(*table.Reader, int) int { return 1 }, equal)
	defer func() {
		if recover() == nil {
			t.Error("a cycle of tables must not go unnoticed")
		}
	}()
	early.Pin(1)
}
