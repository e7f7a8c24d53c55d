package policy

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Path is the place of a value in a conf: the steps from the conf to the value.
type Path []Step

// Step is a step into a field of an object, or to an item of a list.
type Step struct {
	Field string // its name in JSON; empty: an item
	Item  int
}

// String reads as "http.requestTimeout" or "rules[0].default.filters".
func (p Path) String() string { return p.text(func(item int) string { return strconv.Itoa(item) }) }

// Field returns the field of the path, which is the same for all items of a list: "rules[].default.filters".
func (p Path) Field() string { return p.text(func(int) string { return "" }) }

func (p Path) text(place func(item int) string) string {
	var b strings.Builder
	for i, step := range p {
		switch {
		case step.Field == "":
			b.WriteString("[" + place(step.Item) + "]")
		case i > 0:
			b.WriteString("." + step.Field)
		default:
			b.WriteString(step.Field)
		}
	}
	return b.String()
}

// ItemOf returns the item of a list of the conf that the path leads to or into; false: none.
func (p Path) ItemOf(list string) (int, bool) {
	if len(p) < 2 || p[0].Field != list || p[1].Field != "" {
		return 0, false
	}
	return p[1].Item, true
}

// ValueIn returns the value at the path in the JSON form of a conf.
func (p Path) ValueIn(document json.RawMessage) json.RawMessage {
	for _, step := range p {
		if step.Field == "" {
			document = itemAt(document, step.Item)
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(document, &fields) != nil {
			return nil
		}
		document = fields[step.Field]
	}
	return document
}

func itemAt(document json.RawMessage, at int) json.RawMessage {
	var items []json.RawMessage
	if json.Unmarshal(document, &items) != nil || at >= len(items) {
		return nil
	}
	return items[at]
}
