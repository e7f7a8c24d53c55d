package terminal

import (
	"bytes"
	"testing"
)

const hostile = "a\x1b[2J\x1b]52;c;eA==\a\u009b31m\u202eb\xff é😀\tc\n"

const quoted = `a\u001b[2J\u001b]52;c;eA==\u0007\u009b31m\u202eb\ufffd é😀` + "\tc\n"

// TestNoTextActsOnTheTerminal: a text of others has no effect on the terminal, in whatever pieces it is written.
func TestNoTextActsOnTheTerminal(t *testing.T) {
	for size := 1; size <= len(hostile); size++ {
		var out bytes.Buffer
		w := newWriter(&out, true)
		for text := []byte(hostile); len(text) > 0; {
			n := min(size, len(text))
			if wrote, err := w.Write(text[:n]); wrote != n || err != nil {
				t.Fatalf("wrote %d bytes of %d: %v", wrote, n, err)
			}
			text = text[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != quoted {
			t.Errorf("in pieces of %d bytes the terminal gets %q, want %q", size, out.String(), quoted)
		}
	}
}

// TestColorsAreForTerminals: a program's own colors reach a terminal, and no other file.
func TestColorsAreForTerminals(t *testing.T) {
	for colors, want := range map[bool]string{true: "\x1b[31ma\\u001b[32m\x1b[0m\n", false: "a\\u001b[32m\n"} {
		var out bytes.Buffer
		w := newWriter(&out, colors)
		for _, b := range []byte(w.Paint("31", "a\x1b[32m") + "\n") {
			if _, err := w.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("with colors %t the terminal gets %q, want %q", colors, out.String(), want)
		}
	}
	if NewWriter(&bytes.Buffer{}).colors {
		t.Error("a writer that is no terminal has colors")
	}
}

// TestAnUnfinishedCharacterIsQuoted: the beginning of a character at the end of all text is written too.
func TestAnUnfinishedCharacterIsQuoted(t *testing.T) {
	var out bytes.Buffer
	w := newWriter(&out, false)
	if _, err := w.Write([]byte("a\xe2\x80")); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil || out.String() != `a\ufffd\ufffd` {
		t.Errorf("the terminal gets %q (%v)", out.String(), err)
	}
}
