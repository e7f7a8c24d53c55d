package policy

import (
	"os"
	"strings"
	"testing"
)

// TestExamples are the examples of the documentation page about the order and about merging. Each has policies, and
// requests with the effective conf and, where the order matters, the policies that it is from.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "\n### ")[1:]
	if len(examples) < 28 {
		t.Fatalf("the page has %d examples, want all 28 numbers", len(examples))
	}
	for _, example := range examples {
		name, text, _ := strings.Cut(example, "\n\n```\n")
		policies, effective, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(text), "```"), "\n\n")
		if !ok {
			t.Fatalf("example %s: it has no blank line between policies and effective confs", name)
		}
		t.Run(name, func(t *testing.T) {
			for line := range strings.Lines(effective) {
				request, want, ok := strings.Cut(strings.TrimSpace(line), ": ")
				if !ok {
					continue
				}
				want, wantBy, ordered := strings.Cut(want, " by ")
				request, shadow := strings.CutPrefix(request, "shadow ")
				proxy := web()
				if label, rest, found := strings.Cut(request, " "); found && strings.Contains(label, "=") {
					request, proxy = rest, web(label)
				}
				got, by := newWorld(t, policies, shadow).effective(t, proxy, request)
				if got != want || ordered && by != wantBy {
					t.Errorf("%s: the conf is %s by %s, want %s by %s", request, got, by, want, wantBy)
				}
			}
		})
	}
}
