package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// repeat runs go test several times, and prints how often each test failed.
func repeat(ctx context.Context, o options, logs *logs, out io.Writer) error {
	failures := map[string]int{}
	for i := range o.times {
		began := time.Now()
		r, err := goTest(ctx, o, out, o.packages, "-count=1")
		if err != nil {
			return err
		}
		failed := 0
		for _, p := range r.failed() {
			if err := logs.of(i + 1).keep(p); err != nil {
				return err
			}
			for name := range p.failures() {
				failures[name]++
				failed++
			}
		}
		fmt.Fprintf(out, "=== run %d of %d: %d failed, %s\n", i+1, o.times, failed,
			time.Since(began).Round(time.Second))
	}
	if len(failures) == 0 {
		fmt.Fprintf(out, "=== %d runs, no test failed\n", o.times)
		return nil
	}
	names := slices.SortedFunc(maps.Keys(failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(failures[b], failures[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(out, "%4d of %d  %s\n", failures[name], o.times, name)
	}
	return fmt.Errorf("%d tests failed in %d runs%s", len(failures), o.times, logs)
}

// failures yields the failed tests of a package, or the package where no test failed, with its verdict.
func (p *pkg) failures() map[string]bool {
	all := map[string]bool{}
	for _, t := range p.failedTests() {
		all[p.path+" "+t.name] = true
	}
	if v, reason := p.verdict(); v != chance {
		all[p.path+": "+reason] = true
	}
	return all
}

// spin starts processes that spin. They end with this command.
func spin(n int) error {
	for range n {
		process := exec.Command("/bin/sh", "-c", "while :; do :; done")
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := process.Start(); err != nil {
			return fmt.Errorf("a busy process: %w", err)
		}
	}
	return nil
}
