package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// The texts are those of Go 1.26.8: a fault in the race detector's runtime on the stack of a goroutine, one on the
// stack of the scheduler, a nil dereference, and a goroutine that runs the detector while a test times out.
func TestASignalIsOfTheRaceDetector(t *testing.T) {
	const trace = "\ngoroutine 20 gp=0xc000082780 m=0 mp=0x7d03c0 [running]:\n"
	for output, want := range map[string]verdict{
		"unexpected fault address 0x218008000000\nfatal error: fault\nruntime: g 20: unexpected return pc for " +
			"runtime.sigpanic called from 0xc000082780\n" + trace: crashedDetector,
		"SIGSEGV: segmentation violation\nPC=0x4a1b03 m=5 sigcode=1 addr=0x0\n\ngoroutine 0 gp=0xc000002fc0 m=5 " +
			"[idle]:\nruntime: g 0: unknown pc 0x4a1b03\n" + trace: crashedDetector,
		"panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation " +
			"violation code=0x1 addr=0x0 pc=0x4a1b03]\n" + trace + "m.f()\n": final,
		"panic: test timed out after 30m0s\n" + trace + "runtime.raceacquire(0xc000082780)\n": final,
	} {
		for _, raced := range []bool{true, false} {
			p := &pkg{built: true, failed: true, raced: raced, tests: map[string]*test{}}
			p.output.WriteString(output)
			p.own.WriteString(output)
			if v, reason := p.verdict(); v != want && raced || !raced && v != final {
				t.Errorf("with the race detector: %t: %d, %s, want %d:\n%s", raced, v, reason, want, output)
			}
		}
	}
}

// TestRuns: each file of testdata is a module with tests that fail in one way. `flaky` tests pass when they run again.
func TestRuns(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { checkRun(t, file) })
	}
}

// checkRun runs the module of a file. Its file `want` has lines: `error TEXT` for a part of the error, `prints TEXT`
// and `silent TEXT` for what the output has and lacks, `log FILE TEXT` for a file of the folder of logs.
func checkRun(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, want, args := t.TempDir(), "", ""
	for _, f := range archive.Files {
		switch f.Name {
		case "want":
			want = string(f.Data)
		case "args":
			args = string(f.Data)
		default:
			path := filepath.Join(dir, f.Name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if strings.Contains(args, "-race") {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("the race detector needs a C compiler")
		}
	}
	t.Chdir(dir)
	t.Setenv("STATE", t.TempDir()) // where a test remembers that it has run
	o := options{logs: filepath.Join(dir, "logs"), times: 1}
	o.packages, o.flags = split(append([]string{"./...", "--"}, strings.Fields(args)...))
	if strings.Contains(string(archive.Comment), "three runs") {
		o.times = 3
	}
	var out strings.Builder
	err = run(t.Context(), o, &out)
	wantsError := false
	for line := range strings.Lines(want) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "error":
			wantsError = true
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("the error is %v, want %q", err, text)
			}
		case "prints":
			if !strings.Contains(out.String(), text) {
				t.Errorf("the output lacks %q", text)
			}
		case "silent":
			if strings.Contains(out.String(), text) {
				t.Errorf("the output has %q", text)
			}
		case "log":
			name, text, _ := strings.Cut(text, " ")
			log, err := os.ReadFile(filepath.Join(o.logs, name))
			if err != nil || !strings.Contains(string(log), text) {
				t.Errorf("the log %s is %q, %v, want %q", name, log, err, text)
			}
		}
	}
	if err != nil && !wantsError {
		t.Errorf("the error is %v, want none", err)
	}
	if t.Failed() {
		t.Logf("the output:\n%s", out.String())
	}
}
