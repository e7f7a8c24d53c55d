// Package difference writes a golden as its difference from another, its base, and expands it again. A golden is a
// series of YAML documents below headers that are unique:
//
//	--- # cluster self_inbound_10.0.0.1_5432
//	connectTimeout: 10s
//
// A difference names its base and lists the documents that the base has otherwise or not at all:
//
//	base: tcp-inbound
//	--- # removed extension self_rate_limit_5432
//	--- # changed cluster self_inbound_10.0.0.1_5432
//	connectTimeout: 3s
//	+circuitBreakers/thresholds/0/maxConnections: 5
//	-perConnectionBufferLimitBytes:
//	--- # new extension self_connection_limit_5432
//	name: self_connection_limit_5432
//	--- # new cluster self_guarded_5433, like cluster self_guarded_5432, after listener self_guarded_5432
//	connectTimeout: 3s
//
// A key is a path to a value that differs. A path with "+" is one that the base does not have, a path with "-" one that
// only the base has. A path that ends with "/" is the common beginning of the paths below it. A segment is the name of
// a field or, in a list, of an element: its field `name` where all elements have different ones, else its position in
// the base, from 0. "+LIST/after ELEMENT" and "+LIST/first" insert elements. In a segment, "/" is "~1" and "~" is "~0",
// as in a JSON Pointer.
//
// A new document comes after the one above it in the difference, unless its header says otherwise. A document that is
// like another, of the base or above, is a copy in which the new name replaces the other. Its paths differ from the
// copy.
//
// What a difference says must be so: a path that is removed or changed exists in the base, and a new value differs. So
// no part of a difference loses its effect unnoticed when the base changes.
package difference

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
)

// object is a mapping as YAML decodes it.
type object = map[any]any

const (
	headerPrefix = "--- # "
	basePrefix   = "base: "
)

// Base returns the name of the base in the first line of a difference; ok is false for a golden that is complete.
func Base(text string) (name string, ok bool) {
	first, _, _ := strings.Cut(text, "\n")
	return strings.CutPrefix(first, basePrefix)
}

// document is a part of a golden, without the line of its header.
type document struct{ header, text string }

// documents returns the documents of a golden, or those of a difference without its first line.
func documents(text string) ([]document, error) {
	var all []document
	for line := range strings.Lines(text) {
		if header, ok := strings.CutPrefix(line, headerPrefix); ok {
			all = append(all, document{header: strings.TrimSuffix(header, "\n")})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("the first line of a golden begins with %q, not %q", headerPrefix, line)
		}
		all[len(all)-1].text += line
	}
	return all, nil
}

func index(all []document, header string) int {
	return slices.IndexFunc(all, func(d document) bool { return d.header == header })
}

// uniqueHeaders returns an error if two documents have the same header.
func uniqueHeaders(all []document) error {
	for i, d := range all {
		if index(all, d.header) < i {
			return fmt.Errorf("two documents are %q", d.header)
		}
	}
	return nil
}

func (d document) value() (value any, err error) {
	if err := yaml.Unmarshal([]byte(d.text), &value); err != nil {
		return nil, fmt.Errorf("%s: %w", d.header, err)
	}
	return value, nil
}

// renamed returns a copy of the document with another header and, in the text, its name instead of the former. A
// header is a type and a name.
func (d document) renamed(header string) document {
	_, from, _ := strings.Cut(d.header, " ")
	_, to, _ := strings.Cut(header, " ")
	return document{header, strings.ReplaceAll(d.text, from, to)}
}

// kind returns the first word of a header.
func kind(header string) string {
	word, _, _ := strings.Cut(header, " ")
	return word
}
