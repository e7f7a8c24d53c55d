package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func shout(_ *testing.T, a *txtar.Archive) { Set(a, "loud", strings.ToUpper(Section(a, "quiet"))) }

// The flag -update writes the derived sections, and a scenario that has them passes without it.
func TestUpdate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txtar")
	const input = "A comment.\n-- quiet --\nhello\n"
	const whole = input + "-- loud --\nHELLO\n"
	for _, before := range []string{input, input + "-- loud --\nBYE\n", whole} {
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		*update = true
		Run(t, file, shout)
		*update = false
		if after, err := os.ReadFile(file); err != nil || string(after) != whole {
			t.Errorf("after %q: %v %q", before, err, after)
		}
		Run(t, file, shout)
	}
}

// A scenario whose derived section is missing or differs does not equal its result.
func TestDerived(t *testing.T) {
	for text, equal := range map[string]bool{
		"-- quiet --\na\n-- loud --\nA\n": true,
		"-- quiet --\na\n-- loud --\nB\n": false,
		"-- quiet --\na\n":                false,
	} {
		if got := string(derived(t, []byte(text), shout)); (got == text) != equal {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
