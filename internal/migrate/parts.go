package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weft/kind"
)

// fault is a field that weft cannot have.
type fault struct{ field, reason, advice string }

// partsOf are the parts of a resource that can be left out while the others keep their meaning, from the smallest to
// the largest, as fields with [] for the items of a list. No part of a permission that denies is among them, and no
// part whose absence selects more.
func partsOf(of string) []string {
	switch of {
	case kind.Dataplanes.Name:
		return []string{"networking.outbound[]", "networking.transparentProxying.reachableBackends.refs[]",
			"networking.inbound[].serviceProbe"}
	case kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name:
		return []string{"spec.to[].rules[]", "spec.to[]"}
	case kind.MeshTrafficPermissions.Name:
		return []string{"spec.rules[].default.allow[]", "spec.rules[].default.allowWithShadowDeny[]"}
	case kind.MeshPassthroughs.Name:
		return []string{"spec.default.appendMatch[]"}
	case kind.MeshProxyPatches.Name:
		return []string{"spec.default.appendModifications[]"}
	case kind.HostnameGenerators.Name:
		return []string{"spec.extension"}
	case kind.MeshExternalServices.Name:
		return []string{"spec.endpoints[]"}
	}
	if _, policy := kind.ByName(of).(kind.Policy); policy {
		return []string{"spec.to[]", "spec.from[]", "spec.rules[]"}
	}
	return nil
}

// mayBeEmpty are the lists of which every item may be left out.
var mayBeEmpty = []string{"networking.outbound", "networking.transparentProxying.reachableBackends.refs"}

// leaveOut removes the smallest part with each fault, with a note for each. Where a fault is in no such part, or where
// a list would be left without items, the whole object is left out. It returns whether the object is left.
func (t *translation) leaveOut(o *object, faults []fault) bool {
	if len(faults) == 0 {
		return true
	}
	removed := map[string]fault{}
	whole := false
	for _, f := range faults {
		part := smallest(o.kind, f.field)
		if part == "" {
			o.omit(f.field, f.reason, withWhole(f.advice))
			whole = true
			continue
		}
		if _, known := removed[part]; !known {
			removed[part] = f
			o.omit(f.field, f.reason, f.advice)
		}
	}
	if whole {
		o.dropped = true
		return false
	}
	for _, part := range slices.Backward(sortedParts(removed)) {
		if !o.remove(part) {
			o.omit("", "nothing is left of it without "+part, removed[part].advice)
			return false
		}
	}
	return true
}

func withWhole(advice string) string {
	if advice == "" {
		return "the whole object is left out"
	}
	return advice + "; the whole object is left out"
}

// sortedParts are the fields in the order of their lists, by the numbers of the items.
func sortedParts(parts map[string]fault) []string {
	return slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		x, y := steps(a), steps(b)
		for i := range min(len(x), len(y)) {
			n, err := strconv.Atoi(x[i])
			m, other := strconv.Atoi(y[i])
			switch {
			case err == nil && other == nil && n != m:
				return n - m
			case x[i] != y[i]:
				return strings.Compare(x[i], y[i])
			}
		}
		return len(x) - len(y)
	})
}

// steps are the names and numbers of a path: "spec.to[2].rules" is spec, to, 2, rules.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// smallest returns the smallest part of an object of a kind that contains a field, with its numbers; empty: none.
func smallest(of, field string) string {
	for _, part := range partsOf(of) {
		want, has := strings.Split(part, "."), strings.Split(field, ".")
		if len(has) < len(want) {
			continue
		}
		same := true
		for i, step := range want {
			name, isItem := strings.CutSuffix(step, "[]")
			is, number, found := strings.Cut(has[i], "[")
			same = same && is == name && found == isItem && (!isItem || strings.HasSuffix(number, "]"))
		}
		if same {
			return strings.Join(has[:len(want)], ".")
		}
	}
	return ""
}

// remove deletes a part of the object. It returns false where that leaves a list empty that needs an item.
func (o *object) remove(part string) bool {
	var at any = o.fields
	path := steps(part)
	parent, name := map[string]any(nil), ""
	if o.specField() == "" {
		at = o.spec()
	}
	for i, step := range path {
		last := i == len(path)-1
		switch value := at.(type) {
		case map[string]any:
			if last {
				delete(value, step)
				return true
			}
			parent, name, at = value, step, value[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(value) {
				return true
			}
			if !last {
				at = value[n]
				continue
			}
			left := slices.Delete(slices.Clone(value), n, n+1)
			parent[name] = left
			return len(left) > 0 || slices.Contains(mayBeEmpty, part[:strings.LastIndexByte(part, '[')])
		}
	}
	return true
}

// accepted removes from an object what weft rejects, part by part. It returns false where the object is left out.
func (t *translation) accepted(o *object, faults []fault) bool {
	for i := range faults {
		if faults[i].advice == "" {
			faults[i].advice = fmt.Sprintf("write it as docs/kinds/%s.md describes", strings.ToLower(o.kind))
		}
	}
	return t.leaveOut(o, faults)
}
