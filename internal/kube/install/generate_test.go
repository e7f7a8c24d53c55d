package install

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/settings"
)

//go:generate go test -run "TestChartIsCurrent|TestDocumentationIsCurrent" . -update

var update = flag.Bool("update", false, "rewrite the generated files of the chart")

const chartDir = "../../../deploy/chart"

// TestChartIsCurrent: the values of the chart, their schema, and the files that its templates read are those of the
// list of values.
func TestChartIsCurrent(t *testing.T) {
	variables, advice := map[string]string{}, map[string]string{}
	for _, v := range values {
		if v.setting == "" {
			continue
		}
		variable, fallback, ok := settings.Variable(v.setting)
		if !ok {
			t.Errorf("%s: %s is no setting", v.path, v.setting)
		}
		if got := settingText(v.fallback); got != fallback {
			t.Errorf("the default of %s is %q, and that of its setting %q", v.path, got, fallback)
		}
		variables[v.path] = variable
	}
	for _, r := range rejected {
		advice[r.path] = r.advice
	}
	const head = "# Generated from internal/kube/install/values.go.\n"
	schema := tree.schema()
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	encoded, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{
		"files/settings.yaml": append([]byte(head), yamlOf(t, variables)...),
		"files/rejected.yaml": append([]byte(head), yamlOf(t, advice)...),
		"values.yaml":         append([]byte(head), tree.yaml("")...),
		"values.schema.json":  append(encoded, '\n'),
	} {
		path := filepath.Join(chartDir, file)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not current (%v): go generate ./internal/kube/install", path, err)
		}
	}
}

// settingText returns a value as a text of a setting.
func settingText(v any) string {
	if items, ok := v.([]any); ok {
		var texts []string
		for _, item := range items {
			texts = append(texts, fmt.Sprint(item))
		}
		return strings.Join(texts, ",")
	}
	return fmt.Sprint(v)
}

func yamlOf(t *testing.T, v any) []byte {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// schema returns the JSON schema of a node.
func (n *node) schema() map[string]any {
	if n.advice != "" { // a template rejects it, with the advice
		return map[string]any{"description": "Without meaning: " + n.advice + "."}
	}
	if n.value != nil {
		return n.value.schema()
	}
	properties, required := map[string]any{}, []string{}
	for _, key := range n.order {
		properties[key] = n.below[key].schema()
		if below := n.below[key]; below.hasDefault() {
			required = append(required, key)
		}
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties,
		"required": required}
	switch {
	case n.items:
		object["required"] = []string{"name"}
		return map[string]any{"type": "array", "items": object}
	case len(required) == 0: // of an item
		delete(object, "required")
	}
	return object
}

// hasDefault returns whether values.yaml has a node.
func (n *node) hasDefault() bool {
	if n.value != nil {
		return n.fallback != nil
	}
	return n.items || slices.ContainsFunc(n.order, func(key string) bool { return n.below[key].hasDefault() })
}

func (v *value) schema() map[string]any {
	s := map[string]any{"description": v.doc, "type": string(v.shape)}
	switch v.shape {
	case many:
		s["type"] = []string{"object", "array"}
	case amount:
		s["type"] = []string{"string", "number"}
	case integer:
		s["minimum"] = 0
	}
	if len(v.choices) > 0 {
		s["enum"] = v.choices
	}
	if v.pattern != "" {
		s["pattern"] = v.pattern
	}
	return s
}

// yaml returns the defaults below a node, with comments.
func (n *node) yaml(indent string) []byte {
	var out bytes.Buffer
	for _, key := range n.order {
		below := n.below[key]
		switch {
		case below.advice != "":
		case below.value != nil:
			for line := range strings.SplitSeq(wrap(below.doc, 100-len(indent)), "\n") {
				fmt.Fprintf(&out, "%s# %s\n", indent, line)
			}
			text, err := yaml.Marshal(map[string]any{key: below.fallback})
			if err != nil {
				panic(err)
			}
			for line := range strings.Lines(string(text)) {
				out.WriteString(indent + line)
			}
		case below.items:
			fmt.Fprintf(&out, "%s%s: []\n", indent, key)
		default:
			fmt.Fprintf(&out, "%s%s:\n%s", indent, key, below.yaml(indent+"  "))
		}
	}
	return out.Bytes()
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// TestDocumentationIsCurrent: the tables of the documentation are those of the values and of the roles.
func TestDocumentationIsCurrent(t *testing.T) {
	const page = "../../../docs/kubernetes.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- The table is generated from deploy/chart/templates/roles.yaml. -->\n\n", "\n\n### "
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table of permissions", page)
	}
	for path, want := range map[string]string{
		page:                                 before + begin + strings.TrimSpace(permissionTable(t)) + end + after,
		"../../../docs/kubernetes-values.md": valuesPage(),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not current (%v): go generate ./internal/kube/install", path, err)
		}
	}
}

// permission is a rule of a role, and its reason.
type permission struct {
	APIGroups, Resources, ResourceNames, Verbs []string
}

// permissionTable returns the rules of both modes.
func permissionTable(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("| objects | verbs | where | reason |\n|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, mode := range []string{"zone", "global"} {
		text, err := Render(Options{Namespace: SystemNamespace,
			Values: map[string]any{"controlPlane": map[string]any{"mode": mode}}})
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role struct{ Kind string }
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			where := map[string]string{"ClusterRole": "the cluster", "Role": "the system namespace"}[role.Kind]
			if where == "" {
				continue
			}
			_, rules, _ := strings.Cut(document, "\nrules:\n# ")
			for rule := range strings.SplitSeq(rules, "\n# ") {
				reason, doc, _ := strings.Cut(rule, "\n")
				var of []permission
				if err := yaml.Unmarshal([]byte(doc), &of); err != nil {
					t.Fatalf("%v:\n%s", err, doc)
				}
				for _, p := range of {
					row := fmt.Sprintf("| %s | %s | %s | %s |\n", p.objects(), strings.Join(p.Verbs, ", "), where,
						reason)
					if !seen[row] {
						out.WriteString(row)
					}
					seen[row] = true
				}
			}
		}
	}
	return out.String()
}

func (p *permission) objects() string {
	var names []string
	for _, r := range p.Resources {
		names = append(names, "`"+strings.TrimSuffix(r+"."+p.APIGroups[0], ".")+"`")
	}
	text := strings.Join(names, ", ")
	if len(p.ResourceNames) > 0 {
		text += " `" + strings.Join(p.ResourceNames, "`, `") + "`"
	}
	return text
}

// valuesPage returns the page of the values.
func valuesPage() string {
	var out strings.Builder
	out.WriteString(`# Values of the chart

The chart is in ` + "`deploy/chart`" + `. ` + "`weft install control-plane`" + ` prints the objects of the same values:
` + "`--set NAME=VALUE`" + ` and ` + "`--values FILE`" + ` are those of helm. Names are those of Kuma's chart where the meaning is the
same. An unknown value is an error, and so is a value of Kuma without meaning. This page is generated.

| value | default | setting | meaning |
|---|---|---|---|
`)
	for _, v := range values {
		fallback, setting := "", ""
		if v.fallback != nil {
			encoded, err := json.Marshal(v.fallback)
			if err != nil {
				panic(err)
			}
			fallback = "`" + string(encoded) + "`"
		}
		if v.setting != "" {
			setting = "`" + v.setting + "`"
		}
		doc := v.doc
		if len(v.choices) > 0 {
			doc += " One of `" + strings.Join(v.choices, "`, `") + "`."
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", v.path, fallback, setting, doc)
	}
	out.WriteString("\n## Values of Kuma without meaning\n\n| value | instead |\n|---|---|\n")
	for _, r := range rejected {
		fmt.Fprintf(&out, "| `%s` | %s |\n", r.path, r.advice)
	}
	return out.String()
}
