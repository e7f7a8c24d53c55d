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

	"weft/internal/agent/kumaenv"
)

// parseFile parses the YAML file. Its error names every key that is neither a setting nor one of Kuma's; the warnings
// name Kuma's keys without effect.
func parseFile(name string, text []byte) (values []Value, warnings []string, fault error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // so that a number reads as it was written
	if err := decoder.Decode(&document); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if document == nil {
		return nil, nil, nil
	}
	root, ok := document.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("%s: a settings file is a mapping such as `store: {type: memory}`", name)
	}
	r := fileReader{file: name, seen: map[string]string{}}
	r.flatten("", root)
	return r.values, r.warnings, errors.Join(r.faults...)
}

// fileReader collects the settings of one file.
type fileReader struct {
	file     string
	seen     map[string]string // key as it was written, by the path of its setting
	values   []Value
	warnings []string
	faults   []error
}

func (r *fileReader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s: "+format, append([]any{r.file}, args...)...))
}

// flatten adds the settings in a mapping.
func (r *fileReader) flatten(prefix string, branch map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(branch)) {
		path := prefix + key
		inner, isBranch := branch[key].(map[string]any)
		if known, ok := atPath(path); ok {
			r.add(path, known, branch[key])
			continue
		}
		if isBranch && isParent(path) {
			r.flatten(path+".", inner)
			continue
		}
		reason, ignored := withoutMeaning(variableOf(path))
		if isBranch && !ignored {
			reason, ignored = branchWithoutMeaning(path)
		}
		text, _ := textOf(branch[key], false)
		switch err := rejected(variableOf(path), text); {
		case err != nil:
			r.fault("%s: %w", path, err)
		case ignored:
			r.warnings = append(r.warnings, fmt.Sprintf("%s: %s has no effect: %s", r.file, path, reason))
		case isBranch && hasIgnored(path):
			r.flatten(path+".", inner)
		default:
			r.fault("%s is not a setting; docs/settings.md lists them", path)
		}
	}
}

// add adds the value of a setting. A key without a value, as in `tlsCertFile:`, leaves the default.
func (r *fileReader) add(path string, known setting, v any) {
	if v == nil {
		return
	}
	if other, ok := r.seen[known.path]; ok {
		r.fault("%s and %s are the same setting; leave one of them out", other, path)
	}
	r.seen[known.path] = path
	text, isText := textOf(v, known.list)
	if inner, ok := v.(map[string]any); ok && known.mapping {
		text, isText = textOfMapping(inner)
	}
	if raw, err := json.Marshal(v); known.document && !isText && err == nil {
		text, isText = string(raw), true
	}
	switch {
	case isText:
		r.values = append(r.values, Value{Path: known.path, Value: text, Source: r.file})
	case known.mapping:
		r.fault("%s takes a mapping of names to values without commas", path)
	case known.list:
		r.fault("%s takes a list of names without commas", path)
	default:
		r.fault("%s takes a single value", path)
	}
}

// atPath returns the setting of a key. Kuma does not distinguish the case of keys, and its files differ from its
// documentation: generateDpToken is generateDPToken.
func atPath(path string) (setting, bool) {
	if known, ok := byPath[path]; ok {
		return known, true
	}
	i := slices.IndexFunc(all, func(s setting) bool { return strings.EqualFold(s.path, path) })
	if i < 0 {
		return setting{}, false
	}
	return all[i], true
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
	return slices.ContainsFunc(all, func(s setting) bool {
		return len(s.path) > len(path) && s.path[len(path)] == '.' && strings.EqualFold(s.path[:len(path)], path)
	})
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
		if err := rejected(name, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if reason, ok := withoutMeaning(name); ok {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", name, reason))
			continue
		}
		if kumaenv.Has(name) || isServiceLink(name, value) {
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
