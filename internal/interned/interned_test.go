package interned_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"weft/internal/interned"
	"weft/internal/testwait"
)

type rule struct {
	Names []string `json:",omitempty"`
	Next  *rule    `json:",omitempty"`
}

// TestEqualValues: values are equal where their JSON and their type are, and differ in all other cases.
func TestEqualValues(t *testing.T) {
	a := interned.Make(map[string]string{"b": "2", "a": "1"})
	b := interned.Make(map[string]string{"a": "1", "b": "2"})
	if a != b || a.String() != `{"a":"1","b":"2"}` {
		t.Errorf("%s and %s are two values", a, b)
	}
	if a == interned.Make(map[string]string{"a": "1"}) {
		t.Error("other maps are the same value")
	}
	if one, two := any(interned.Make(rule{})), any(interned.Make(struct{}{})); one == two {
		t.Error("values of two types are equal")
	}
	var none interned.Value[*rule]
	if none.String() != "" || none.Get() != nil || none == interned.Make(&rule{}) {
		t.Errorf("the zero value is %q", none)
	}
}

// TestValueKeepsNothingOfItsArgument: the argument may change afterwards, and all readers share what is decoded.
func TestValueKeepsNothingOfItsArgument(t *testing.T) {
	argument := &rule{Names: []string{"a"}, Next: &rule{Names: []string{"b"}}}
	v := interned.Make(argument)
	argument.Names[0], argument.Next.Names[0] = "changed", "changed"
	if got := v.Get(); got.Names[0] != "a" || got.Next.Names[0] != "b" {
		t.Errorf("the value is %s", interned.Make(got))
	}
	if again := interned.Make(&rule{Names: []string{"a"}, Next: &rule{Names: []string{"b"}}}); again.Get() != v.Get() {
		t.Error("an equal value is decoded twice")
	}
}

// TestEqualValuesOfGoroutines: goroutines that make a value at the same time, and while former ones are collected, get
// one.
func TestEqualValuesOfGoroutines(t *testing.T) {
	for round := range 200 {
		var made [8]interned.Value[rule]
		var all sync.WaitGroup
		for i := range made {
			all.Go(func() { made[i] = interned.Make(rule{Names: []string{"x", fmt.Sprint(round % 3)}}) })
		}
		all.Wait()
		for _, v := range made {
			if v != made[0] || v.Get().Names[1] != fmt.Sprint(round%3) {
				t.Fatalf("round %d: %s and %s are two values", round, v, made[0])
			}
		}
		if round%20 == 0 {
			runtime.GC()
		}
	}
}

// TestUnusedValuesAreCollected: a value without a holder takes no memory.
func TestUnusedValuesAreCollected(t *testing.T) {
	kept := interned.Make(rule{Names: []string{"kept"}})
	for i := range 1000 {
		interned.Make(rule{Names: []string{"unused", fmt.Sprint(i)}}).Get()
	}
	testwait.UntilTrue(t, "the unused values are collected", func() bool {
		runtime.GC()
		return interned.EntriesWith(`{"Names":["unused"`) == 0
	})
	if interned.EntriesWith(`{"Names":["kept"`) != 1 || kept.Get().Names[0] != "kept" {
		t.Error("a value is lost while it is used")
	}
}
