// Command mutate proves that the tests which docs/requirements.md names show what their rows say. For each row
// requirements.txt has mutations: small changes of the source that break the decision. The command applies one
// mutation at a time, as an overlay of the build so that no file changes, and runs the tests that the mutation names.
// A test that passes all the same is reported as "not noticed", and the command fails.
//
// A mutation whose old text does not occur exactly once is an error, and so is one that does not compile, and a row
// without a mutation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "folder of the repository")
	flag.StringVar(&o.row, "row", "", "regular expression: only rows whose text, file or test it matches")
	flag.StringVar(&o.part, "part", "", "I/N: only the I-th of N parts of the mutations, counted from 1")
	flag.IntVar(&o.jobs, "jobs", 2, "number of mutations that run at the same time; those in test/e2e run alone")
	flag.DurationVar(&o.timeout, "timeout", time.Minute,
		"longest run of one mutation's tests, three times as much in test/e2e; a longer run counts as noticed")
	flag.BoolVar(&o.checkOnly, "check", false,
		"check the table against the page and the source, and that all compile; run no test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	root, row, part string
	jobs            int
	timeout         time.Duration
	checkOnly       bool
}

// Places of the page and of the table, relative to the root of the repository.
const (
	page  = "docs/requirements.md"
	table = "tools/mutate/requirements.txt"
)

// applicable returns the mutations of the table, all of which apply to the source. Each row of the page has one.
func applicable(root string) ([]mutation, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	rows := readRows(string(text))
	if text, err = os.ReadFile(filepath.Join(root, table)); err != nil {
		return nil, err
	}
	mutations, err := readMutations(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	return mutations, check(root, rows, mutations)
}

func run(ctx context.Context, o options, out io.Writer) error {
	mutations, err := applicable(o.root)
	if err != nil {
		return err
	}
	selected, err := o.selected(mutations)
	if err != nil {
		return err
	}
	compiler, err := newCompiler(o.root)
	if err != nil {
		return err
	}
	if err := compiler.checkAll(selected); err != nil || o.checkOnly {
		return err
	}
	return runAll(ctx, o, selected, out)
}

// selected returns the mutations that the flags select.
func (o options) selected(all []mutation) ([]mutation, error) {
	pattern, err := regexp.Compile(o.row)
	if err != nil {
		return nil, err
	}
	part, parts := 1, 1
	if o.part != "" {
		if n, err := fmt.Sscanf(o.part, "%d/%d", &part, &parts); n != 2 || err != nil || part < 1 || part > parts {
			return nil, fmt.Errorf("-part %q: want I/N with I from 1 to N, such as 2/4", o.part)
		}
	}
	var selected []mutation
	for i, m := range all {
		if i%parts == part-1 && pattern.MatchString(m.String()) {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return nil, errors.New("no mutation is selected")
	}
	return selected, nil
}

// runAll runs mutations and reports each of them, until ctx ends.
func runAll(ctx context.Context, o options, mutations []mutation, out io.Writer) error {
	jobs := max(1, o.jobs)
	caches := make(chan buildCache, jobs)
	for range jobs {
		cache, err := newBuildCache()
		if err != nil {
			return err
		}
		defer os.RemoveAll(cache.copy)
		caches <- cache
	}
	var (
		lock    sync.Mutex
		done    int
		failed  []string
		workers sync.WaitGroup
		slots   = make(chan struct{}, jobs)
	)
	for _, m := range mutations {
		workers.Go(func() {
			need := 1
			if m.isEndToEnd() {
				need = cap(slots)
			}
			takeSlots(slots, need)
			defer releaseSlots(slots, need)
			if ctx.Err() != nil {
				return
			}
			began, cache := time.Now(), <-caches
			result, detail := m.try(ctx, o, cache)
			caches <- cache
			lock.Lock()
			defer lock.Unlock()
			done++
			fmt.Fprintf(out, "%3d/%d  %-11s %5.1fs  %s\n", done, len(mutations), result, time.Since(began).Seconds(), m)
			if result != noticed {
				failed = append(failed, fmt.Sprintf("%s: %s", result, m))
				fmt.Fprint(out, indent(detail))
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%d of %d mutations ran: %w", done, len(mutations), context.Cause(ctx))
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d mutations:\n  %s", len(failed), len(mutations), strings.Join(failed, "\n  "))
	}
	fmt.Fprintf(out, "all %d mutations were noticed\n", len(mutations))
	return nil
}

// allSlots makes a mutation that needs every slot take them without another one between.
var allSlots sync.Mutex

func takeSlots(slots chan struct{}, n int) {
	allSlots.Lock()
	defer allSlots.Unlock()
	for range n {
		slots <- struct{}{}
	}
}

func releaseSlots(slots chan struct{}, n int) {
	for range n {
		<-slots
	}
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("        " + line)
	}
	return b.String()
}
