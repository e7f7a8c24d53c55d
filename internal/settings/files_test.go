package settings

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// replaceable matches the names of settings with files and credentials.
var replaceable = regexp.MustCompile(`(?i)(file|dir|capath|certpath|keypath|tokenpath)$`)

// TestEveryFileSaysWhenItIsRead: a setting with a file or a credential is in the list of files.
func TestEveryFileSaysWhenItIsRead(t *testing.T) {
	listed := map[string]bool{}
	for _, f := range Files {
		listed[f.Setting] = true
	}
	for i := range all {
		s := &all[i]
		if (s.secret || replaceable.MatchString(s.path)) != listed[s.path] {
			t.Errorf("%s: it is in the list of files: %t", s.path, listed[s.path])
		}
		delete(listed, s.path)
	}
	for path := range listed {
		t.Errorf("%s is in the list of files, and is no setting", path)
	}
}

// TestThePageOfFilesIsCurrent: the page has the table of the list.
func TestThePageOfFilesIsCurrent(t *testing.T) {
	const page, begin, end = "../../docs/operations/files.md", "<!-- settings -->\n", "<!-- /settings -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	want := before + begin + FilesMarkdown() + end + after
	if *update && opened && closed {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		text = []byte(want)
	}
	if string(text) != want || !opened || !closed {
		t.Errorf("%s is not what the list of files says; `go test ./internal/settings -update` writes it", page)
	}
}
