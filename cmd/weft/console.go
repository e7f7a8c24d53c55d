package main

import (
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// palette colors output. It does nothing if the output is no terminal, or the user has disabled colors (no-color.org).
type palette struct{ on bool }

func paletteOf(w io.Writer) palette {
	f, ok := w.(*os.File)
	return palette{ok && isatty.IsTerminal(f.Fd()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colors by their meaning (ECMA-48, select graphic rendition).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p palette) paint(color, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// diff colors the lines of a unified diff.
func (p palette) diff(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		switch line[0] {
		case '+':
			body = p.paint(green, body)
		case '-':
			body = p.paint(red, body)
		case '@':
			body = p.paint(cyan, body)
		}
		b.WriteString(body + "\n")
	}
	return b.String()
}
