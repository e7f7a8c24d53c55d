package main

import (
	"bytes"
	"testing"
)

func TestColoursAreForTerminals(t *testing.T) {
	const diff = "@@ -1 +1 @@\n-a\n+b\n c\n"
	if got := paletteOf(&bytes.Buffer{}).diff(diff); got != diff {
		t.Errorf("what is no terminal is written %q", got)
	}
	want := "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m\n c\n"
	if got := (palette{on: true}).diff(diff); got != want {
		t.Errorf("a terminal gets %q, want %q", got, want)
	}
}
