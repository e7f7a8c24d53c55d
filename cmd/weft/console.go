package main

import (
	"io"
	"strings"

	"weft/internal/terminal"
)

// palette colors the output of a command, unless its writer has no colors.
type palette struct{ of *terminal.Writer }

func paletteOf(w io.Writer) palette {
	of, _ := w.(*terminal.Writer)
	return palette{of}
}

// Colors by their meaning (ECMA-48, select graphic rendition).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p palette) paint(color, text string) string {
	if p.of == nil {
		return text
	}
	return p.of.Paint(color, text)
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
