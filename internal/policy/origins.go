package policy

import "iter"

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

// All returns the path of each value and the part that it is from. The next path overwrites the former one.
func (o *Origins) All() iter.Seq2[Path, Origin] {
	return func(yield func(Path, Origin) bool) { o.walk(make(Path, 0, 8), yield) }
}

func (o *Origins) walk(path Path, yield func(Path, Origin) bool) bool {
	if o.From != nil {
		return yield(path, *o.From)
	}
	for _, f := range o.Fields {
		if !f.walk(append(path, Step{Field: f.Name}), yield) {
			return false
		}
	}
	for i, item := range o.Items {
		if !item.walk(append(path, Step{Item: i}), yield) {
			return false
		}
	}
	return true
}

// ItemsOf returns the part that each item of a list of the conf is from, which is appended or prepended as a whole.
func (o *Origins) ItemsOf(list string) []Origin {
	var origins []Origin
	for path, origin := range o.All() {
		if _, ok := path.ItemOf(list); ok {
			origins = append(origins, origin)
		}
	}
	return origins
}
