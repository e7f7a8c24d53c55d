package main

import "regexp"

// verdict says what a failed package's results mean.
type verdict int

const (
	// chance: each failed test may pass if it runs alone.
	chance verdict = iota
	// crashedDetector: the race detector's own runtime crashed, which says nothing about the tests.
	crashedDetector
	// final: the failure is one of the code, however often it runs.
	final
)

var (
	dataRace = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test`)

	timedOut = regexp.MustCompile(`(?m)^panic: test timed out after `)

	// detector matches what the race detector's runtime says when it fails. The log of a test is indented.
	detector = regexp.MustCompile(`(?m)^((==\d+==)?(FATAL|ERROR): )?ThreadSanitizer: `)

	// goSignal and outsideOfGo match what Go 1.26 prints of a signal in code that is not Go's. Under the race detector
	// that is the detector's own runtime: the raced packages have no other.
	goSignal    = regexp.MustCompile(`(?m)^(SIG(SEGV|BUS|ILL|ABRT|FPE): |\[signal SIG|unexpected fault address )`)
	outsideOfGo = regexp.MustCompile(`(?m)^runtime: g \d+: (unknown pc|unexpected return pc for runtime\.sigpanic) `)

	// dead matches the end of a Go program by itself: of the tests, or of a program that a test started, whose log may
	// have a prefix.
	dead = regexp.MustCompile(`\b(panic|fatal error|SIG(SEGV|BUS|ILL|ABRT|FPE|QUIT)): `)

	goroutine = regexp.MustCompile(`\bgoroutine \d+ [^\n]*\[|\bgoroutine \d+ \[`)
)

// verdict returns what the results of a failed package mean, and why where that is final.
func (p *pkg) verdict() (v verdict, reason string) {
	output := p.output.Bytes()
	switch {
	case !p.built:
		return final, "it does not compile"
	case dataRace.Match(output):
		return final, "a data race"
	case timedOut.Match(output):
		return final, "a deadlock, or tests that take longer than their timeout"
	case p.detectorCrashed():
		return crashedDetector, "the race detector's runtime crashed"
	case p.died():
		return final, "a panic or a fatal error"
	case len(p.failedTests()) == 0:
		return final, "no test failed, the program did"
	}
	for _, t := range p.tests {
		if len(t.running) > 0 {
			return final, t.name + " did not end"
		}
	}
	return chance, ""
}

// died reports whether the program of the tests, or one that a failed test started, ended by itself.
func (p *pkg) died() bool {
	for _, t := range p.failedTests() {
		if hasTrace(t.output.Bytes()) {
			return true
		}
	}
	return hasTrace(p.own.Bytes())
}

// hasTrace reports whether an output has the trace of a Go program's end. A message that only quotes a panic has none.
func hasTrace(output []byte) bool {
	at := dead.FindIndex(output)
	return at != nil && goroutine.Match(output[at[1]:])
}

// detectorCrashed reports whether the race detector says that it failed itself, or a signal was in its functions.
func (p *pkg) detectorCrashed() bool {
	output := p.output.Bytes()
	return p.raced && (detector.Match(output) || goSignal.Match(output) && outsideOfGo.Match(output))
}
