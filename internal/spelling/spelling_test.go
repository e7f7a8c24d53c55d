package spelling

import (
	"strings"
	"testing"
)

func TestSimilarNames(t *testing.T) {
	known := []string{"web", "web-admin", "backend", "b", "frontend", "database", "west"}
	for name, want := range map[string]string{
		"backnd": "backend", "we": "web west web-admin", "admin": "web-admin", "": "", "x": "", "payments": "",
		"wet": "web west",
	} {
		if got := strings.Join(Similar(name, known), " "); got != want {
			t.Errorf("%q is like %q, want %q", name, got, want)
		}
	}
}
