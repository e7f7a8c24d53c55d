package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// parseFile parses the YAML file; its error names every key that is not a setting.
func parseFile(name string, text []byte) ([]Value, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // so that a number reads as it was written
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if document == nil {
		return nil, nil
	}
	root, ok := document.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: a settings file is a mapping such as `store: {type: memory}`", name)
	}
	return flatten(name, "", root)
}

// flatten returns the settings in a mapping.
func flatten(file, prefix string, branch map[string]any) (values []Value, fault error) {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(branch)) {
		path := prefix + key
		inner, isBranch := branch[key].(map[string]any)
		known, isSetting := byPath[path]
		text, isText := textOf(branch[key], known.list)
		if isBranch && known.mapping {
			text, isText = textOfMapping(inner)
		}
		switch {
		case isSetting && isText:
			values = append(values, Value{Path: path, Value: text, Source: file})
		case isSetting && known.mapping:
			faults = append(faults, fmt.Errorf("%s: %s takes a mapping of names to values without commas", file, path))
		case isSetting && known.list:
			faults = append(faults, fmt.Errorf("%s: %s takes a list of names without commas", file, path))
		case isSetting:
			faults = append(faults, fmt.Errorf("%s: %s takes a single value", file, path))
		case isBranch && isParent(path):
			below, err := flatten(file, path+".", inner)
			values, faults = append(values, below...), append(faults, err)
		default:
			faults = append(faults, fmt.Errorf("%s: %s is not a setting; docs/settings.md lists them", file, path))
		}
	}
	return values, errors.Join(faults...)
}

// textOf returns a value of the file in the form of a variable, or false for an invalid one. A list may be one text
// too.
func textOf(v any, list bool) (string, bool) {
	if items, ok := v.([]any); ok && list {
		var texts []string
		for _, item := range items {
			text, ok := textOf(item, false)
			if !ok || strings.Contains(text, ",") {
				return "", false
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ","), true
	}
	switch v.(type) {
	case string, bool, json.Number:
		return fmt.Sprint(v), true
	}
	return "", false
}

// textOfMapping returns a mapping of the file in the form of a variable, KEY:VALUE,KEY:VALUE, or false for a key or a
// value that this form can't have.
func textOfMapping(m map[string]any) (string, bool) {
	var items []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text, ok := textOf(m[key], false)
		if !ok || strings.Contains(text, ",") || strings.ContainsAny(key, ":,") {
			return "", false
		}
		items = append(items, key+":"+text)
	}
	return strings.Join(items, ","), true
}

// isParent reports whether a path is the prefix of settings.
func isParent(path string) bool {
	return slices.ContainsFunc(all, func(s setting) bool { return strings.HasPrefix(s.path, path+".") })
}

// parseEnviron parses the variables with the prefix KUMA_; its error names every unknown one.
func parseEnviron(environ []string) (values []Value, warnings []string, fault error) {
	var faults []error
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "KUMA_") {
			continue
		}
		if s, ok := byEnv[name]; ok {
			same := func(v Value) bool { return v.Path == s.path }
			if i := slices.IndexFunc(values, same); i >= 0 && values[i].Value != value {
				faults = append(faults, fmt.Errorf("%s and %s are the same setting and differ; unset one of them",
					values[i].Source, name))
			}
			values = append(values, Value{Path: s.path, Value: value, Source: name})
			continue
		}
		if reason, ok := withoutMeaning(name); ok {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", name, reason))
			continue
		}
		if ofAgent(name) || isServiceLink(name, value) {
			continue
		}
		faults = append(faults,
			fmt.Errorf("%s is not a setting; docs/settings.md lists them, and `unset %s` removes it", name, name))
	}
	return values, warnings, errors.Join(faults...)
}

// serviceLink matches the variables with which Kubernetes describes the Services of a pod's namespace. (Kubernetes,
// "Accessing the Service", environment variables.)
var serviceLink = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)$`)

func isServiceLink(name, value string) bool {
	// NAME_PORT alone could be a misspelled setting; a link's value is a URL.
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
