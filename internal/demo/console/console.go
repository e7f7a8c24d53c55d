// Package console writes the output of a demo: numbered steps, the commands that a user could type, and the result of
// each check. It is plain text without colors, and no line is rewritten.
package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Console is the output of a demo.
type Console struct {
	Out   io.Writer
	steps int
}

// Result is the result of a check.
type Result struct {
	Name   string
	Detail string
	Err    error
}

// Text is the error, or else the detail.
func (r Result) Text() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return r.Detail
}

// Step begins a numbered part.
func (c *Console) Step(format string, args ...any) {
	c.steps++
	c.Line(fmt.Sprintf("\n%d. %s", c.steps, fmt.Sprintf(format, args...)))
}

// Command shows a command that the user could have typed. The words ">" and "&" are the shell's.
func (c *Console) Command(name string, args ...string) {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	c.Line("   $ " + name + " " + strings.Join(quoted, " "))
}

// Output shows what a command printed.
func (c *Console) Output(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		c.Line("     " + strings.TrimRight(line, "\n"))
	}
}

// Note prints a remark of the demo.
func (c *Console) Note(format string, args ...any) { c.Line("   " + fmt.Sprintf(format, args...)) }

// Print prints a sentence after an empty line.
func (c *Console) Print(format string, args ...any) { c.Line("\n" + fmt.Sprintf(format, args...)) }

// Results prints the table of the checks.
func (c *Console) Results(rows []Result) {
	c.Line("")
	t := tabwriter.NewWriter(c.Out, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		verdict := "ok"
		if r.Err != nil {
			verdict = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", verdict, r.Name, FirstLine(r.Text()))
	}
	t.Flush()
}

// Line prints one line.
func (c *Console) Line(text string) { fmt.Fprintln(c.Out, strings.TrimRight(text, " ")) }

// quote quotes a word for a POSIX shell, except the operators of the demo's own commands.
func quote(word string) string {
	if word == ">" || word == "&" {
		return word
	}
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// FirstLine returns a text up to its first line break.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
