package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// YAMLDocument is one document of a YAML stream.
type YAMLDocument struct {
	Line int // its first line in the stream that is neither empty nor a comment, from 1
	// Text is the document without its marker. It shares memory with the stream.
	Text   []byte
	Before int // lines of the stream before Text
}

// parserLine matches the number of a line in an error of the parser of YAML.
var parserLine = regexp.MustCompile(`((?:^|: |\n) *line )(\d+)(: )`)

// ShiftLines returns the error of parsing the text of a document with the line numbers of its stream.
func (d YAMLDocument) ShiftLines(err error) error {
	shift := func(text string) string {
		return parserLine.ReplaceAllStringFunc(text, func(found string) string {
			part := parserLine.FindStringSubmatch(found)
			line, _ := strconv.Atoi(part[2])
			return part[1] + strconv.Itoa(line+d.Before) + part[3]
		})
	}
	if known, ok := err.(*Error); ok {
		shifted := *known
		shifted.Detail = shift(known.Detail)
		return &shifted
	}
	return errors.New(shift(err.Error()))
}

// SplitYAML returns the documents of a YAML stream, without documents that have only comments. A document ends at a
// line with the marker `---` or `...`. A comment or, after `---`, content of the next document may follow on that line
// (YAML 1.2.2, sections 9.1.2 and 9.1.3). Values of JSON in a row are a document each.
func SplitYAML(stream []byte) []YAMLDocument {
	var all []YAMLDocument
	var current YAMLDocument
	lines, begin, at := 0, 0, 0
	end := func() {
		if current.Line > 0 {
			current.Text = stream[begin:at]
			all = append(all, current.values()...)
		}
	}
	for line, rest := cutLine(stream); len(line) > 0; line, rest = cutLine(rest) {
		next := len(stream) - len(rest)
		if content, ends := afterMarker(line); ends {
			end()
			current, begin = YAMLDocument{Before: lines}, next-len(content)
			line = content
		}
		at = next
		lines++
		if current.Line == 0 && hasContent(line) {
			current.Line = lines
		}
	}
	end()
	return all
}

// values returns the values of a document that has several in JSON, and else the document.
func (d YAMLDocument) values() []YAMLDocument {
	content := 0
	for line, rest := cutLine(d.Text); len(line) > 0 && !hasContent(line); line, rest = cutLine(rest) {
		content = len(d.Text) - len(rest)
	}
	if first := bytes.TrimSpace(d.Text[content:]); len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return []YAMLDocument{d}
	}
	var all []YAMLDocument
	for decoder := json.NewDecoder(bytes.NewReader(d.Text[content:])); ; {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case err == io.EOF && len(all) > 1:
			return all
		case err != nil: // the document is no JSON, or one value of it
			return []YAMLDocument{d}
		}
		end := content + int(decoder.InputOffset())
		before := d.Before + bytes.Count(d.Text[:end-len(value)], []byte("\n"))
		all = append(all, YAMLDocument{Line: before + 1, Text: d.Text[end-len(value) : end], Before: before})
	}
}

// cutLine returns the first line of a stream, including its end, and the rest.
func cutLine(stream []byte) (line, rest []byte) {
	const ends = "\r\n\u0085\u2028\u2029" // the line ends of YAML parsers
	at := bytes.IndexAny(stream, ends)
	if at < 0 {
		return stream, nil
	}
	_, size := utf8.DecodeRune(stream[at:])
	if bytes.HasPrefix(stream[at:], []byte("\r\n")) {
		size = 2
	}
	return stream[:at+size], stream[at+size:]
}

// afterMarker returns a line without its document marker, and whether it has one.
func afterMarker(line []byte) (rest []byte, ok bool) {
	for _, marker := range [][]byte{[]byte("---"), []byte("...")} {
		rest, ok := bytes.CutPrefix(line, marker)
		if ok &&
			(len(rest) == 0 || bytes.IndexAny(rest[:min(len(rest), utf8.UTFMax)], " \t\r\n\u0085\u2028\u2029") == 0) {
			return rest, true
		}
	}
	return nil, false
}

// hasContent reports whether a line is neither empty nor a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}
