package schema

import (
	"fmt"
	"math"
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

// CostsTables returns the tables of the same page with the bounds of what policies cost proxies, in Markdown.
func CostsTables() string {
	var b strings.Builder
	b.WriteString("| kind | field | of all policies | of a producer |\n|---|---|---|---|\n")
	shown := map[string]bool{}
	for _, f := range kind.CostFields() {
		_, below, _ := strings.Cut(f.Path, ".default.")
		name := f.Kind + below
		if shown[name] || strings.HasPrefix(f.Path, "spec.from") {
			continue // the same field of other items
		}
		shown[name] = true
		text := func(n int64) string {
			switch {
			case n == math.MaxInt64:
				return ""
			case f.Bound.Least:
				return "at least " + f.Bound.Text(n)
			}
			return "at most " + f.Bound.Text(n)
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", f.Kind, below, text(f.Bound.Others), text(f.Bound.Producer))
	}
	b.WriteString("\n| kind | a proxy pays at most | of one owner | of a namespace's producers |\n|---|---|---|---|\n")
	for _, of := range kind.Policies() {
		if costs := of.PortCosts(); costs != nil {
			fmt.Fprintf(&b, "| %s | %s | %d | %d |\n", of.Describe().Name, costs.Unit, costs.Most, costs.Producer)
		}
	}
	return b.String()
}
