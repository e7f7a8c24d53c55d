package policy

import (
	"fmt"
	"iter"
)

// Origins is the tree of the parts that the fields of a merged conf are from. It has the shape of the conf, with the
// names of the fields in JSON, and ends where a value is from one part as a whole.
type Origins struct {
	From   *Origin    // of a scalar, or of a list that replaces; else nil
	Fields []Field    // of an object, in the order of its type, without absent fields
	Items  []*Origins // of a list that appends or merges by a key, one for each item
}

// Field is the origins of one field.
type Field struct {
	Name string
	*Origins
}

// All returns the path of each value and the part that it is from, such as "http.requestTimeout" and
// "rules[0].default.filters".
func (o *Origins) All() iter.Seq2[string, Origin] {
	return func(yield func(string, Origin) bool) { o.walk("", yield) }
}

func (o *Origins) walk(path string, yield func(string, Origin) bool) bool {
	if o.From != nil {
		return yield(path, *o.From)
	}
	for _, f := range o.Fields {
		below := f.Name
		if path != "" {
			below = path + "." + f.Name
		}
		if !f.walk(below, yield) {
			return false
		}
	}
	for i, item := range o.Items {
		if !item.walk(fmt.Sprintf("%s[%d]", path, i), yield) {
			return false
		}
	}
	return true
}
