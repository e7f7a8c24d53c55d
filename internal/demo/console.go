package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// console writes the output of the demo. The output is plain text without colors, and no line is rewritten.
type console struct {
	out   io.Writer
	steps int
}

// step begins a numbered part.
func (c *console) step(format string, args ...any) {
	c.steps++
	c.line(fmt.Sprintf("\n%d. %s", c.steps, fmt.Sprintf(format, args...)))
}

// command shows a command that the user could have typed. The words ">" and "&" are the shell's.
func (c *console) command(name string, args ...string) {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	c.line("   $ " + name + " " + strings.Join(quoted, " "))
}

// output shows what a command printed.
func (c *console) output(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		c.line("     " + strings.TrimRight(line, "\n"))
	}
}

// note prints a remark of the demo.
func (c *console) note(format string, args ...any) { c.line("   " + fmt.Sprintf(format, args...)) }

// print prints a sentence after an empty line.
func (c *console) print(format string, args ...any) { c.line("\n" + fmt.Sprintf(format, args...)) }

// results prints the table of the checks.
func (c *console) results(rows []result) {
	c.line("")
	t := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		verdict := "ok"
		if r.err != nil {
			verdict = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", verdict, r.name, firstLine(r.text()))
	}
	t.Flush()
}

// logs shows the last lines of programs, by name.
func (c *console) logs(tails []logTail) {
	for _, t := range tails {
		c.print("The last lines of %s:", t.name)
		c.output(t.text)
	}
}

func (c *console) line(text string) { fmt.Fprintln(c.out, strings.TrimRight(text, " ")) }

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

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
