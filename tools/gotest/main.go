// Command gotest runs `go test`, and tells a test that fails from one that failed by chance.
//
// It prints a line for each package, as go test does, and the output of each failed test. The failed tests run again
// after all others, each alone. A test that passes then is flaky: it is printed under that heading, and does not fail
// the run. More than five flaky tests do. A package that the race detector's own runtime crashed runs again as a whole.
// A data race, a panic, a fatal error, a deadlock and a program that does not compile are never tried again.
//
// The output of each failed test is a file in the folder of logs, and each flaky test a line of its file `flaky`, so
// that several runs in one folder share the bound.
//
//	gotest [flags] PACKAGES -- FLAGS OF GO TEST
//	gotest ./internal/... -- -race -timeout 30m
//	gotest -times 10 -busy 6 ./test/e2e      which tests fail in ten runs beside six busy processes?
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.logs, "logs", "", "folder for the output of failed tests")
	flag.IntVar(&o.times, "times", 1, "number of runs; with more than one, nothing is tried again, and the command "+
		"prints how often each test failed")
	flag.IntVar(&o.busy, "busy", 0, "number of processes that keep the processors busy meanwhile")
	flag.Parse()
	o.packages, o.flags = split(flag.Args())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// options are the arguments of the command.
type options struct {
	logs            string // folder; empty: no files
	times, busy     int
	packages, flags []string
	progressAfter   time.Duration // the pause between two lines that say what runs; 0: a minute
}

// split returns the packages and the flags of go test, which follow "--".
func split(args []string) (packages, flags []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

func run(ctx context.Context, o options, out io.Writer) error {
	if len(o.packages) == 0 {
		return fmt.Errorf("no package is given, for example: gotest ./internal/... -- -race")
	}
	if slices.ContainsFunc(o.flags, func(f string) bool { return strings.HasPrefix(f, "-failfast") }) {
		return fmt.Errorf("-failfast is not possible: the tests after a flaky one would never run")
	}
	if err := spin(o.busy); err != nil {
		return err
	}
	logs, err := openLogs(o.logs)
	if err != nil {
		return err
	}
	if o.times > 1 {
		return repeat(ctx, o, logs, out)
	}
	first, err := goTest(ctx, o, out, o.packages)
	if err != nil {
		return err
	}
	return again(ctx, o, first, logs, out)
}
