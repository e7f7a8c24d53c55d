package kind_test

import (
	"fmt"
	"slices"
	"testing"

	"weft/kind"
	"weft/resource"
)

func labelled(label, value string) *resource.Object[kind.Dataplane] {
	o := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{})
	o.Labels = map[string]string{label: value}
	return o
}

// The record of what agents wrote has a bound. Beyond it an operator vouches for nothing by an edit.
func TestWhatAgentsWroteIsBounded(t *testing.T) {
	operator := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{})
	kind.VouchOperator(nil, operator)
	before := operator
	for i := range kind.MaxAgentFacts + 10 {
		next := labelled("build", fmt.Sprint(i))
		kind.VouchToken(before, next, nil)
		if n := len(next.Vouched.Agent); n > kind.MaxAgentFacts {
			t.Fatalf("%d facts are recorded, at most %d", n, kind.MaxAgentFacts)
		}
		before = next
	}
	for _, value := range []string{"0", "never written"} {
		edited := labelled("build", value)
		kind.VouchOperator(before, edited)
		if want := []string{kind.NameFact("web-1")}; !slices.Equal(edited.Vouched.Operator, want) {
			t.Errorf("an operator who writes build: %s vouches for %q, want %q", value, edited.Vouched.Operator, want)
		}
	}
	again := labelled("build", "0")
	kind.VouchOperator(nil, again)
	if !slices.Contains(again.Vouched.Operator, kind.LabelFact("build", "0")) {
		t.Error("an operator does not vouch for a new Dataplane")
	}
}
