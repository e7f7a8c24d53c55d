package resource

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// IsPrintable reports whether a terminal shows a character as itself. Control characters (C0, C1), which include those
// of escape sequences, and format characters, which reorder or hide text, are not printable; nor are the separators of
// lines and paragraphs, and the character that replaces invalid UTF-8.
func IsPrintable(r rune) bool {
	return r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Quote returns a text with each character that is not printable as an escape sequence of JSON, such as \u001b, so a
// JSON document keeps its value. Line breaks and tabs stay. Invalid UTF-8 becomes \ufffd.
func Quote(text string) string {
	if !strings.ContainsFunc(text, isQuoted) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !isQuoted(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func isQuoted(r rune) bool { return !IsPrintable(r) && r != '\n' && r != '\t' }

// PrintableLine returns a text of others as one line of valid UTF-8 and at most size bytes, in which each character is
// printable ([Quote]).
func PrintableLine(text string, size int) string {
	// A few bytes more than size, so the work does not depend on the length. Quoting makes no text shorter.
	text = Quote(OneLine(text[:min(len(text), 8*size)]))
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}
