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
		if got := string(txtar.Format(derived(t, []byte(text), shout))); (got == text) != equal {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// A section that begins with its base is written as a difference from it, after the base, and compared as a whole.
func TestUpdateWritesDifferences(t *testing.T) {
	folder := t.TempDir()
	scenarios := filepath.Join(folder, "*.txtar")
	writeAll := func(files map[string]string) {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	derive := func(_ *testing.T, a *txtar.Archive) {
		Set(a, "out", "--- # cluster a\nname: a\ntimeout: "+Section(a, "timeout")+"--- # cluster b\nname: b\n")
	}
	writeAll(map[string]string{
		"a.txtar": "-- timeout --\n1s\n-- out --\nbase: b\n",
		"b.txtar": "-- timeout --\n2s\n",
	})
	*update = true
	Run(t, scenarios, derive)
	*update = false
	Run(t, scenarios, derive)
	const want = "-- timeout --\n1s\n-- out --\nbase: b\n--- # changed cluster a\ntimeout: 1s\n"
	if got, err := os.ReadFile(filepath.Join(folder, "a.txtar")); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}

	// A base that changes alone changes the whole of its differences, whose tests then fail.
	writeAll(map[string]string{"b.txtar": "-- out --\n--- # cluster a\nname: other\ntimeout: 2s\n"})
	if diff, err := compare(filepath.Join(folder, "a.txtar"), derived(t, []byte(want), derive)); err != nil ||
		!strings.Contains(diff, "other") {
		t.Errorf("the difference is %q (%v)", diff, err)
	}
}
