package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp: the help of a command has its purpose and its usage, and the command accepts its own examples.
func TestHelp(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(command *cobra.Command) {
		for _, sub := range command.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				t.Run(sub.CommandPath(), func(t *testing.T) { helps(t, sub) })
				walk(sub)
			}
		}
	}
	walk(newRootCommand())
}

func helps(t *testing.T, command *cobra.Command) {
	if command.Short == "" || strings.HasSuffix(command.Short, ".") {
		t.Errorf("Short is %q, want a phrase without a full stop", command.Short)
	}
	if !command.Runnable() {
		return // a group, whose commands have examples
	}
	if command.Example == "" {
		t.Error("has no example")
	}
	for line := range strings.Lines(command.Example) {
		parseExample(t, command.CommandPath(), line)
	}
}

// program matches the beginning of a call of weft, and afterCall the shell syntax after it.
var (
	program   = regexp.MustCompile(`(^|[\s(])weft `)
	afterCall = regexp.MustCompile(`\s+(#|\||>|2>|&).*$|\)$`)
)

// parseExample parses an example as the program would, in a new command tree, since flags keep their values. path is
// the command that it calls; empty: any.
func parseExample(t *testing.T, path, line string) {
	line = strings.TrimSpace(line)
	at := program.FindStringIndex(line)
	if at == nil {
		t.Errorf("%q does not call weft", line)
		return
	}
	args := strings.Fields(afterCall.ReplaceAllString(line[at[1]:], ""))
	command, rest, err := newRootCommand().Find(args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err == nil {
		err = command.ValidateRequiredFlags()
	}
	if err == nil {
		err = command.ValidateArgs(command.Flags().Args())
	}
	if err != nil || !command.Runnable() || path != "" && command.CommandPath() != path {
		t.Errorf("%q calls %s: %v", line, command.CommandPath(), err)
	}
}

// TestCommandsOfMoves: weft takes the commands of the pages about a move from Kuma.
func TestCommandsOfMoves(t *testing.T) {
	block := regexp.MustCompile("(?s)```text\n(.*?)```")
	for _, page := range []string{"move-machines.md", "move-cluster.md"} {
		text, err := os.ReadFile("../../docs/operations/" + page)
		if err != nil {
			t.Fatal(err)
		}
		commands := 0
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(found[1]) {
				if program.MatchString(line) {
					commands++
					parseExample(t, "", line)
				}
			}
		}
		if commands == 0 {
			t.Errorf("%s has no command", page)
		}
	}
}
