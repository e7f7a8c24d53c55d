package push

import (
	"fmt"
	"slices"
	"testing"
	"testing/quick"
)

// TestBlocksThatVersionsDoNotShare: what two versions have in common and what each has alone is together the version,
// also where a version has a block several times: each use of an endpoint list is counted, and reverted once.
func TestBlocksThatVersionsDoNotShare(t *testing.T) {
	blocks := map[rune]*block[string]{}
	version := func(names string) (s Shared[string]) {
		for _, name := range names {
			if blocks[name] == nil {
				blocks[name] = &block[string]{lists: []string{string(name)}}
			}
			s = append(s, blocks[name])
		}
		return s
	}
	text := func(s Shared[string]) (names string) {
		for _, list := range s.lists() {
			names += list
		}
		return names
	}
	for _, test := range []struct{ a, b, onlyA, onlyB string }{
		{"", "", "", ""},
		{"abc", "abc", "", ""},
		{"abc", "axc", "b", "x"},
		{"abc", "ac", "b", ""},
		{"abc", "xabcy", "", "xy"},
		{"abc", "cab", "", ""},
		{"aba", "ab", "a", ""},
		{"ab", "babab", "", "bab"},
		{"aab", "abb", "a", "b"},
	} {
		onlyA, onlyB := withoutCommon(version(test.a), version(test.b))
		if text(onlyA) != test.onlyA || text(onlyB) != test.onlyB {
			t.Errorf("%q and %q: only the first has %q, only the second %q; want %q and %q", test.a, test.b,
				text(onlyA), text(onlyB), test.onlyA, test.onlyB)
		}
	}
	uses := func(a, b []uint8) error {
		counted := map[string]int{}
		name := func(s []uint8) (names string) {
			for _, i := range s {
				names += string(rune('a' + i%4))
			}
			return names
		}
		onlyA, onlyB := withoutCommon(version(name(a)), version(name(b)))
		for _, list := range slices.Concat(version(name(a)).lists(), onlyB.lists()) {
			counted[list]++
		}
		for _, list := range slices.Concat(version(name(b)).lists(), onlyA.lists()) {
			counted[list]--
		}
		for list, n := range counted {
			if n != 0 {
				return fmt.Errorf("%q becomes %q: %d uses of %s too many", name(a), name(b), n, list)
			}
		}
		return nil
	}
	if err := quick.Check(func(a, b []uint8) bool {
		err := uses(a, b)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, nil); err != nil {
		t.Error(err)
	}
}
