package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// Page returns the documentation of a kind, in Markdown. The example is empty for a kind that only the control plane
// writes.
func Page(d resource.Descriptor, example string) string {
	info := d.Describe()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", info.Name, strings.ReplaceAll(Description(d), "\n", "\n\n"))
	for _, fact := range facts(info) {
		fmt.Fprintf(&b, "- %s\n", fact)
	}
	if example != "" {
		fmt.Fprintf(&b, "\n## Example\n\n`%s`:\n\n```yaml\n%s```\n", ExampleFile(d), example)
	}
	written, status := split(Fields(d))
	table(&b, "Fields", written)
	table(&b, "Status", status)
	writeLaterFields(&b, info)
	return b.String()
}

// ExampleFile returns the path of a kind's example, relative to the root of the repository.
func ExampleFile(d resource.Descriptor) string {
	return "examples/kinds/" + strings.ToLower(d.Describe().Name) + ".yaml"
}

// Index returns the page that lists the pages of all kinds, in Markdown.
func Index() string {
	var b strings.Builder
	b.WriteString("# Kinds of resources\n\n")
	b.WriteString("These pages, the JSON Schemas (`GET /_schemas`) and the API description (`GET /openapi.json`) " +
		"have the same source.\n" +
		"With the schema of a kind, an editor completes and checks its YAML, in the Universal and in the " +
		"Kubernetes form.\n" +
		"The YAML language server reads the schema from a local control plane if the first line of the file " +
		"is\n\n```yaml\n# yaml-language-server: $schema=http://localhost:5681/_schemas/MeshService\n```\n\n")
	b.WriteString("| kind | scope | description |\n|---|---|---|\n")
	for _, d := range kind.All() {
		if info := d.Describe(); !info.Hidden {
			summary, _, _ := strings.Cut(strings.ReplaceAll(Description(d), "\n", " "), ". ")
			fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s |\n", info.Name, strings.ToLower(info.Name), scope(info),
				about(summary, info.Name, ""))
		}
	}
	b.WriteString("\n## The status of a policy\n\n" +
		"Each policy has the conditions `Accepted` (no proxy rejects its configuration), `ResolvedRefs` (its " +
		"targets, sections and backends\nexist) and `Applied` (it has an effect; else the reason), the number of " +
		"proxies, sections and routes that it configures, and\nwarnings about fields without effect. All but " +
		"`Accepted` are computed when the policy is read. `weft check` lists the policies\nwithout an effect; " +
		"[troubleshooting](../troubleshooting.md#policy-without-effect) has the reasons.\n")
	return b.String()
}

func scope(info *resource.Info) string {
	if info.Scope == resource.Mesh {
		return "mesh"
	}
	return "global"
}

// facts returns sentences about a kind that do not concern one field: scope, API path, size and access.
func facts(info *resource.Info) []string {
	path := "/" + info.Plural + "/{name}"
	if info.Scope == resource.Mesh {
		path = "/meshes/{mesh}" + path
	}
	facts := []string{
		fmt.Sprintf("Its scope is %s, and its API path `%s`.", scope(info), path),
		fmt.Sprintf("A document has %d KiB at most; [bounds](../operations/bounds.md) lists the bounds of every kind.",
			info.Bytes()>>10),
	}
	if info.ReadOnly {
		facts = append(facts, "The control plane writes it; users may read it.")
	} else if info.Flat {
		facts = append(facts, "In the Universal form its fields are beside `type` and `name`; `spec:` is accepted too.")
	}
	if !info.ReadOnly {
		facts = append(facts, writers(info))
	}
	if info.Encrypted {
		facts = append(facts, "It is stored encrypted.")
	}
	return facts
}

// writers returns which users write a kind.
func writers(info *resource.Info) string {
	verbs := "write and delete"
	if info.AdminOnly {
		verbs = "read, write and delete"
	}
	return fmt.Sprintf("Users with the action `%s` %s it ([actions](../operations/users.md#actions)).",
		info.WrittenBy, verbs)
}

func split(fields []Field) (written, status []Field) {
	i := slices.IndexFunc(fields, func(f Field) bool { return strings.HasPrefix(f.Path, "status.") })
	if i < 0 {
		return fields, nil
	}
	return fields[:i], fields[i:]
}

func table(b *strings.Builder, title string, fields []Field) {
	if len(fields) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| field | type | at most | default | meaning |\n|---|---|---|---|---|\n", title)
	for _, f := range fields {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.Path, f.Type, f.Bound, defaultOf(f),
			strings.ReplaceAll(f.meaning(), "|", "\\|"))
	}
}

func defaultOf(f Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default != "":
		return "`" + f.Default + "`"
	}
	return ""
}

// meaning returns the meaning of a field, with a note if the control plane writes it or if it is an older form.
func (f *Field) meaning() string {
	switch {
	case f.Deprecated:
		return f.Meaning + " (older form)"
	case f.ReadOnly && !strings.HasPrefix(f.Path, "status."):
		return f.Meaning + " (set by the control plane)"
	}
	return f.Meaning
}

// writeLaterFields lists fields of other meshes that are rejected, with the reasons.
func writeLaterFields(b *strings.Builder, info *resource.Info) {
	if len(info.Replaced) == 0 {
		return
	}
	prefix := "spec."
	if info.Flat {
		prefix = ""
	}
	b.WriteString("\n## Rejected fields\n\n| field | reason |\n|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(info.Replaced)) {
		fmt.Fprintf(b, "| `%s%s` | %s |\n", prefix, path, info.Replaced[path])
	}
}
