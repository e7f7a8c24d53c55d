// Package terminal writes text to a user's terminal. Texts of others reach it, such as the message of an agent or the
// name of an object, and a terminal acts on control characters: it clears the screen, sets its title, or writes to the
// clipboard. So everything that a program prints goes through a [Writer].
package terminal

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"weft/resource"
)

// Writer quotes characters that are not printable ([resource.Quote]), and passes line breaks, tabs and its own colors.
type Writer struct {
	to io.Writer
	// rest is the beginning of a character, or of a color, that the next Write continues.
	rest   []byte
	colors bool
	// secret is between an escape character and a color of this writer. No text of others has it.
	secret string
}

// NewWriter returns a Writer to a file or to another writer. It has colors if that is a terminal and the user has not
// disabled them (no-color.org).
func NewWriter(to io.Writer) *Writer {
	file, isFile := to.(*os.File)
	colors := isFile && isatty.IsTerminal(file.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return newWriter(to, colors)
}

func newWriter(to io.Writer, colors bool) *Writer {
	return &Writer{to: to, colors: colors, secret: rand.Text()}
}

const escape = "\x1b"

// Paint returns a text in a color, for this writer: unchanged if it has no colors. A color is the parameter of an
// escape sequence (ECMA-48, select graphic rendition).
func (w *Writer) Paint(color, text string) string {
	if !w.colors {
		return text
	}
	return escape + w.secret + "[" + color + "m" + text + escape + w.secret + "[0m"
}

// Write implements [io.Writer].
func (w *Writer) Write(text []byte) (int, error) {
	all := append(w.rest, text...)
	whole := len(all) - w.incomplete(all)
	w.rest = bytes.Clone(all[whole:])
	if _, err := io.WriteString(w.to, w.quoted(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Flush writes the beginning of a character that nothing continues, quoted.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.to, resource.Quote(string(w.rest)))
	w.rest = nil
	return err
}

// incomplete returns the number of bytes at the end of a text that the next one may continue.
func (w *Writer) incomplete(text []byte) int {
	for n := 1; n <= min(len(text), utf8.UTFMax-1); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return n
			}
			break
		}
	}
	mark := escape + w.secret + "["
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasPrefix(mark, string(text[len(text)-n:])) {
			return n
		}
	}
	return 0
}

// quoted returns a text with everything quoted but the colors of this writer.
func (w *Writer) quoted(text string) string {
	parts := strings.Split(text, escape+w.secret+"[")
	for i := range parts {
		parts[i] = resource.Quote(parts[i])
	}
	return strings.Join(parts, escape+"[")
}
