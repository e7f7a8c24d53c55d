package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v2"

	"weft/resource"
)

// The output forms of a command.
const (
	asTable = "table"
	asText  = "text"
	asJSON  = "json"
	asYAML  = "yaml"
	asPEM   = "pem"
)

// output is the value of the flag -o.
type output struct {
	form    string
	allowed []string
}

// outputFlag adds -o to a command; the first form is the default.
func outputFlag(command *cobra.Command, allowed ...string) *output {
	o := &output{form: allowed[0], allowed: allowed}
	command.Flags().VarP(o, "output", "o", "form of the output: "+strings.Join(allowed, ", "))
	completeFlag(command, "output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// String implements pflag.Value.
func (o *output) String() string { return o.form }

// Type implements pflag.Value.
func (o *output) Type() string { return "form" }

// Set implements pflag.Value.
func (o *output) Set(value string) error {
	if !slices.Contains(o.allowed, value) {
		return fmt.Errorf("use %s", strings.Join(o.allowed, ", "))
	}
	o.form = value
	return nil
}

// show requests a page and writes it: with printText for the text form, unchanged as JSON, or as YAML.
func show[T any](r *remote, command *cobra.Command, path string, query url.Values, form string,
	printText func(io.Writer, *T) error) error {
	c, err := r.client(command.Context())
	if err != nil {
		return err
	}
	var document json.RawMessage
	if err := c.Get(command.Context(), path, query, &document); err != nil {
		return err
	}
	if form == asJSON || form == asYAML {
		return printDocument(command.OutOrStdout(), document, form)
	}
	var page T
	if err := json.Unmarshal(document, &page); err != nil {
		return err
	}
	return printText(command.OutOrStdout(), &page)
}

// printDocument writes a JSON document as JSON, indented, or as YAML.
func printDocument(w io.Writer, document []byte, form string) error {
	if form == asYAML {
		return printYAML(w, document)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(document), "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// printValue writes a value as JSON or as YAML.
func printValue(w io.Writer, value any, form string) error {
	document, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return printDocument(w, document, form)
}

// printYAML writes an object or a list of objects as YAML, with the fields in the order of the resource definition.
func printYAML(w io.Writer, document []byte) error {
	return printYAMLWithout(w, document, func(string) bool { return false })
}

// printYAMLWithout leaves out top-level fields of an object.
func printYAMLWithout(w io.Writer, document []byte, leaveOut func(field string) bool) error {
	var object yaml.MapSlice
	var list []yaml.MapSlice
	var inOrder any = &object
	if bytes.HasPrefix(bytes.TrimSpace(document), []byte("[")) {
		inOrder = &list
	}
	if err := yaml.Unmarshal(resource.AsYAML(document), inOrder); err != nil {
		return err
	}
	object = slices.DeleteFunc(object, func(field yaml.MapItem) bool { return leaveOut(fmt.Sprint(field.Key)) })
	var q yamlQuotes
	var printed any = q.marked(object)
	if list != nil {
		printed = q.marked(list)
	}
	text, err := yaml.Marshal(printed)
	if err != nil {
		return err
	}
	_, err = w.Write(q.resolved(text))
	return err
}

// yamlQuotes writes characters that are not printable as escape sequences of YAML, so that a document keeps its values
// on a terminal. The encoder does so for control characters, whose scalars it quotes. So other characters are marked
// with one before, and the marks are resolved in its output.
type yamlQuotes struct {
	secret string // between two control characters of a mark; empty: there is no mark
}

// marked returns a value with its marks.
func (q *yamlQuotes) marked(value any) any {
	switch value := value.(type) {
	case string:
		if !strings.ContainsFunc(value, isHidden) {
			return value
		}
		if q.secret == "" {
			q.secret = rand.Text()
		}
		var b strings.Builder
		for _, r := range value {
			if isHidden(r) {
				fmt.Fprintf(&b, "\x01%s%08X\x01", q.secret, r)
			} else {
				b.WriteRune(r)
			}
		}
		return b.String()
	case yaml.MapSlice:
		marked := make(yaml.MapSlice, len(value))
		for i, item := range value {
			marked[i] = yaml.MapItem{Key: q.marked(item.Key), Value: q.marked(item.Value)}
		}
		return marked
	case []yaml.MapSlice:
		marked := make([]any, len(value))
		for i := range value {
			marked[i] = q.marked(value[i])
		}
		return marked
	case []any:
		marked := make([]any, len(value))
		for i := range value {
			marked[i] = q.marked(value[i])
		}
		return marked
	}
	return value
}

// isHidden reports whether a character is not printable, and the encoder of YAML writes it as it is.
func isHidden(r rune) bool {
	return !resource.IsPrintable(r) && !unicode.IsControl(r) && r != utf8.RuneError
}

// resolved returns an encoded document with escape sequences in place of the marks.
func (q *yamlQuotes) resolved(text []byte) []byte {
	if q.secret == "" {
		return text
	}
	mark := regexp.MustCompile(`\\x01` + q.secret + `([0-9A-F]{8})\\x01`)
	return mark.ReplaceAll(text, []byte(`\U$1`))
}

// printTable writes rows under a heading, in columns.
func printTable(w io.Writer, heading []string, rows [][]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		line := make([]string, len(row))
		for i, cell := range row {
			line[i] = resource.OneLine(cell) // a text of others makes no further row
		}
		fmt.Fprintln(columns, strings.Join(line, "\t"))
	}
	return columns.Flush()
}

// age returns a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// someOf returns a list of names, shortened if it is long.
func someOf(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
