package schema

import (
	"fmt"
	"strings"

	"weft/kind"
	"weft/resource"
)

// BoundsTables returns the tables of docs/operations/bounds.md that the kinds determine, in Markdown: the bounds of
// every document, and the bounds of each field that users write.
func BoundsTables() string {
	var b strings.Builder
	b.WriteString("| bound | at most |\n|---|---|\n")
	for _, row := range []struct {
		what string
		most int
	}{
		{"bytes of a document, unless its kind says otherwise", resource.MaxBytes},
		{"fields and list items of a document, with what the aliases of YAML stand for", resource.MaxElements},
		{"depth of lists and mappings", resource.MaxDepth},
		{"labels of a resource, those of the control plane included; labels of a selector; tags of an inbound",
			resource.MaxLabels},
		{"problems that an error lists", resource.MaxProblems},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", row.what, row.most)
	}
	b.WriteString("\n| kind | bytes | fields |\n|---|---|---|\n")
	for _, d := range kind.Written() {
		info := d.Describe()
		var fields []string
		for _, f := range Fields(d) {
			if (f.Type == "list" || f.Type == "mapping" || f.Type == "base64") && f.Bound != "" &&
				!strings.HasPrefix(f.Path, "status.") {
				fields = append(fields, fmt.Sprintf("`%s` %s", f.Path, f.Bound))
			}
		}
		fmt.Fprintf(&b, "| [%s](../kinds/%s.md) | %d | %s |\n", info.Name, strings.ToLower(info.Name), info.Bytes(),
			strings.Join(fields, "; "))
	}
	return b.String()
}
