package audit

import (
	"net/http"
	"strings"
	"testing"

	"weft/resource"
)

// A note is one line of text, and an error says what is wrong with another one.
func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		header []string
		want   string
		fault  string // a part of the error
	}{
		"none":             {nil, "", ""},
		"a reason":         {[]string{"INC-7: kürzere Timeouts"}, "INC-7: kürzere Timeouts", ""},
		"the longest":      {[]string{strings.Repeat("x", MaxNote)}, strings.Repeat("x", MaxNote), ""},
		"too long":         {[]string{strings.Repeat("x", MaxNote+1)}, "", "1025 bytes, want at most 1024"},
		"two":              {[]string{"a", "b"}, "", "stands 2 times"},
		"a line break":     {[]string{"a\nb"}, "", "line break"},
		"a control":        {[]string{"a\x1b[2Jb"}, "", "not printable"},
		"hidden direction": {[]string{"a\u202eb"}, "", "not printable"},
		"no UTF-8":         {[]string{"a\xffb"}, "", "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			note, err := NoteOf(http.Header{NoteHeader: test.header})
			if note != test.want {
				t.Errorf("the note is %q, want %q", note, test.want)
			}
			if test.fault == "" && err == nil {
				return
			}
			if resource.CodeOf(err) != resource.Invalid || !strings.Contains(err.Error(), test.fault) ||
				!strings.Contains(err.Error(), NoteHeader) {
				t.Errorf("the error is %v, want %q", err, test.fault)
			}
		})
	}
}
