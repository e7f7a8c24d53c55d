package weft_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSteps: tools/steps runs targets in their order, tries what fetches again, stops at a failure, and leaves out of a
// long CI what its list names, and nothing else.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		minutes int // for which CI has run
		steps   string
		fails   bool
		ran     string // in their order
		prints  []string
	}{
		"in their order": {0, "format units attacks mutations", false, "format units attacks mutations",
			[]string{"format                  0 min 0", " s  ok"}},
		"a failure stops":     {0, "format broken units", true, "format broken", []string{"broken", "FAILED"}},
		"a download succeeds": {0, "tools units", false, "tools tools tools units", []string{"3 times at most"}},
		"a download fails":    {0, "spire units", true, "spire spire spire spire", []string{"FAILED"}},
		"a CI that runs for long": {61, "units attacks mutations", false, "units attacks-few",
			[]string{"LEFT OUT: attacks", "LEFT OUT: mutations"}},
		"a CI just before that": {59, "units attacks mutations", false, "units attacks mutations", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
				t.Fatal(err)
			}
			script, err := os.ReadFile("tools/steps")
			if err != nil {
				t.Fatal(err)
			}
			// The download fails twice, the build always.
			makefile := "%:\n\t@echo $@ >>ran\n" +
				"broken:\n\t@echo $@ >>ran; false\n" +
				"tools:\n\t@echo $@ >>ran; test $$(grep -c tools ran) = 3\n" +
				"spire:\n\t@echo $@ >>ran; false\n" +
				".PHONY: tools broken spire\n"
			for file, text := range map[string]string{"tools/steps": string(script), "Makefile": makefile} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now().Add(-time.Duration(c.minutes) * time.Minute)
			// sh reads the script: Linux executes no file that a process, forked by another test, has open for writing.
			args := append([]string{filepath.Join(dir, "tools/steps")}, strings.Fields(c.steps)...)
			command := exec.Command("sh", args...)
			command.Env = append(os.Environ(), "MAKE=make", "MAKEFLAGS=", "WEFT_RETRY_PAUSE=0",
				"WEFT_LOGS="+filepath.Join(dir, "logs"), fmt.Sprintf("WEFT_CI_BEGAN=%d", began.Unix()))
			out, err := command.CombinedOutput()
			if (err != nil) != c.fails {
				t.Errorf("%v, want a failure: %t", err, c.fails)
			}
			ran, err := os.ReadFile(filepath.Join(dir, "ran"))
			if got := strings.Join(strings.Fields(string(ran)), " "); err != nil || got != c.ran {
				t.Errorf("%q ran, %v, want %q", got, err, c.ran)
			}
			for _, text := range c.prints {
				if !strings.Contains(string(out), text) {
					t.Errorf("the output lacks %q", text)
				}
			}
			if t.Failed() {
				t.Logf("the output:\n%s", out)
			}
		})
	}
}
