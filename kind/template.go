package kind

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Template is a text with the actions {{ .Field }} and {{ label "KEY" }} for values, and no other actions. Users write
// templates, and a language with loops could stop the control plane.
type Template struct {
	actions []action
	tail    string // after the last action
}

// action is a field or, where that is empty, a label.
type action struct {
	before, field, label string
}

// Actions are the allowed actions of a template.
type Actions struct {
	Fields []string // with their dot: ".Mesh"
	Labels bool
}

// Actions of the existing templates. The trust domain of a MeshIdentity is the same for all its Dataplanes, since one
// MeshTrust has its roots, so its template has no action of a Dataplane.
var (
	TrustDomainActions = Actions{Fields: []string{".Mesh", ".Zone"}}
	PathActions        = Actions{Fields: []string{".Mesh", ".Zone", ".Workload", ".Namespace", ".ServiceAccount"},
		Labels: true}
	HostnameActions = Actions{Fields: []string{".DisplayName", ".Name", ".Namespace", ".Mesh", ".Zone"},
		Labels: true}
)

// String lists the actions in their written form.
func (a Actions) String() string {
	var written []string
	for _, field := range a.Fields {
		written = append(written, "{{ "+field+" }}")
	}
	if a.Labels {
		written = append(written, `{{ label "NAME" }}`)
	}
	last := len(written) - 1
	return strings.Join(written[:last], ", ") + " and " + written[last]
}

var labelAction = regexp.MustCompile(`^label\s+"([^"{}]+)"$`)

// ParseTemplate parses a template with the given actions. Its error is for the user who wrote the template.
func ParseTemplate(text string, allowed Actions) (*Template, error) {
	t := &Template{}
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{{")
		if strings.Contains(before, "}}") {
			break
		}
		if !found {
			t.tail = before
			return t, nil
		}
		inner, tail, closed := strings.Cut(after, "}}")
		a := action{before: before, field: strings.TrimSpace(inner)}
		if label := labelAction.FindStringSubmatch(a.field); allowed.Labels && label != nil {
			a.field, a.label = "", label[1]
		} else if !closed || !slices.Contains(allowed.Fields, a.field) {
			break
		}
		t.actions = append(t.actions, a)
		rest = tail
	}
	return nil, fmt.Errorf("%s is not a template of %s", quote(text), allowed)
}

// Values are the values of a template's actions.
type Values struct {
	Fields map[string]string
	Labels map[string]string
	// Allowed reports whether a value may contain a character, and Names describes these characters for an error. A
	// value thus cannot change the structure of the name.
	Allowed func(rune) bool
	Names   string
}

// Render fills in a template. Its error states the absent or invalid value.
func (t *Template) Render(v Values) (string, error) {
	var out strings.Builder
	for _, a := range t.actions {
		value, err := v.of(a)
		if err != nil {
			return "", err
		}
		out.WriteString(a.before)
		out.WriteString(value)
	}
	return out.String() + t.tail, nil
}

// Reads reports whether the template has the action of a field, such as ".Mesh".
func (t *Template) Reads(field string) bool {
	return slices.ContainsFunc(t.actions, func(a action) bool { return a.field == field })
}

// Labels returns the labels of the template's actions.
func (t *Template) Labels() []string {
	var labels []string
	for _, a := range t.actions {
		if a.field == "" {
			labels = append(labels, a.label)
		}
	}
	return labels
}

// HasSegment reports whether a segment of the template, between slashes, has one action alone, and is accepts its field
// or label. No other value of a rendered path can be read as the value of this action.
func (t *Template) HasSegment(is func(field, label string) bool) bool {
	for i, a := range t.actions {
		after := t.tail
		if i+1 < len(t.actions) {
			after = t.actions[i+1].before
		}
		ends := i+1 == len(t.actions) || strings.Contains(after, "/")
		if (i == 0 || strings.Contains(a.before, "/")) && ends && is(a.field, a.label) {
			return true
		}
	}
	return false
}

func (v *Values) of(a action) (string, error) {
	written, value := a.field, v.Fields[a.field]
	if _, known := v.Fields[a.field]; !known && a.field != "" {
		return "", fmt.Errorf("{{ %s }} is of a Pod, and this Dataplane is of none; give machines a MeshIdentity with "+
			"another path", a.field)
	}
	if a.field == "" {
		written, value = fmt.Sprintf("label %q", a.label), v.Labels[a.label]
		if value == "" {
			return "", fmt.Errorf("there is no label %q, which the template names", a.label)
		}
	}
	if strings.ContainsFunc(value, func(r rune) bool { return !v.Allowed(r) }) {
		return "", fmt.Errorf("{{ %s }} is %s here, and only %s can stand there", written, quote(value), v.Names)
	}
	return value, nil
}

// sample returns the template with a letter for each value.
func (t *Template) sample() string {
	var out strings.Builder
	for _, a := range t.actions {
		out.WriteString(a.before + "x")
	}
	return out.String() + t.tail
}

// template checks a template, and returns its sample.
func (c *checks) template(field, text string, allowed Actions, hint string) (sample string, ok bool) {
	t, err := ParseTemplate(text, allowed)
	if err != nil {
		return "", c.add(field, "%s%s", err, hint)
	}
	return t.sample(), true
}
