package difference

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// Format returns the difference of a golden from a base with a name. Expand makes the same bytes from it.
func Format(name, base, golden string) (string, error) {
	from, err := documents(base)
	if err != nil {
		return "", err
	}
	to, err := documents(golden)
	if err != nil {
		return "", err
	}
	if err := errors.Join(uniqueHeaders(from), uniqueHeaders(to)); err != nil {
		return "", err
	}
	w := &writer{base: from, golden: to}
	w.out.WriteString(basePrefix + name + "\n")
	if err := w.write(); err != nil {
		return "", err
	}
	difference := w.out.String()
	if expanded, err := Expand(difference, base); err != nil || expanded != golden {
		return "", fmt.Errorf("this golden has no difference from %s, so write it as a whole: its difference "+
			"expands to something else (%v):\n%s", name, err, expanded)
	}
	return difference, nil
}

// writer writes the documents of a difference.
type writer struct {
	base, golden []document
	out          strings.Builder
	above        string // header of the golden's last document that is written
}

// write writes what the base has to lose, then the documents of the golden. A document whose order has changed is
// removed, and is new at its place.
func (w *writer) write() error {
	common, err := w.commonDocuments()
	if err != nil {
		return err
	}
	for _, d := range w.base {
		if !common[d.header] {
			fmt.Fprintf(&w.out, "%s%s%s\n", headerPrefix, opRemoved, d.header)
		}
	}
	for j, d := range w.golden {
		writeDocument := w.writeNew
		if common[d.header] {
			writeDocument = w.writeChanged
		}
		if err := writeDocument(j); err != nil {
			return err
		}
	}
	return nil
}

// commonDocuments returns the headers of the documents that stay, in the order of the base, and that have edits at
// most.
func (w *writer) commonDocuments() (map[string]bool, error) {
	common := commonOrder(w.base, w.golden)
	for header := range common {
		edits, err := compareDocuments(w.base[index(w.base, header)], w.golden[index(w.golden, header)])
		if err != nil {
			return nil, err
		}
		if edits == nil {
			delete(common, header)
		}
	}
	return common, nil
}

// commonOrder returns the headers of the longest series of documents that both have in the same order.
func commonOrder(base, golden []document) map[string]bool {
	longest := make([][]int, len(base)+1)
	longest[len(base)] = make([]int, len(golden)+1)
	for i := len(base) - 1; i >= 0; i-- {
		longest[i] = make([]int, len(golden)+1)
		for j := len(golden) - 1; j >= 0; j-- {
			longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			if base[i].header == golden[j].header {
				longest[i][j] = 1 + longest[i+1][j+1]
			}
		}
	}
	common := map[string]bool{}
	for i, j := 0, 0; i < len(base) && j < len(golden); {
		switch {
		case base[i].header == golden[j].header:
			common[base[i].header] = true
			i++
			j++
		case longest[i][j] == longest[i+1][j]:
			i++
		default:
			j++
		}
	}
	return common
}

// writeChanged writes how the golden's document at j differs from that of the base.
func (w *writer) writeChanged(j int) error {
	to := w.golden[j]
	from := w.base[index(w.base, to.header)]
	if from.text == to.text {
		return nil
	}
	edits, err := compareDocuments(from, to)
	if err != nil {
		return err
	}
	fmt.Fprintf(&w.out, "%s%s%s\n", headerPrefix, opChanged, to.header)
	writeEdits(&w.out, edits, "")
	w.above = to.header
	return nil
}

func compareDocuments(from, to document) ([]edit, error) {
	was, err := from.value()
	if err != nil {
		return nil, err
	}
	is, err := to.value()
	if err != nil {
		return nil, err
	}
	return compare(was, is), nil
}

// writeNew writes the golden's document at j: as the edits of a document of its type if those are clearly shorter, else
// as a whole.
func (w *writer) writeNew(j int) error {
	d := w.golden[j]
	text, like, shortest := d.text, "", strings.Count(d.text, "\n")/2
	for _, other := range w.models(j) {
		edits, err := compareDocuments(other.renamed(d.header), d)
		if err != nil {
			return err
		}
		if edits == nil {
			continue
		}
		var out strings.Builder
		writeEdits(&out, edits, "")
		if lines := strings.Count(out.String(), "\n"); lines < shortest {
			text, like, shortest = out.String(), other.header, lines
		}
	}
	header := opNew + d.header
	if like != "" {
		header += wordLike + like
	}
	switch {
	case j == 0:
		header += wordFirst
	case w.golden[j-1].header != w.above:
		header += wordAfter + w.golden[j-1].header
	}
	w.out.WriteString(headerPrefix + header + "\n" + text)
	w.above = d.header
	return nil
}

// models returns the documents that the golden's document at j may be like: those of its type, as the golden has them
// above it, else as the base has them.
func (w *writer) models(j int) []document {
	models := slices.Clone(w.golden[:j])
	for _, d := range w.base {
		if index(models, d.header) < 0 {
			models = append(models, d)
		}
	}
	return slices.DeleteFunc(models, func(d document) bool { return kind(d.header) != kind(w.golden[j].header) })
}

// Words of the headers of a difference.
const (
	opChanged = "changed "
	opNew     = "new "
	opRemoved = "removed "
	wordLike  = ", like "
	wordAfter = ", after "
	wordFirst = ", first"
)

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// writeEdits writes edits as YAML. Single edits below each other are one path.
func writeEdits(out *strings.Builder, edits []edit, indent string) {
	for i := range edits {
		e := &edits[i]
		path := escaper.Replace(e.segment)
		for len(e.below) == 1 {
			e = &e.below[0]
			path += "/" + escaper.Replace(e.segment)
		}
		if e.below != nil {
			out.WriteString(indent + quoted(path+"/") + ":\n")
			writeEdits(out, e.below, indent+"  ")
			continue
		}
		out.WriteString(indent + quoted(e.mark+path) + ":")
		if e.mark == "-" {
			out.WriteString("\n")
			continue
		}
		writeValue(out, e.value, indent)
	}
}

// writeValue writes a value after its key.
func writeValue(out *strings.Builder, value any, indent string) {
	if _, ok := value.(object); ok && height(value) > 0 {
		indent += "  "
	}
	text := marshal(value)
	if height(value) > 0 {
		out.WriteString("\n" + indent)
	} else {
		out.WriteString(" ")
	}
	out.WriteString(strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+indent) + "\n")
}

func marshal(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		panic(err) // decoded YAML
	}
	return string(text)
}

// quoted returns a path as a key of YAML.
func quoted(path string) string {
	var read any
	if err := yaml.Unmarshal([]byte(path), &read); err == nil && fmt.Sprint(read) == path {
		return path
	}
	return strconv.Quote(path)
}
