package agent

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	// placeholder is a name in a template, `{{ name }}`.
	placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}`)
	// tag is the beginning of any other tag of Mustache, such as a section.
	tag = regexp.MustCompile(`\{\{\s*[#^/!>&={]`)
)

// fill returns the document with the values of its placeholders. A value can't end the line that it is in, so that it
// adds no field.
func fill(document []byte, variables map[string]string) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if strings.ContainsFunc(variables[name], unicode.IsControl) {
			return nil, fmt.Errorf("--dataplane-var %s: the value has a line break or another control character; "+
				"write a value of one line", name)
		}
	}
	if found := tag.Find(document); found != nil {
		return nil, fmt.Errorf("has %q, and a template has names only; write {{ name }}", found)
	}
	var faults []error
	filled := placeholder.ReplaceAllFunc(document, func(found []byte) []byte {
		name := string(placeholder.FindSubmatch(found)[1])
		value, ok := variables[name]
		if !ok {
			faults = append(faults, fmt.Errorf("%s has no value; write --dataplane-var %s=VALUE", found, name))
		}
		return []byte(value)
	})
	return filled, errors.Join(faults...)
}
