package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// logs is the folder that keeps the output of failed tests. A nil *logs keeps nothing.
type logs struct{ dir string }

func openLogs(dir string) (*logs, error) {
	if dir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(dir)
	return &logs{dir}, err
}

// String is the end of an error.
func (l *logs) String() string {
	if l == nil {
		return ""
	}
	return "; logs are in " + l.dir
}

// of returns the folder of one run of several.
func (l *logs) of(run int) *logs {
	if l == nil {
		return nil
	}
	return &logs{filepath.Join(l.dir, fmt.Sprint("run-", run))}
}

// keep writes the output of each failed test of a package, or of the package where no test failed.
func (l *logs) keep(p *pkg) error {
	if l == nil {
		return nil
	}
	failed := p.failedTests()
	if len(failed) == 0 {
		return l.write(p.path, append(p.build.Bytes(), p.output.Bytes()...))
	}
	for _, t := range failed {
		if err := l.write(p.path+"."+t.name, t.output.Bytes()); err != nil {
			return err
		}
	}
	if v, _ := p.verdict(); v == final { // the cause may stand in the output of another test
		return l.write(p.path, p.output.Bytes())
	}
	return nil
}

func (l *logs) write(name string, output []byte) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	name = strings.ReplaceAll(strings.TrimPrefix(name, "weft/"), "/", "-")
	return os.WriteFile(filepath.Join(l.dir, name+".log"), output, 0o644)
}

// addFlaky adds tests to the file `flaky`, and returns how many that has.
func (l *logs) addFlaky(flaky []attempt) (total int, err error) {
	if l == nil {
		return len(flaky), nil
	}
	path := filepath.Join(l.dir, "flaky")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, a := range flaky {
		text = fmt.Appendln(text, a)
	}
	if len(flaky) > 0 {
		err = os.WriteFile(path, text, 0o644)
	} else {
		err = nil
	}
	return bytes.Count(text, []byte("\n")), err
}
