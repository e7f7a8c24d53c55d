package table_test

import (
	"fmt"
	"slices"
	"testing"

	"weft/internal/table"
)

func TestAPanickingValueStaysAsItWas(t *testing.T) {
	db := table.New()
	items := table.NewInput(db, func(i item) string { return i.name })
	equal := func(a, b *int) bool { return *a == *b } // panics for nil
	half := table.NewDerived(db, "half", func(r *table.Reader, name string) *int {
		i, _ := items.Get(r, name)
		if i.value%2 != 0 {
			panic(fmt.Sprintf("%d is odd", i.value))
		}
		return &[]int{i.value / 2}[0]
	}, equal)
	total := table.NewDerived(db, "total", func(r *table.Reader, _ string) *int {
		sum := 0
		for _, name := range []string{"a", "b"} {
			if h := half.Get(r, name); h != nil {
				sum += *h
			}
		}
		return &sum
	}, equal)
	var reported []string
	db.Contain(func(f table.Failure) {
		if f.Kept {
			reported = append(reported, fmt.Sprintf("%s %v: %v", f.Table, f.Key, f.Panic))
		}
	})
	set := func(name string, value int) {
		db.Commit(func(tx *table.Tx) { items.Put(tx, item{name: name, value: value}) })
	}
	expect := func(when string, want int, wantReported ...string) {
		t.Helper()
		if got, _ := total.Value(""); *got != want {
			t.Errorf("%s: the total is %d, want %d", when, *got, want)
		}
		if !slices.Equal(reported, wantReported) {
			t.Errorf("%s: reported %q, want %q", when, reported, wantReported)
		}
		reported = nil
	}
	set("a", 2)
	set("b", 3)
	total.Pin("")
	expect("made first, where one never could be", 1, "half b: 3 is odd")
	set("a", 5)
	expect("after one failed", 1, "half a: 5 is odd")
	if fresh := half.Get(table.Eval(db.Snapshot()), "a"); fresh != nil {
		t.Errorf("evaluated anew, what can't be made is %d", *fresh)
	}
	set("b", 4)
	expect("after the other could be made", 3, "half b: <nil>")
	set("a", 8)
	expect("after both can be made", 6, "half a: <nil>")
	set("a", 7)
	reported = nil
	total.Unpin("")
	if want := []string{"half a: <nil>"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q after the last unpin, want %q", reported, want)
	}
}
