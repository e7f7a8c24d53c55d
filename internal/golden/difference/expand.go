package difference

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
)

// Expand returns the golden that a difference makes of its base. The error says what of the difference is not so, as
// after a change of the base.
func Expand(difference, base string) (string, error) {
	_, rest, _ := strings.Cut(difference, "\n")
	parts, err := documents(rest)
	if err != nil {
		return "", err
	}
	from, err := documents(base)
	if err != nil {
		return "", err
	}
	x := &expansion{base: from, golden: slices.Clone(from)}
	for _, part := range parts {
		if err := x.add(part); err != nil {
			return "", fmt.Errorf("%s: %w", part.header, err)
		}
	}
	var out strings.Builder
	for _, d := range x.golden {
		out.WriteString(headerPrefix + d.header + "\n" + d.text)
	}
	return out.String(), nil
}

// expansion is a golden in the making: the documents of the base, with those of the difference so far.
type expansion struct {
	base, golden []document
	above        string // header of the last one of the difference
}

func (x *expansion) add(part document) error {
	if header, ok := strings.CutPrefix(part.header, opRemoved); ok {
		return x.remove(header)
	}
	if header, ok := strings.CutPrefix(part.header, opChanged); ok {
		return x.change(header, part.text)
	}
	if header, ok := strings.CutPrefix(part.header, opNew); ok {
		return x.insert(header, part.text)
	}
	return fmt.Errorf("a header of a difference begins with %q, %q or %q", opChanged, opNew, opRemoved)
}

func (x *expansion) remove(header string) error {
	at, err := x.find(header)
	if err != nil {
		return err
	}
	x.golden = slices.Delete(x.golden, at, at+1)
	return nil
}

func (x *expansion) find(header string) (int, error) {
	at := index(x.golden, header)
	if at < 0 {
		return 0, fmt.Errorf("there is no document %q", header)
	}
	return at, nil
}

func (x *expansion) change(header, edits string) error {
	at, err := x.find(header)
	if err != nil {
		return err
	}
	if edits == "" {
		return errors.New("it has no changes")
	}
	text, err := apply(x.golden[at], edits)
	if err != nil {
		return err
	}
	x.golden[at].text, x.above = text, header
	return nil
}

// insert adds a document whose header may say where, and which document it is like.
func (x *expansion) insert(header, text string) error {
	header, isFirst := strings.CutSuffix(header, wordFirst)
	header, after, isAfter := strings.Cut(header, wordAfter)
	header, like, isLike := strings.Cut(header, wordLike)
	if index(x.golden, header) >= 0 {
		return errors.New("it is not new")
	}
	if !isAfter {
		after = x.above
	}
	place := 0
	if !isFirst {
		at, err := x.find(after)
		if err != nil {
			return err
		}
		place = at + 1
	}
	if isLike {
		model, err := x.model(like)
		if err != nil {
			return err
		}
		if text, err = apply(model.renamed(header), text); err != nil {
			return err
		}
	}
	x.golden = slices.Insert(x.golden, place, document{header, text})
	x.above = header
	return nil
}

// model returns a document that a new one is like, also one that is removed.
func (x *expansion) model(header string) (document, error) {
	for _, all := range [][]document{x.golden, x.base} {
		if at := index(all, header); at >= 0 {
			return all[at], nil
		}
	}
	return document{}, fmt.Errorf("there is no document %q", header)
}

// apply returns the text of a document with edits.
func apply(d document, edits string) (string, error) {
	value, err := d.value()
	if err != nil {
		return "", err
	}
	var paths object
	if err := yaml.UnmarshalStrict([]byte(edits), &paths); err != nil {
		return "", err
	}
	root := &node{}
	if err := root.addPaths(paths); err != nil {
		return "", err
	}
	if value, err = root.apply(value); err != nil {
		return "", err
	}
	return marshal(value), nil
}

// node is a segment of the paths of edits.
type node struct {
	mark  string
	value any              // of a node without nodes below it
	below map[string]*node // by segment
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

func (n *node) addPaths(paths object) error {
	for key, value := range paths {
		path := fmt.Sprint(key)
		if beginning, ok := strings.CutSuffix(path, "/"); ok {
			below, isObject := value.(object)
			if !isObject {
				return fmt.Errorf("%s: there are no paths below it", path)
			}
			at, err := n.at(strings.Split(beginning, "/"))
			if err != nil {
				return err
			}
			if err := at.addPaths(below); err != nil {
				return fmt.Errorf("%s%w", path, err)
			}
			continue
		}
		if err := n.addPath(path, value); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (n *node) addPath(path string, value any) error {
	mark := ""
	if path != "" && (path[0] == '+' || path[0] == '-') {
		mark, path = path[:1], path[1:]
	}
	all := strings.Split(path, "/")
	parent, err := n.at(all[:len(all)-1])
	if err != nil {
		return err
	}
	return parent.add(unescaper.Replace(all[len(all)-1]), &node{mark: mark, value: value})
}

// at returns the node at a path.
func (n *node) at(path []string) (*node, error) {
	for _, segment := range path {
		segment = unescaper.Replace(segment)
		next := n.below[segment]
		if next == nil {
			next = &node{below: map[string]*node{}}
			if err := n.add(segment, next); err != nil {
				return nil, err
			}
		}
		if next.below == nil {
			return nil, fmt.Errorf("%s has a value, and paths below it", segment)
		}
		n = next
	}
	return n, nil
}

func (n *node) add(segment string, child *node) error {
	if n.below == nil {
		n.below = map[string]*node{}
	}
	if n.below[segment] != nil {
		return fmt.Errorf("%s is in two paths", segment)
	}
	n.below[segment] = child
	return nil
}

func (n *node) apply(base any) (any, error) {
	switch base := base.(type) {
	case object:
		return n.applyToObject(base)
	case []any:
		return n.applyToList(base)
	}
	if len(n.below) > 0 {
		return nil, fmt.Errorf("the base has %v there, without anything below it", base)
	}
	return base, nil
}

func (n *node) applyToObject(base object) (any, error) {
	fields := maps.Clone(base)
	for _, segment := range slices.Sorted(maps.Keys(n.below)) {
		was, had := base[segment]
		is, err := n.below[segment].edited(was, had)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", segment, err)
		case n.below[segment].mark == "-":
			delete(fields, segment)
		default:
			fields[segment] = is
		}
	}
	return fields, nil
}

// edited returns the value instead of one of the base.
func (n *node) edited(base any, has bool) (any, error) {
	switch {
	case n.mark == "+" && has:
		return nil, errors.New("the base has it too, so it is not new")
	case n.mark == "+":
		return n.value, nil
	case !has:
		return nil, errors.New("the base does not have it")
	case n.mark == "-":
		return nil, nil
	case n.below != nil:
		return n.apply(base)
	case reflect.DeepEqual(base, n.value):
		return nil, errors.New("the base has the same value")
	}
	return n.value, nil
}

func (n *node) applyToList(base []any) (any, error) {
	known := segments(base)
	edited := make([][]any, len(base)+1) // what comes at each place, after what is inserted first
	for i := range base {
		edited[i+1] = []any{base[i]}
	}
	for _, segment := range slices.Sorted(maps.Keys(n.below)) {
		if err := n.below[segment].applyToElement(segment, base, known, edited); err != nil {
			return nil, fmt.Errorf("%s: %w", segment, err)
		}
	}
	return slices.Concat(edited...), nil
}

func (n *node) applyToElement(segment string, base []any, known []string, edited [][]any) error {
	at := slices.Index(known, segment)
	if n.mark == "+" {
		after, isAfter := strings.CutPrefix(segment, placeAfter)
		if at = slices.Index(known, after); !isAfter || at < 0 {
			at = -1
		}
		elements, isList := n.value.([]any)
		if !isList || at < 0 && segment != placeFirst {
			return errors.New("elements are inserted as a list, first or after an element of the base")
		}
		edited[at+1] = append(edited[at+1], elements...)
		return nil
	}
	var was any
	if at >= 0 {
		was = base[at]
	}
	is, err := n.edited(was, at >= 0)
	if err != nil {
		return err
	}
	if n.mark == "-" {
		edited[at+1] = edited[at+1][1:]
	} else {
		edited[at+1][0] = is
	}
	return nil
}
