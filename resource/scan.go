package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"go.yaml.in/yaml/v3"
)

// unmarshal decodes JSON.
func unmarshal(raw []byte, into any) error { return json.Unmarshal(raw, into) }

// scan returns Invalid for a document that is more expensive to parse than its size suggests. It costs one pass over
// the bytes, and a second one for a document with aliases.
func scan(doc []byte) error {
	if isJSON(doc) {
		return withinScan(scanJSON(doc))
	}
	if n := marks(doc); n > 3*MaxElements {
		return Errorf(Invalid,
			"the resource has more than %d fields and list items (%d marks of YAML), at most %d are read", n/3, n,
			MaxElements)
	}
	if bytes.IndexByte(doc, '&') < 0 || bytes.IndexByte(doc, '*') < 0 {
		return nil
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(doc, &tree); err != nil {
		return nil // the parser reports the problem
	}
	n, err := expanded(&tree, map[*yaml.Node]int{})
	if err != nil || n > 2*MaxElements {
		return Errorf(Invalid, "the aliases of YAML in the resource stand for more than %d fields and list items, or "+
			"for themselves; write them out", MaxElements)
	}
	return nil
}

// isJSON reports whether a document is an object or a list of JSON.
func isJSON(doc []byte) bool {
	trimmed := bytes.TrimSpace(doc)
	return len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid(trimmed)
}

// afterRoot returns Invalid where something follows the braces or quotes that enclose the whole document. The reader of
// YAML would omit it.
func afterRoot(doc []byte) error {
	rest := doc
	for line, after := cutLine(rest); len(line) > 0 && !hasContent(line); line, after = cutLine(rest) {
		rest = after
	}
	if rest = bytes.TrimSpace(rest); len(rest) == 0 || !bytes.ContainsRune([]byte(`{["'&!`), rune(rest[0])) ||
		json.Valid(rest) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(doc))
	var root yaml.Node
	if decoder.Decode(&root) != nil {
		return nil // the parser reports the problem
	}
	if err := decoder.Decode(&root); err != io.EOF {
		return Errorf(Invalid, "something follows the end of the resource, after line %d; want one resource in a "+
			"document, and `---` between documents", lastLine(&root))
	}
	return nil
}

// lastLine returns the line of the last value of a document.
func lastLine(n *yaml.Node) int {
	for len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
	}
	return n.Line
}

// AsYAML returns a document as a reader of YAML must get it. In a document of JSON, characters that YAML rejects or
// takes for line breaks become escape sequences, so that it has the same values. Another document is returned as it is.
func AsYAML(doc []byte) []byte {
	if !bytes.ContainsFunc(doc, isEscapedInYAML) || !isJSON(doc) {
		return doc
	}
	var b bytes.Buffer
	for _, r := range string(doc) {
		if isEscapedInYAML(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// isEscapedInYAML reports whether a character that JSON permits in a string has no place in YAML as itself. YAML has no
// escape sequence of two units, and reads the characters beyond U+FFFF as they are.
func isEscapedInYAML(r rune) bool {
	isSpace := r == '\n' || r == '\t' || r == '\r' // JSON has them between its tokens alone
	return r <= math.MaxUint16 && !isSpace && (!IsPrintable(r) || r >= 0xfffe)
}

// withinScan returns Invalid for too many elements or too large a depth.
func withinScan(elements, depth int) error {
	switch {
	case elements > MaxElements:
		return Errorf(Invalid, "the resource has %d fields and list items, at most %d are read", elements, MaxElements)
	case depth > MaxDepth:
		return Errorf(Invalid, "the resource is nested %d deep, at most %d are read", depth, MaxDepth)
	}
	return nil
}

// marks counts the bytes of YAML of which each field and list item has at least one. A document has at most twice as
// many values.
func marks(doc []byte) int {
	n := 0
	for i, b := range doc {
		switch b {
		case '\n', '\r', ',', ':', '[', '{':
			n++
		case '-', '?':
			if i+1 == len(doc) || doc[i+1] == ' ' || doc[i+1] == '\t' {
				n++
			}
		}
	}
	return n
}

// scanJSON returns the number of fields and list items of JSON, and their depth. It is exact for valid JSON.
func scanJSON(raw []byte) (elements, depth int) {
	open, text := 0, false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case text && b == '\\':
			i++
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			elements++
			open++
			depth = max(depth, open)
		case b == '}' || b == ']':
			open--
		case b == ',':
			elements++
		}
	}
	return elements, depth
}

var errCycle = errors.New("an alias stands for itself")

// expanded returns the number of nodes of a document with its aliases expanded. It stops a little above the maximum.
func expanded(n *yaml.Node, known map[*yaml.Node]int) (int, error) {
	if count, ok := known[n]; ok {
		if count == 0 {
			return 0, errCycle
		}
		return count, nil
	}
	known[n] = 0
	count, inner := 1, n.Content
	if n.Kind == yaml.AliasNode {
		inner = []*yaml.Node{n.Alias}
	}
	for _, child := range inner {
		more, err := expanded(child, known)
		if err != nil {
			return 0, err
		}
		count = min(count+more, 4*MaxElements)
	}
	known[n] = count
	return count, nil
}
