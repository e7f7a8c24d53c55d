package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is one decision of the page.
type row struct {
	text  string
	shown []string // "package test", each test that the row names; none where it is of a later release
}

// readRows returns the rows of the page's tables.
func readRows(page string) []row {
	var rows []row
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "|") || len(cells) != 2 || strings.TrimSpace(cells[1]) == "shown by" {
			continue
		}
		r := row{text: strings.TrimSpace(cells[0])}
		for of := range strings.SplitSeq(strings.TrimSpace(cells[1]), "; ") {
			pkg, tests, names := strings.Cut(of, "` ")
			if !names {
				continue // later, or missing
			}
			for test := range strings.SplitSeq(tests, ", ") {
				r.shown = append(r.shown, strings.TrimPrefix(pkg, "`")+" "+test)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// mutation is one change of the source that breaks the decision of a row.
type mutation struct {
	row   string
	what  string // what is broken
	tests []string
	edits []edit
}

// edit replaces lines of one file.
type edit struct {
	file     string
	old, new []string
}

func (m mutation) String() string {
	return fmt.Sprintf("%s: %s (%s; %s)", m.row, m.what, m.edits[0].file, strings.Join(m.tests, ", "))
}

func (m mutation) pkg() string {
	pkg, _, _ := strings.Cut(m.tests[0], " ")
	return pkg
}

// endToEnd is the package whose tests start the real programs.
const endToEnd = "test/e2e"

func (m mutation) isEndToEnd() bool { return m.pkg() == endToEnd }

// readMutations reads the table:
//
//	== the text of a row, as the page has it
//	what the mutation breaks
//	test PACKAGE TEST            one test of the row, with its case; several lines: each of them fails
//	file PATH
//	 a line of the file that stays
//	-a line that goes
//	+a line that comes instead
//
// White space at the ends of lines does not count. A mutation of several files has several blocks "file"; a row with
// several mutations is written several times. Lines that begin with # are comments.
func readMutations(table string) ([]mutation, error) {
	var all []mutation
	number := 0
	for line := range strings.Lines(table) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if text, begins := strings.CutPrefix(line, "== "); begins {
			all = append(all, mutation{row: text})
			continue
		}
		if len(all) == 0 || !all[len(all)-1].add(line) {
			return nil, fmt.Errorf("line %d is no part of a mutation: %s", number, line)
		}
	}
	return all, nil
}

// add adds a line of the table; it returns false where the line is out of place.
func (m *mutation) add(line string) bool {
	if test, is := strings.CutPrefix(line, "test "); is && m.what != "" {
		m.tests = append(m.tests, test)
		return true
	}
	if file, is := strings.CutPrefix(line, "file "); is && m.what != "" {
		m.edits = append(m.edits, edit{file: file})
		return true
	}
	if len(m.edits) == 0 {
		m.what = line
		return len(m.tests) == 0
	}
	e, text := &m.edits[len(m.edits)-1], strings.TrimSpace(line[1:])
	switch line[0] {
	case ' ':
		e.old, e.new = append(e.old, text), append(e.new, text)
	case '-':
		e.old = append(e.old, text)
	case '+':
		e.new = append(e.new, text)
	default:
		return false
	}
	return true
}

// apply returns the text of the edit's file with the edit made.
func (e edit) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	trimmed := make([]string, len(lines))
	for i, line := range lines {
		trimmed[i] = strings.TrimSpace(line)
	}
	found, times := 0, 0
	for i := 0; i+len(e.old) <= len(lines); i++ {
		if slices.Equal(trimmed[i:i+len(e.old)], e.old) {
			found, times = i, times+1
		}
	}
	if len(e.old) == 0 || times != 1 {
		return "", fmt.Errorf("%s has the old text %d times, want once: %q", e.file, times, strings.Join(e.old, "\n"))
	}
	return strings.Join(slices.Concat(lines[:found], e.new, lines[found+len(e.old):]), "\n"), nil
}

// edited returns the texts of the files that the mutation edits, by their paths.
func (m mutation) edited(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		if _, again := texts[path]; !again {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			texts[path] = string(text)
		}
		var err error
		if texts[path], err = e.apply(texts[path]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// check compares the table with the page and with the source. Each test that a row names has a mutation of that row;
// those in test/e2e, which take long, need none where the row names others.
func check(root string, rows []row, mutations []mutation) error {
	var problems []error
	shown := map[string][]string{}
	for _, r := range rows {
		if _, twice := shown[r.text]; twice {
			problems = append(problems, fmt.Errorf("%s has this row twice: %s", page, r.text))
		}
		shown[r.text] = r.shown
	}
	broken := map[string]bool{}
	for _, m := range mutations {
		broken[m.row] = true
		for _, test := range m.tests {
			broken[m.row+" "+test] = true
		}
		tests, exists := shown[m.row]
		switch {
		case !exists:
			problems = append(problems, fmt.Errorf("%s has a mutation for a row that %s lacks: %s", table, page, m.row))
		case len(m.tests) == 0 || len(m.edits) == 0:
			problems = append(problems, fmt.Errorf("%s: a mutation lacks its test or file: %s", table, m.row))
		}
		for _, test := range m.tests {
			if exists && !slices.Contains(tests, test) {
				problems = append(problems, fmt.Errorf("%s: the row does not name the test %s: %s", table, test, m.row))
			}
			if !strings.HasPrefix(test, m.pkg()+" ") {
				problems = append(problems, fmt.Errorf("%s: the tests of one mutation are of several packages: %s",
					table, m.row))
			}
		}
		if _, err := m.edited(root); err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", table, m.row, err))
		}
	}
	for _, r := range rows {
		if len(r.shown) > 0 && !broken[r.text] {
			problems = append(problems, fmt.Errorf("%s has no mutation for the row: %s", table, r.text))
		}
		for _, test := range r.shown {
			if broken[r.text] && !broken[r.text+" "+test] && !strings.HasPrefix(test, endToEnd+" ") {
				problems = append(problems, fmt.Errorf("%s: no mutation has the test %s, which this row names: %s",
					table, test, r.text))
			}
		}
	}
	return errors.Join(problems...)
}
