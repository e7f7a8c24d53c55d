package resource_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"weft/resource"
)

func TestSplitYAML(t *testing.T) {
	for stream, want := range map[string]string{
		"":                                   "",
		"# a comment\n---\n\n--- # another":  "",
		"a: 1":                               "1 a: 1",
		"a: 1\n---\nb: 2\n":                  "1 a: 1|3 b: 2",
		"---\na: 1\n--- # note\n# b\n\nb: 2": "2 a: 1|6 # note\n# b\n\nb: 2",
		"a: 1\r\n---\r\nb: 2\r\n":            "1 a: 1|3 b: 2",
		"a: 1\n---\t\nb: 2":                  "1 a: 1|3 b: 2",
		"--- {a: 1}\n--- {b: 2}":             "1 {a: 1}|2 {b: 2}",
		"a: 1\n...\n---\nb: 2\n... # end":    "1 a: 1|4 b: 2",
		"a: |\n  ---\n  x\nb: ---x":          "1 a: |\n  ---\n  x\nb: ---x",
		"---a: 1":                            "1 ---a: 1",
	} {
		var got []string
		for _, d := range resource.SplitYAML([]byte(stream)) {
			if last := d.Before + strings.Count(string(d.Text), "\n") + 1; d.Line > last {
				t.Errorf("%q: the document of line %d ends in line %d", stream, d.Line, last)
			}
			got = append(got, fmt.Sprint(d.Line, " ", strings.TrimSpace(string(d.Text))))
		}
		if got := strings.Join(got, "|"); strings.ReplaceAll(got, "\r", "") != want {
			t.Errorf("%q is split into %q, want %q", stream, got, want)
		}
	}
}

// TestValuesOfJSONInARow: each value is a document, as jq prints them, with its line.
func TestValuesOfJSONInARow(t *testing.T) {
	for stream, want := range map[string]string{
		"{\"a\": 1}\n{\"b\": 2}\n":                      `1 {"a": 1}|2 {"b": 2}`,
		"{\n  \"a\": 1\n}\n{\n  \"b\": 2\n}{\"c\":3}\n": "1 {\n  \"a\": 1\n}|4 {\n  \"b\": 2\n}|6 {\"c\":3}",
		"# of jq\n{\"a\": 1}\n[{\"b\": 2}]\n":           `2 {"a": 1}|3 [{"b": 2}]`,
		"x: 1\n---\n{\"a\": 1} {\"b\": 2}\n---\ny: 1\n": `1 x: 1|3 {"a": 1}|3 {"b": 2}|5 y: 1`,
		"{\"a\": 1}\n\n":                                `1 {"a": 1}`,
		"{a: 1} {b: 2}\n":                               `1 {a: 1} {b: 2}`,
	} {
		var got []string
		for _, d := range resource.SplitYAML([]byte(stream)) {
			got = append(got, fmt.Sprint(d.Line, " ", strings.TrimSpace(string(d.Text))))
			if d.Before >= d.Line {
				t.Errorf("%q: the document of line %d begins after %d lines", stream, d.Line, d.Before)
			}
		}
		if got := strings.Join(got, "|"); got != want {
			t.Errorf("%q is split into %q, want %q", stream, got, want)
		}
	}
}

// A stream of very many documents costs one pass over its bytes.
func TestSplitYAMLCopiesNothing(t *testing.T) {
	stream := []byte(strings.Repeat("---\na\n", 100_000))
	var documents []resource.YAMLDocument
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			documents = resource.SplitYAML(stream)
		}
	}).AllocedBytesPerOp()
	if len(documents) != 100_000 || documents[99_999].Line != 200_000 {
		t.Errorf("%d documents, the last one at line %d", len(documents), documents[len(documents)-1].Line)
	}
	if most := int64(100 * len(stream)); allocated > most {
		t.Errorf("%d bytes are split with %d bytes of memory, want %d at most", len(stream), allocated, most)
	}
}

// SplitYAML returns as many documents as a YAML parser.
func FuzzSplitYAML(f *testing.F) {
	f.Add("a: 1\n---\nb: 2\n")
	f.Add("--- # note\n{a: 1}\n...\n--- |\n x\n")
	f.Add("# a\n---\n---\n# b")
	f.Fuzz(func(t *testing.T, stream string) {
		if strings.ContainsAny(stream, "%\ufeff") { // a document's own directives and byte order marks
			return
		}
		want, decoder := 0, yaml.NewDecoder(strings.NewReader(stream))
		for {
			var node yaml.Node
			err := decoder.Decode(&node)
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
			if node.Kind == yaml.DocumentNode && len(node.Content) > 0 &&
				(node.Content[0].Tag != "!!null" || node.Content[0].Value != "") {
				want++
			}
		}
		if got := len(resource.SplitYAML([]byte(stream))); got < want {
			t.Errorf("%q is split into %d documents, and a parser finds %d", stream, got, want)
		}
	})
}
