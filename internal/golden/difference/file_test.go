package difference_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden/difference"
)

// write writes scenarios to a new folder.
func write(t *testing.T, scenarios map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range scenarios {
		if err := os.WriteFile(filepath.Join(folder, name+".txtar"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// A base may be a difference, another section, and in the same file. Other sections stay as they are.
func TestReadFile(t *testing.T) {
	folder := write(t, map[string]string{
		"whole": "-- out --\n--- # a b\nk: 1\nv: 1\n",
		"first": "A comment.\n-- in --\nin\n-- out --\nbase: whole\n--- # changed a b\nk: 2\n",
		"second": "-- out --\nbase: first\n--- # changed a b\nv: 2\n" +
			"-- other --\nbase: second/out\n--- # changed a b\nk: 3\n",
	})
	for name, want := range map[string]string{
		"first":  "A comment.\n-- in --\nin\n-- out --\n--- # a b\nk: 2\nv: 1\n",
		"second": "-- out --\n--- # a b\nk: 2\nv: 2\n-- other --\n--- # a b\nk: 3\nv: 2\n",
	} {
		scenario, err := difference.ReadFile(filepath.Join(folder, name+".txtar"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := string(txtar.Format(scenario)); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestReadFileErrors(t *testing.T) {
	folder := write(t, map[string]string{
		"a":       "-- out --\nbase: b\n",
		"b":       "-- out --\nbase: a\n",
		"none":    "-- out --\nbase: absent\n",
		"section": "-- other --\nbase: whole\n",
		"stale":   "-- out --\nbase: whole\n--- # changed a b\nv: 1\n",
		"whole":   "-- out --\n--- # a b\nk: 1\n",
	})
	for name, messages := range map[string][]string{
		"a":       {"a.txtar out is a base of itself"},
		"none":    {"none.txtar out, base absent", "absent.txtar"},
		"section": {"section.txtar other, base whole", `no section "other"`},
		"stale":   {"stale.txtar out", "base whole", "run with -update", "changed a b: v: the base does not have it"},
	} {
		_, err := difference.ReadFile(filepath.Join(folder, name+".txtar"))
		for _, message := range messages {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s: %v, want %q", name, err, message)
			}
		}
	}
}

func TestBasesFirst(t *testing.T) {
	folder := write(t, map[string]string{
		"a": "-- out --\nbase: b\n",
		"b": "-- out --\nbase: c/other\n-- again --\nbase: b/out\n",
		"c": "-- other --\n",
	})
	var files []string
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, filepath.Join(folder, name+".txtar"))
	}
	order, err := difference.BasesFirst(files)
	if want := []string{files[2], files[1], files[0]}; err != nil || !slices.Equal(order, want) {
		t.Errorf("%v %v, want %v", order, err, want)
	}
}
