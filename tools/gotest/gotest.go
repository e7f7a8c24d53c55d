package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of the output of a build
	FailedBuild string
	Test        string
	Output      string
}

// results are those of one run of go test, by package.
type results struct {
	raced    bool // go test runs with the race detector
	packages map[string]*pkg
	order    []*pkg // in which the packages ended
}

// pkg has the results of one package.
type pkg struct {
	path   string
	tests  map[string]*test // by the names of the tests without a parent
	output bytes.Buffer     // everything, in its order
	own    bytes.Buffer     // what no test printed
	build  bytes.Buffer     // the output of a failed build
	ended  bool
	failed bool
	built  bool
	raced  bool // it ran with the race detector
}

// test is a test without a parent. The output contains that of its subtests.
type test struct {
	name    string
	output  bytes.Buffer
	running map[string]bool // itself and the subtests that have not ended; false: it waits until it may run
	failed  bool
	passed  bool
}

// goTest runs go test once, prints what go test prints, and returns the results. An error means that it could not run;
// failed tests are no error.
// Further flags follow those of the options, and the last of two flags counts.
func goTest(ctx context.Context, o options, out io.Writer, packages []string, flags ...string) (*results, error) {
	own, ofTests := o.flags, []string(nil)
	if i := slices.Index(own, "-args"); i >= 0 {
		own, ofTests = own[:i], own[i:]
	}
	args := slices.Concat([]string{"test", "-json"}, packages, own, flags, ofTests)
	command := exec.CommandContext(ctx, "go", args...)
	// These variables would hide the trace of a panic, and the report of a data race.
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOTRACEBACK=") || strings.HasPrefix(v, "GORACE=")
	})
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	var errs bytes.Buffer
	command.Stderr = io.MultiWriter(os.Stderr, &errs)
	pipe, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	r := &results{raced: slices.Contains(o.flags, "-race"), packages: map[string]*pkg{}}
	end := progress(r, o.progressAfter, out)
	readErr := r.read(pipe, out)
	io.Copy(io.Discard, pipe)
	end()
	err = command.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case readErr != nil:
		return nil, readErr
	case err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1 && len(r.failed()) > 0):
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	for _, p := range r.packages {
		if !p.ended && p.build.Len() == 0 {
			return nil, fmt.Errorf("%s: the package %s did not end", command, p.path)
		}
	}
	return r, nil
}

// lines is the lock of results while go test runs.
var lines sync.Mutex

// read handles the events of a run. A line that is no event is printed.
func (r *results) read(from io.Reader, out io.Writer) error {
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			lines.Lock()
			var e event
			if json.Unmarshal(line, &e) == nil {
				r.handle(e, out)
			} else {
				out.Write(line)
			}
			lines.Unlock()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *results) handle(e event, out io.Writer) {
	switch e.Action {
	case "build-output":
		// go names a test binary "weft/x [weft/x.test]".
		path, _, _ := strings.Cut(e.ImportPath, " ")
		r.pkg(path).build.WriteString(e.Output)
		io.WriteString(out, e.Output)
		return
	case "build-fail":
		return
	}
	p := r.pkg(e.Package)
	if e.Test == "" {
		p.handle(r, e, out)
		return
	}
	name, _, _ := strings.Cut(e.Test, "/")
	t := p.test(name)
	switch e.Action {
	case "run", "cont":
		t.running[e.Test] = true
	case "pause":
		t.running[e.Test] = false
	case "output":
		p.output.WriteString(e.Output)
		t.output.WriteString(e.Output)
	case "pass", "skip":
		delete(t.running, e.Test)
		t.passed = t.passed || e.Test == name && e.Action == "pass"
	case "fail":
		delete(t.running, e.Test)
		t.failed = true
	}
	if len(t.running) == 0 && !t.failed {
		t.output.Reset()
	}
}

// handle handles an event of the package as a whole.
func (p *pkg) handle(r *results, e event, out io.Writer) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
		p.own.WriteString(e.Output)
		if e.Output != "PASS\n" {
			io.WriteString(out, e.Output)
		}
	case "pass", "skip":
		p.ended, p.built = true, true
		// A TestMain may return success although a test failed.
		if p.failed = len(p.failedTests()) > 0; !p.failed {
			p.output, p.own = bytes.Buffer{}, bytes.Buffer{}
		}
		r.order = append(r.order, p)
	case "fail":
		p.ended, p.failed = true, true
		p.built = e.FailedBuild == ""
		r.order = append(r.order, p)
		for _, t := range p.failedTests() {
			out.Write(t.output.Bytes())
		}
	}
}

func (r *results) pkg(path string) *pkg {
	p := r.packages[path]
	if p == nil {
		p = &pkg{path: path, raced: r.raced, tests: map[string]*test{}}
		r.packages[path] = p
	}
	return p
}

func (p *pkg) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{name: name, running: map[string]bool{}}
		p.tests[name] = t
	}
	return t
}

// failed returns the packages that failed, in the order in which they ended.
func (r *results) failed() (all []*pkg) {
	for _, p := range r.order {
		if p.failed {
			all = append(all, p)
		}
	}
	return all
}

// failedTests returns the tests that failed or did not end, by name.
func (p *pkg) failedTests() (all []*test) {
	for _, t := range p.tests {
		if t.failed || len(t.running) > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *test) int { return strings.Compare(a.name, b.name) })
	return all
}

// progress prints what has not ended, each time that a while has passed, until end is called.
func progress(r *results, every time.Duration, out io.Writer) (end func()) {
	if every == 0 {
		every = time.Minute
	}
	began, ended := time.Now(), make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				lines.Lock()
				fmt.Fprintf(out, "... %s: %s\n", time.Since(began).Round(time.Second), r.running())
				lines.Unlock()
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); printing.Wait() }
}

// running names the tests that run, or states that go test compiles.
func (r *results) running() string {
	var all []string
	for _, p := range r.packages {
		for _, t := range p.tests {
			if slices.Contains(slices.Collect(maps.Values(t.running)), true) {
				all = append(all, p.path+" "+t.name)
			}
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "go test compiles"
	}
	const most = 6
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
