package install

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// ReadValues returns the values of files, then those of flags by their path, then those of assignments in the form of
// helm's --set, "controlPlane.zone=a". A later one wins.
func ReadValues(files []string, flags map[string]any, assignments []string) (map[string]any, error) {
	all := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("values: %w", err)
		}
		read := map[string]any{}
		if err := yaml.UnmarshalStrict(text, &read); err != nil {
			return nil, fmt.Errorf("values: %s: %w", file, err)
		}
		merge(all, read)
	}
	for path, v := range flags {
		if _, err := set(all, strings.Split(path, "."), v); err != nil {
			return nil, err
		}
	}
	for _, text := range assignments {
		for _, one := range splitUnescaped(text, ',') {
			if err := assign(all, one); err != nil {
				return nil, fmt.Errorf("--set %s: %w", text, err)
			}
		}
	}
	return all, nil
}

// merge adds the values of a mapping to another one. Null stays, for [Render].
func merge(into, from map[string]any) {
	for key, v := range from {
		inner, isMap := v.(map[string]any)
		if before, wasMap := into[key].(map[string]any); isMap && wasMap {
			merge(before, inner)
		} else {
			into[key] = v
		}
	}
}

// assign sets one value, "path=text".
func assign(into map[string]any, one string) error {
	at := splitUnescaped(one, '=')
	if len(at) < 2 || at[0] == "" {
		return fmt.Errorf("%q has no value; want NAME=VALUE", one)
	}
	_, err := set(into, splitUnescaped(at[0], '.'), parse(strings.TrimPrefix(one, at[0]+"=")))
	return err
}

// set returns a mapping or a list with a value below it. A key with brackets is an item of a list, "meshes[0]".
func set(in any, path []string, v any) (any, error) {
	if len(path) == 0 {
		return v, nil
	}
	if number, ok := strings.CutPrefix(path[0], "["); ok {
		return setItem(in, number, path[1:], v)
	}
	if key, number, indexed := strings.Cut(path[0], "["); indexed {
		path = append([]string{key, "[" + number}, path[1:]...)
	}
	m, ok := in.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	below, err := set(m[unescape(path[0])], path[1:], v)
	m[unescape(path[0])] = below
	return m, err
}

// maxItems bounds the lists of assignments.
const maxItems = 1000

func setItem(in any, number string, path []string, v any) (any, error) {
	text, rest, _ := strings.Cut(number, "]")
	i, err := strconv.Atoi(text)
	if err != nil || i < 0 || i >= maxItems {
		return nil, fmt.Errorf("[%s is not the index of an item; want [0] to [%d]", number, maxItems-1)
	}
	if rest != "" {
		path = append([]string{rest}, path...)
	}
	items, _ := in.([]any)
	for len(items) <= i {
		items = append(items, nil)
	}
	items[i], err = set(items[i], path, v)
	return items, err
}

// parse returns the value of a text: a number, a boolean, a list {a,b}, else the text.
func parse(text string) any {
	if inner, ok := strings.CutPrefix(text, "{"); ok && strings.HasSuffix(inner, "}") {
		items := []any{}
		if inner = strings.TrimSuffix(inner, "}"); inner != "" {
			for _, item := range splitUnescaped(inner, ',') {
				items = append(items, parse(item))
			}
		}
		return items
	}
	text = unescape(text)
	switch text {
	case "true", "false":
		return text == "true"
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && (text == "0" || !strings.HasPrefix(text, "0")) {
		return n
	}
	return text
}

// splitUnescaped splits a text at a byte that no backslash precedes, and that is not within braces.
func splitUnescaped(text string, at byte) []string {
	var parts []string
	begin, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == at && depth == 0:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
