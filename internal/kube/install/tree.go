package install

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// node is a value, or a mapping of values.
type node struct {
	*value                  // nil for a mapping of values, and for a rejected one
	advice string           // of a rejected value
	below  map[string]*node // of a mapping of values, or of the items of a list
	order  []string         // the keys of below
	items  bool             // a list of such mappings
}

// tree has the values by their parts.
var tree = func() *node {
	root := &node{}
	for i := range values {
		*root.at(values[i].path) = node{value: &values[i]}
	}
	for _, r := range rejected {
		*root.at(r.path) = node{advice: r.advice}
	}
	return root
}()

// at returns the node of a path, which it creates.
func (n *node) at(path string) *node {
	for key := range strings.SplitSeq(path, ".") {
		name, items := strings.CutSuffix(key, "[]")
		if n.below[name] == nil {
			if n.below == nil {
				n.below = map[string]*node{}
			}
			n.below[name] = &node{items: items}
			n.order = append(n.order, name)
		}
		n = n.below[name]
	}
	return n
}

// check returns an error that names each value that is unknown, has no meaning, or is of another type.
func check(given map[string]any) error {
	if given == nil {
		return nil
	}
	return tree.check("", given)
}

func (n *node) check(path string, given any) error {
	switch {
	case n.advice != "":
		return fmt.Errorf("the value %s has no meaning: %s", path, n.advice)
	case n.value != nil:
		return n.value.check(path, given)
	case n.items:
		items, ok := given.([]any)
		if !ok {
			return fmt.Errorf("the value %s is %v; want a list", path, given)
		}
		one := &node{below: n.below, order: n.order}
		var faults []error
		for i, item := range items {
			if m, ok := item.(map[string]any); ok && m["name"] == nil {
				faults = append(faults, fmt.Errorf("the value %s[%d].name is missing", path, i))
			}
			faults = append(faults, one.check(fmt.Sprintf("%s[%d]", path, i), item))
		}
		return errors.Join(faults...)
	}
	m, ok := given.(map[string]any)
	if !ok {
		return fmt.Errorf("the value %s is %#v; want a mapping of %s", path, given, strings.Join(n.known(), ", "))
	}
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		below, known := n.below[key]
		if !known {
			where := path
			if where == "" {
				where = "the chart"
			}
			faults = append(faults, fmt.Errorf("the value %s is unknown; %s has %s", at, where,
				strings.Join(n.known(), ", ")))
			continue
		}
		faults = append(faults, below.check(at, m[key]))
	}
	return errors.Join(faults...)
}

// known returns the keys that have a meaning.
func (n *node) known() []string {
	return slices.DeleteFunc(slices.Clone(n.order), func(key string) bool { return n.below[key].advice != "" })
}

func (v *value) check(path string, given any) error {
	want := ""
	switch v.shape {
	case text:
		got, ok := given.(string)
		switch {
		case !ok:
			want = "a text"
		case len(v.choices) > 0 && !slices.Contains(v.choices, got):
			want = "one of " + strings.Join(v.choices, ", ")
		case v.pattern != "" && !regexp.MustCompile(v.pattern).MatchString(got):
			want = "a text that matches " + v.pattern
		}
	case integer:
		if !isInteger(given) {
			want = "a number without a fraction, 0 or more"
		}
	case boolean:
		if _, ok := given.(bool); !ok {
			want = "true or false"
		}
	case mapping:
		if _, ok := given.(map[string]any); !ok {
			want = "a mapping"
		}
	case list:
		if _, ok := given.([]any); !ok {
			want = "a list"
		}
	case many:
		_, isList := given.([]any)
		if _, ok := given.(map[string]any); !ok && !isList {
			want = "a mapping, or a list"
		}
	case amount:
		if _, ok := given.(string); !ok && !isNumber(given) {
			want = "a quantity such as 100m, 64Mi or 0"
		}
	}
	if want == "" {
		return nil
	}
	return fmt.Errorf("the value %s is %#v; want %s", path, given, want)
}

func isNumber(v any) bool {
	switch v.(type) {
	case float64, int64, int:
		return true
	}
	return false
}

func isInteger(v any) bool {
	switch n := v.(type) {
	case float64:
		return n >= 0 && n == float64(int64(n))
	case int64:
		return n >= 0
	}
	return false
}
