package table

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// TestSmallMap: a small map equals a map after any steps, while it is a list and afterwards.
func TestSmallMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := map[int]int{}, smallMap[int, int]{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				key, value := rapid.IntRange(0, 2*maxList).Draw(t, "key"), rapid.Int().Draw(t, "value")
				want[key] = value
				got.set(key, value)
			},
			"delete": func(t *rapid.T) {
				key := rapid.IntRange(0, 2*maxList).Draw(t, "key")
				delete(want, key)
				got.delete(key)
			},
			"delete some": func(t *rapid.T) {
				least := rapid.IntRange(0, 2*maxList).Draw(t, "least")
				some := func(key, _ int) bool { return key >= least }
				maps.DeleteFunc(want, some)
				got.deleteFunc(some)
			},
			"": func(t *rapid.T) {
				all := map[int]int{}
				got.all(func(key, value int) { all[key] = value })
				if !maps.Equal(all, want) || got.len() != len(want) {
					t.Fatalf("the small map has %d entries %v, want %v", got.len(), all, want)
				}
				for key := range 2*maxList + 1 {
					value, ok := got.get(key)
					if has, in := want[key]; ok != in || value != has {
						t.Fatalf("%d is %d, %v; want %d, %v", key, value, ok, has, in)
					}
				}
			},
		})
	})
}
