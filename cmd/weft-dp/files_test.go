package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestEveryFileSaysWhenItIsRead: the page of replaced files has a row for each flag with a file.
func TestEveryFileSaysWhenItIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/files.md")
	if err != nil {
		t.Fatal(err)
	}
	newRunCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Name, "-file") && !strings.Contains(string(page), "| `--"+f.Name+"` |") {
			t.Errorf("--%s has no row", f.Name)
		}
	})
}

// TestCommandsOfMoves: weft-dp takes the commands of the page about a move of machines from Kuma.
func TestCommandsOfMoves(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/move-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(page)) {
		args, ok := strings.CutPrefix(line, "weft-dp ")
		if !ok {
			continue
		}
		commands++
		command, rest, err := newCommand().Find(strings.Fields(args))
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err != nil || !command.Runnable() {
			t.Errorf("%q: %v", line, err)
		}
	}
	if commands == 0 {
		t.Error("the page has no command of weft-dp")
	}
}
