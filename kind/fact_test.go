package kind_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

func labeled(label, value string) *resource.Object[kind.Dataplane] {
	o := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{})
	o.Labels = map[string]string{label: value}
	return o
}

// The record of agents' facts is bounded. Above the bound, an edit of an operator vouches for nothing.
func TestWhatAgentsWroteIsBounded(t *testing.T) {
	for name, suffix := range map[string]string{"number": "", "bytes": strings.Repeat("x", 200)} {
		t.Run(name, func(t *testing.T) { fillsTheRecordOfAgents(t, suffix) })
	}
}

func fillsTheRecordOfAgents(t *testing.T, suffix string) {
	operator := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{})
	kind.VouchOperator(nil, operator)
	before := operator
	for i := range kind.MaxAgentFacts + 10 {
		next := labeled("build", fmt.Sprint(i, suffix))
		kind.VouchToken(before, next, nil)
		agent := next.Vouched.Agent
		if n, bytes := len(agent), len(strings.Join(agent, "")); n > kind.MaxAgentFacts || bytes > kind.MaxAgentBytes {
			t.Fatalf("%d facts of %d bytes are recorded, at most %d of %d", n, bytes, kind.MaxAgentFacts,
				kind.MaxAgentBytes)
		}
		before = next
	}
	for _, value := range []string{"0", "never written"} {
		edited := labeled("build", value)
		kind.VouchOperator(before, edited)
		if want := []string{kind.NameFact("web-1")}; !slices.Equal(edited.Vouched.Operator, want) {
			t.Errorf("an operator who writes build: %s vouches for %q, want %q", value, edited.Vouched.Operator, want)
		}
	}
	again := labeled("build", "0")
	kind.VouchOperator(nil, again)
	if !slices.Contains(again.Vouched.Operator, kind.LabelFact("build", "0")) {
		t.Error("an operator does not vouch for a new Dataplane")
	}
}
