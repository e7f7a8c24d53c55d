package kind_test

import (
	"testing"
	"unicode"

	"weft/kind"
)

func TestTemplate(t *testing.T) {
	values := kind.Values{
		Fields:  map[string]string{".Mesh": "m", ".Zone": "east"},
		Labels:  map[string]string{"team": "blue", "odd": "a b"},
		Allowed: unicode.IsLetter, Names: "letters",
	}
	actions := kind.Actions{Fields: []string{".Mesh", ".Zone"}, Labels: true}
	for text, want := range map[string]string{
		"":                                    "",
		"plain":                               "plain",
		"{{.Mesh}}.{{ .Zone }}":               "m.east",
		`{{ label "team" }}-{{label "team"}}`: "blue-blue",
		"}":                                   "}",
	} {
		parsed, err := kind.ParseTemplate(text, actions)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := parsed.Render(values); got != want || err != nil {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"{{", "}}", "a }} b {{ .Mesh }}", "{{ .Mesh", "{{ .Pod }}", "{{}}",
		"{{ label team }}", `{{ label "" }}`, "{{ {{ .Mesh }} }}", "{{ range 1000000000 }}{{ end }}"} {
		if _, err := kind.ParseTemplate(text, actions); err == nil {
			t.Errorf("%q is a template", text)
		}
	}
	actions.Fields = append(actions.Fields, ".Namespace")
	for text, want := range map[string]string{
		`{{ label "none" }}`: `there is no label "none", which the template names`,
		`{{ .Namespace }}`: `{{ .Namespace }} is of a Pod, and this Dataplane is of none; give machines a ` +
			`MeshIdentity with another path`,
		`{{ label "odd" }}`: `{{ label "odd" }} is "a b" here, and only letters can stand there`,
	} {
		parsed, err := kind.ParseTemplate(text, actions)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parsed.Render(values); err == nil || err.Error() != want {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
}
