package audit

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"weft/resource"
)

// NoteHeader is the header of a request with its note, a text in UTF-8.
const NoteHeader = "Weft-Note"

// MaxNote is the maximum size of a note, in bytes.
const MaxNote = 1024

// NoteOf returns the note of a request, in which its user states the reason of a change; empty: it has none. A note
// that a log could not show as one line is an error, which names the header.
func NoteOf(header http.Header) (string, error) {
	notes := header.Values(NoteHeader)
	if len(notes) == 0 {
		return "", nil
	}
	if len(notes) > 1 {
		return "", resource.Errorf(resource.Invalid, "the header %s stands %d times, want one", NoteHeader, len(notes))
	}
	if fault := NoteFault(notes[0]); fault != "" {
		return "", resource.Errorf(resource.Invalid, "the header %s %s", NoteHeader, fault)
	}
	return notes[0], nil
}

// NoteFault returns what is wrong with a note, as the end of a sentence; empty: nothing.
func NoteFault(note string) string {
	switch {
	case len(note) > MaxNote:
		return fmt.Sprintf("has %d bytes, want at most %d", len(note), MaxNote)
	case !utf8.ValidString(note):
		return "is not UTF-8"
	case strings.ContainsFunc(note, func(r rune) bool { return !resource.IsPrintable(r) }):
		return "has a line break or another character that is not printable, want one line of text"
	}
	return ""
}
