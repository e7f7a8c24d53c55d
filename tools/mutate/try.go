package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Results of a mutation.
const (
	noticed    = "noticed"
	notNoticed = "NOT NOTICED"
	unusable   = "ERROR"
)

// needsAPIServer returns whether tests of a package need the flag -apiserver, without which they are left out.
func needsAPIServer(root, pkg string) bool {
	files, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go")) // an error means a wrong pattern
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file) // the go command reports a file that can't be read
		return bytes.Contains(text, []byte("kubetest.Main("))
	})
}

// try runs the tests of a mutation without it and with it, where the builds with it use cache. The detail is what go
// test printed.
func (m mutation) try(ctx context.Context, o options, cache buildCache) (result, detail string) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return unusable, err.Error()
	}
	dir, err := os.MkdirTemp("", "weft-mutate-")
	if err != nil {
		return unusable, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return unusable, err.Error()
	}
	if text, err := m.goTest(ctx, o, root, nil); err != nil {
		return unusable, "without the mutation: " + text
	} else if strings.Contains(text, "no tests to run") {
		return unusable, text
	}
	if err := cache.update(); err != nil {
		return unusable, err.Error()
	}
	// Programs that tests build with go build are built with the mutation too.
	// Their results are not in the cache: the go command does not know that they depend on those programs.
	flags := "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay)
	text, err := m.goTest(ctx, o, root, []string{flags, "GOCACHE=" + cache.copy}, "-count=1")
	switch {
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]") ||
		strings.Contains(text, "\n# weft/"):
		return unusable, text
	}
	if passed := m.passed(text); err == nil || len(passed) > 0 {
		return notNoticed, "passed with the mutation: " + strings.Join(passed, ", ") + "\n" + text
	}
	return noticed, text
}

// passed are the tests of a mutation that did not fail, by what go test printed. A panic or a timeout ends all of them.
func (m mutation) passed(text string) []string {
	if strings.Contains(text, "panic: ") { // go test ends tests that take too long with a panic too
		return nil
	}
	var passed []string
	for _, test := range m.tests {
		_, name, _ := strings.Cut(test, " ")
		failure := regexp.MustCompile("--- FAIL: " + regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_")) + "[ /]")
		if !failure.MatchString(text) {
			passed = append(passed, test)
		}
	}
	return passed
}

// overlay writes the changed files and the list of them that the go command reads.
func (m mutation) overlay(root, dir string) (string, error) {
	edited, err := m.edited(root)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for path, text := range edited {
		replaced[path] = filepath.Join(dir, strconv.Itoa(len(replaced))+".go")
		if err := os.WriteFile(replaced[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// goTest runs the tests of a mutation with further variables and arguments.
func (m mutation) goTest(
	ctx context.Context, o options, root string, environment []string, arguments ...string,
) (string, error) {
	timeout := o.timeout
	if m.isEndToEnd() {
		timeout *= 3
	}
	arguments = append([]string{"test", "-vet=off", "-timeout", timeout.String(), "-run", m.pattern()}, arguments...)
	arguments = append(arguments, "./"+m.pkg())
	if m.isEndToEnd() {
		arguments = append(arguments, "-spire") // else the tests with SPIRE are left out
	}
	if needsAPIServer(root, m.pkg()) {
		arguments = append(arguments, "-apiserver")
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // which ends the tests too
	command.Dir = root
	command.Env = append(os.Environ(), environment...)
	text, err := command.CombinedOutput()
	return string(text), err
}

// pattern is the argument of -run that selects the tests of a mutation.
func (m mutation) pattern() string {
	var alternatives []string
	for _, test := range m.tests {
		_, name, _ := strings.Cut(test, " ")
		name, part, hasPart := strings.Cut(name, "/")
		pattern := "^" + name + "$"
		if hasPart {
			pattern += "/^" + regexp.QuoteMeta(part) + "$"
		}
		alternatives = append(alternatives, pattern)
	}
	return strings.Join(alternatives, "|")
}
