package xds

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestEntriesAreFoundByName: a type set finds its entries while they are few and while they are many, through removals
// and sweeps.
func TestEntriesAreFoundByName(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, names := range []int{maxSearched, 40 * maxSearched} {
		var s typeSet
		want := map[string]*Resource{}
		for revision := range uint64(3000) {
			name := fmt.Sprint(random.IntN(names))
			if random.IntN(3) == 0 {
				s.put(revision, name, nil)
				delete(want, name)
			} else {
				want[name] = &Resource{Type: Route, Name: name, Version: fmt.Sprint(revision)}
				s.put(revision, name, want[name])
			}
			if s.needsSweep() {
				s.sweep(revision)
			}
			for i := range names {
				name := fmt.Sprint(i)
				e := s.find(name)
				if (e == nil) != (want[name] == nil) || e != nil && (e.resource != want[name] || s.byID[e.id] != e) {
					t.Fatalf("of %d names at revision %d, %s is %v, want %v", names, revision, name, e, want[name])
				}
			}
		}
		if few := names == maxSearched; few != (s.entries == nil) {
			t.Errorf("%d names: a map: %t", names, s.entries != nil)
		}
	}
}
