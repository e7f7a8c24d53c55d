package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// KumaFields are the fields of Kuma's kinds, by kind and path, with the releases that have them.
type KumaFields map[string]map[string][]string

// ParseKumaFields reads a list with a line KIND PATH RELEASE... for each field, and comments that begin with #.
func ParseKumaFields(text string) KumaFields {
	fields := KumaFields{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		if fields[words[0]] == nil {
			fields[words[0]] = map[string][]string{}
		}
		fields[words[0]][words[1]] = words[2:]
	}
	return fields
}

// taken returns what becomes of a field of Kuma that is read in another form than it is stored; empty for others.
func taken(kindName, path string) string {
	switch parent, last := cutLast(path); kindName + " " + parent {
	case "MeshLoadBalancingStrategy to[].default.loadBalancer":
		if last == "random" || last == "roundRobin" {
			return "is read and not stored: it has no settings"
		}
	case "MeshTrust ":
		return "is read and not stored: the status has it"
	case "MeshExternalService tls.verification.caCert", "MeshExternalService tls.verification.clientCert",
		"MeshExternalService tls.verification.clientKey":
		if last == "secret" {
			return "is read, and stored as `{type: Secret, secretRef: {kind: Secret, name: NAME}}`"
		} else if strings.HasPrefix(last, "inline") {
			return "is read, and stored as `{type: InsecureInline, insecureInline: {value: PEM}}`"
		}
	}
	return ""
}

// rows are lines of a table with the kinds that share each.
type rows struct {
	lines []string
	kinds map[string][]string // by line
}

func (r *rows) add(kindName, line string) {
	if r.kinds == nil {
		r.kinds = map[string][]string{}
	}
	if r.kinds[line] == nil {
		r.lines = append(r.lines, line)
	}
	r.kinds[line] = append(r.kinds[line], kindName)
}

func (r *rows) String() string {
	var b strings.Builder
	for _, line := range r.lines {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(r.kinds[line], ", "), line)
	}
	return b.String()
}

// KumaTables returns the tables of docs/coming-from-kuma.md, in Markdown: the fields of Kuma that a kind lacks with
// what to do, and the fields that Kuma lacks. The error names each field without a word of what to do.
func KumaTables(fields KumaFields) (string, error) {
	var lacking, own rows
	var silent []string
	for _, d := range kind.Written() {
		info := d.Describe()
		of := fields[info.Name]
		if of == nil {
			continue
		}
		known := map[string]bool{}
		for _, f := range Fields(d) {
			path := strings.TrimPrefix(f.Path, "spec.")
			known[path] = true
			if parent, _ := cutLast(path); of[path] == nil && !f.ReadOnly && !f.Deprecated && !isComputed(info, path) &&
				(parent == "" || of[strings.TrimSuffix(parent, "[]")] != nil) {
				own.add(info.Name, fmt.Sprintf("`%s` | %s", path, f.Meaning))
			}
		}
		for _, path := range slices.Sorted(maps.Keys(of)) {
			parent, last := cutLast(path)
			if known[path] || last == "seconds" || last == "nanos" || isComputed(info, path) ||
				parent != "" && !known[strings.TrimSuffix(parent, "[]")] {
				continue
			}
			reason := replacement(info, path)
			if reason == "" {
				silent = append(silent, info.Name+" "+path)
			}
			lacking.add(info.Name, fmt.Sprintf("`%s` | %s | %s", path, strings.Join(of[path], ", "), reason))
		}
	}
	text := "| kinds | field of Kuma | releases | here |\n|---|---|---|---|\n" + lacking.String() +
		"\n| kinds | field that Kuma lacks | meaning |\n|---|---|---|\n" + own.String()
	if len(silent) > 0 {
		return text, fmt.Errorf("fields of Kuma without a word of what to do: %s", strings.Join(silent, ", "))
	}
	return text, nil
}

// replacement returns why a field is not taken and what replaces it; empty where nothing says so.
func replacement(info *resource.Info, path string) string {
	if reason := taken(info.Name, path); reason != "" {
		return reason
	}
	for at := strings.ReplaceAll(path, "[]", ""); at != ""; at, _ = cutLast(at) {
		if reason := info.Replaced[at]; reason != "" {
			return reason
		}
	}
	return ""
}

// isComputed reports whether a field is one that documents have and no user writes.
func isComputed(info *resource.Info, path string) bool {
	return slices.Contains(info.Computed, path) || strings.HasSuffix(path, ".snis")
}

// cutLast splits a path at its last dot. A path without one has only a last part.
func cutLast(path string) (before, last string) {
	at := strings.LastIndexByte(path, '.')
	return path[:max(at, 0)], path[at+1:]
}
