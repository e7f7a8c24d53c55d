package preview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"weft/internal/xds"
)

// pair is a resource before and after the change; one of them is nil where it is added or removed.
type pair struct{ before, after *xds.Resource }

func (p pair) either() *xds.Resource { return cmp.Or(p.before, p.after) }

func (p pair) change() string {
	switch {
	case p.before == nil:
		return "added"
	case p.after == nil:
		return "removed"
	}
	return "changed"
}

// compareResources returns the resources that differ, by type and name.
func compareResources(before, after []*xds.Resource) []pair {
	if len(before) == len(after) && (len(before) == 0 || &before[0] == &after[0]) {
		return nil // one value of both sides
	}
	type key struct {
		t    xds.Type
		name string
	}
	known := make(map[key]pair, len(before))
	for _, r := range before {
		known[key{r.Type, r.Name}] = pair{before: r}
	}
	for _, r := range after {
		at := key{r.Type, r.Name}
		p := known[at]
		if p.after = r; p.before != nil && p.before.Version == r.Version {
			delete(known, at)
			continue
		}
		known[at] = p
	}
	pairs := slices.Collect(maps.Values(known))
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.either().Type, b.either().Type), cmp.Compare(a.either().Name, b.either().Name))
	})
	return pairs
}

// signature is a text that is equal where resources of the same types differ in the same way.
func signature(pairs []pair) string {
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "%s %s, ", p.change(), p.either().Type)
	}
	return b.String()
}

func (c *comparer) resources(pairs []pair) []Resource {
	resources := make([]Resource, 0, len(pairs))
	for _, p := range pairs {
		r := Resource{Type: p.either().Type.String(), Name: p.either().Name, Change: p.change()}
		if c.options.Fields && p.before != nil && p.after != nil {
			r.Fields = Fields(document(p.before), document(p.after))
			if over := len(r.Fields) - maxFields; over > 0 {
				r.Fields, r.More = r.Fields[:maxFields], over
			}
			for i := range r.Fields {
				r.Fields[i].bound()
			}
		}
		resources = append(resources, r)
	}
	return resources
}

// document returns a resource as JSON; nil where it cannot be read.
func document(r *xds.Resource) any {
	message, err := r.Message()
	if err != nil {
		return nil
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil
	}
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	return value
}

// Field is one operation of a JSON patch (RFC 6902), with the value before it.
type Field struct {
	Op     string          `json:"op"` // add, remove or replace
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
}

// bound leaves out values that are too long to be read.
func (f *Field) bound() {
	for _, value := range []*json.RawMessage{&f.Before, &f.Value} {
		if len(*value) > maxValueSize {
			*value = raw(fmt.Sprintf("(%d bytes)", len(*value)))
		}
	}
}

// Fields returns the JSON patch from one JSON value to another. Items of lists are compared by their places.
func Fields(before, after any) []Field { return patch(nil, "", before, after) }

func patch(fields []Field, path string, before, after any) []Field {
	switch old := before.(type) {
	case map[string]any:
		if next, ok := after.(map[string]any); ok {
			return patchObject(fields, path, old, next)
		}
	case []any:
		if next, ok := after.([]any); ok {
			return patchList(fields, path, old, next)
		}
	}
	if reflect.DeepEqual(before, after) {
		return fields
	}
	return append(fields, Field{Op: "replace", Path: path, Before: raw(before), Value: raw(after)})
}

func patchObject(fields []Field, path string, before, after map[string]any) []Field {
	names := append(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		old, had := before[name]
		next, has := after[name]
		below := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		switch {
		case !had:
			fields = append(fields, Field{Op: "add", Path: below, Value: raw(next)})
		case !has:
			fields = append(fields, Field{Op: "remove", Path: below, Before: raw(old)})
		default:
			fields = patch(fields, below, old, next)
		}
	}
	return fields
}

// patchList removes the last items first, so that the places of the others stay.
func patchList(fields []Field, path string, before, after []any) []Field {
	for i := range min(len(before), len(after)) {
		fields = patch(fields, fmt.Sprintf("%s/%d", path, i), before[i], after[i])
	}
	for i := len(before) - 1; i >= len(after); i-- {
		fields = append(fields, Field{Op: "remove", Path: fmt.Sprintf("%s/%d", path, i), Before: raw(before[i])})
	}
	for i := len(before); i < len(after); i++ {
		fields = append(fields, Field{Op: "add", Path: fmt.Sprintf("%s/%d", path, i), Value: raw(after[i])})
	}
	return fields
}

func raw(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("preview: %v", err)) // it was read from JSON
	}
	return text
}
