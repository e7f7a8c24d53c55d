package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// maxFlaky is the maximum number of flaky tests of a run, or of several that share a folder of logs.
const maxFlaky = 5

// attempt is a test, or a whole package, that runs again.
type attempt struct {
	*pkg
	test *test // nil: the package
}

func (a attempt) String() string {
	if a.test == nil {
		return a.path
	}
	return a.path + " " + a.test.name
}

// firstOutput returns the output of the first run.
func (a attempt) firstOutput() []byte {
	if a.test == nil {
		return a.pkg.output.Bytes()
	}
	return a.test.output.Bytes()
}

// again runs what failed by chance a second time, each test alone, and returns an error if anything failed for good.
func again(ctx context.Context, o options, first *results, logs *logs, out io.Writer) error {
	attempts, broken := sort(first)
	for _, p := range first.failed() {
		if err := logs.keep(p); err != nil {
			return err
		}
	}
	switch {
	case len(broken) > 0:
		// A second run of the others would not change that this one failed.
		return errors.New("failed: " + strings.Join(broken, "; ") + logs.String())
	case len(attempts) > maxFlaky:
		return fmt.Errorf("%d tests failed, more than may be flaky: %s%s", len(attempts), list(attempts), logs)
	}
	var flaky []attempt
	for _, a := range attempts {
		fmt.Fprintf(out, "=== again, alone: %s\n", a)
		second, err := goTest(ctx, o, out, []string{a.path}, a.flags(o.flags)...)
		if err != nil {
			return err
		}
		if reason := a.failedAgain(second); reason != "" {
			for _, p := range second.failed() {
				if err := logs.of(2).keep(p); err != nil {
					return err
				}
			}
			broken = append(broken, a.String()+reason)
			continue
		}
		flaky = append(flaky, a)
	}
	total, err := logs.addFlaky(flaky)
	if err != nil {
		return err
	}
	printFlaky(flaky, out)
	switch {
	case len(broken) > 0:
		return errors.New("failed: " + strings.Join(broken, "; ") + logs.String())
	case total > maxFlaky:
		return fmt.Errorf("%d tests are flaky, at most %d may be%s", total, maxFlaky, logs)
	}
	return nil
}

// flags are those of the second run, beside those of the first.
func (a attempt) flags(first []string) (flags []string) {
	if !slices.ContainsFunc(first, func(f string) bool { return strings.HasPrefix(f, "-count") }) {
		flags = []string{"-count=1"}
	}
	if a.test != nil {
		flags = append(flags, "-run", "^"+regexp.QuoteMeta(a.test.name)+"$")
	}
	return flags
}

// failedAgain returns why the second run is no success. A test that is skipped then has not passed.
func (a attempt) failedAgain(second *results) string {
	switch {
	case len(second.failed()) > 0:
		return " twice"
	case a.test != nil && !second.pkg(a.path).test(a.test.name).passed:
		return ", and it did not pass when it ran again"
	}
	return ""
}

// sort returns what runs again, and what failed for good with the reason.
func sort(r *results) (attempts []attempt, broken []string) {
	for _, p := range r.failed() {
		switch v, reason := p.verdict(); v {
		case final:
			broken = append(broken, p.path+": "+reason)
		case crashedDetector:
			attempts = append(attempts, attempt{p, nil})
		case chance:
			for _, t := range p.failedTests() {
				attempts = append(attempts, attempt{p, t})
			}
		}
	}
	return attempts, broken
}

func list(attempts []attempt) string {
	var all []string
	for _, a := range attempts {
		all = append(all, a.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func printFlaky(flaky []attempt, out io.Writer) {
	for _, a := range flaky {
		fmt.Fprintf(out, "=== flaky: %s failed, and passed when it ran again alone. Its first output:\n%s", a,
			a.firstOutput())
	}
	if len(flaky) > 0 {
		fmt.Fprintf(out, "=== flaky: %d, of which each has a cause that somebody has to find: %s\n", len(flaky),
			list(flaky))
	}
}
