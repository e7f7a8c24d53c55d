package topk

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The kept items are the first of all, and no others are stored.
func TestFirstItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.IntRange(0, 50)).Draw(t, "items")
		most := rapid.IntRange(1, 10).Draw(t, "most")
		items := New(most, func(a, b *int) int { return cmp.Compare(*a, *b) })
		for _, n := range all {
			items.Add(n)
			if len(items.kept) > most {
				t.Fatalf("%d items are stored", len(items.kept))
			}
		}
		slices.Sort(all)
		if want := all[:min(most, len(all))]; !slices.Equal(items.Slice(), want) {
			t.Fatalf("kept %v, want %v", items.Slice(), want)
		}
	})
}
