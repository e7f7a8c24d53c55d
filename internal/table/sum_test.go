package table_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"weft/internal/table"
)

// TestSums: a sum is that of all rows under its key after any changes, and its readers are computed again where it
// differs.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := table.New()
		items := table.NewInput(db, func(i item) string { return i.name })
		values := table.NewSum(items, func(i item) (string, int) { return i.group, i.value })
		doubled := table.NewDerived(db, "doubled", func(r *table.Reader, group string) int {
			return 2 * values.Get(r, group)
		}, func(a, b int) bool { return a == b })
		for _, group := range groups {
			doubled.Pin(group)
		}
		rows := map[string]item{}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				db.Commit(func(tx *table.Tx) {
					for range rapid.IntRange(1, 4).Draw(t, "writes") {
						name := rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "name")
						if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
							items.Delete(tx, name)
							delete(rows, name)
							continue
						}
						rows[name] = item{name: name, value: rapid.IntRange(0, 3).Draw(t, "value"),
							group: rapid.SampledFrom(append([]string{""}, groups...)).Draw(t, "group")}
						items.Put(tx, rows[name])
					}
				})
			},
			"": func(t *rapid.T) {
				want := map[string]int{}
				for _, row := range rows {
					want[row.group] += row.value
				}
				present := maps.Clone(want)
				maps.DeleteFunc(present, func(group string, sum int) bool { return group == "" || sum == 0 })
				if all := maps.Collect(values.All(db.Snapshot(), "")); !maps.Equal(all, present) {
					t.Fatalf("all sums are %v, want %v", all, present)
				}
				for _, group := range groups {
					if got := values.Get(table.Eval(db.Snapshot()), group); got != want[group] {
						t.Fatalf("the sum of %s is %d, want %d", group, got, want[group])
					}
					if got, _ := doubled.Value(group); got != 2*want[group] {
						t.Fatalf("the value of %s is %d, want %d", group, got, 2*want[group])
					}
				}
			},
		})
	})
}
