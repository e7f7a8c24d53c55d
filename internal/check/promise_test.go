package check_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/internal/check"
)

// TestPromisedStates: each error is the finding of a state in the documented promise, and each state has a finding.
func TestPromisedStates(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promise, _ := strings.Cut(string(text), "\n| part | state | findings |\n|---|---|---|\n")
	promise, _, found := strings.Cut(promise, "\n\n")
	if !found {
		t.Fatal("docs/troubleshooting.md has no table of states")
	}
	linked := map[string]bool{}
	for state := range strings.Lines(promise) {
		links := regexp.MustCompile(`\[([a-z-]+)\]\(#([a-z-]+)\)`).FindAllStringSubmatch(state, -1)
		if len(links) == 0 {
			t.Errorf("no finding for the state %s", state)
		}
		for _, link := range links {
			if linked[link[1]] = true; link[1] != link[2] || !isProblem(link[1]) {
				t.Errorf("%s is no finding: %s", link[0], state)
			}
		}
	}
	for _, p := range check.Problems() {
		if p.Severity == check.Error && !linked[p.ID] {
			t.Errorf("no state has the finding %s", p.ID)
		}
	}
}

func isProblem(id string) bool {
	return slices.ContainsFunc(check.Problems(), func(p *check.Problem) bool { return p.ID == id })
}
