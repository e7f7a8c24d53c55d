package resource

import (
	"fmt"
	"testing"
)

// TestLine: the text of an error has no line break, and begins with the field of its first problem.
func TestLine(t *testing.T) {
	invalid := Errorf(Invalid, "the Pod can't get a sidecar")
	invalid.Problems.Add("spec.a", "is 1,\n  not 2")
	invalid.Problems.Add("", "an operator must correct it")
	for _, test := range []struct {
		err  error
		want string
	}{
		{invalid, "spec.a: is 1, not 2; an operator must correct it (the Pod can't get a sidecar)"},
		{Errorf(NotFound, "a\r\nb\u2028c"), "a b c"},
		{Errorf(NotFound, "\n one line \n\n"), "one line"},
		{fmt.Errorf("writing: %w", invalid),
			"writing: the Pod can't get a sidecar spec.a: is 1, not 2 an operator must correct it"},
	} {
		if got := Line(test.err); got != test.want {
			t.Errorf("%q is the line\n  %q, want\n  %q", test.err, got, test.want)
		}
	}
}
