package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

func TestMeshProxyPatch(t *testing.T) {
	o := accepts(t, `{type: MeshProxyPatch, mesh: m, name: p, spec: {default: {appendModifications: [`+
		`{cluster: {operation: Add, value: "name: x"}}, {listener: {operation: Remove, match: {tags: {a: b}}}}, `+
		`{networkFilter: {operation: AddBefore, match: {name: x, listenerTags: {a: b}}, value: "name: y"}}, `+
		`{httpFilter: {operation: Patch, match: {name: x, origin: inbound}, jsonPatches: [{op: replace, path: /a, value: `+
		`{b: [1, null]}}, {op: remove, path: /c}, {op: move, from: /d, path: /e}]}}, `+
		`{virtualHost: {operation: Add, match: {routeConfigurationName: r}, value: "name: v"}}]}}}`)
	modifications := resource.SpecOf(o).(*kind.MeshProxyPatch).Default.AppendModifications
	if value := modifications[3].HTTPFilter.JSONPatches[0].Value.String(); value != `{"b":[1,null]}` {
		t.Errorf("a value of a JSON patch is %s", value)
	}
	for i, want := range []bool{false, true, true, false, true} {
		if got := modifications[i].One().OfGroup(); got != want {
			t.Errorf("modification %d concerns shared resources: %v", i, got)
		}
	}
}

func TestMeshProxyPatchRejects(t *testing.T) {
	rejects(t, `{type: MeshProxyPatch, mesh: m, name: p, spec: {default: {appendModifications: [%s]}}}`, []rejected{
		{"nothing", ``, []string{"spec.default.appendModifications: is required"}},
		{"no object", `{}`, []string{"spec.default.appendModifications[0]: has 0 objects"}},
		{"two objects", `{cluster: {operation: Remove}, listener: {operation: Remove}}`, []string{
			"spec.default.appendModifications[0]: has 2 objects"}},
		{"operations", `{cluster: {operation: AddFirst}}, {httpFilter: {operation: Add}}`, []string{
			`spec.default.appendModifications[0].cluster.operation: is "AddFirst", want one of Add, Remove, Patch`,
			`spec.default.appendModifications[1].httpFilter.operation: is "Add"`}},
		{"an origin", `{cluster: {operation: Remove, match: {origin: gateway}}}`, []string{
			`spec.default.appendModifications[0].cluster.match.origin: is "gateway", want one of inbound, outbound`}},
		{"tags", `{listener: {operation: Remove, match: {tags: {a: "b c"}}}}, ` +
			`{httpFilter: {operation: Remove, match: {listenerTags: {"a b": c}}}}`, []string{
			`spec.default.appendModifications[0].listener.match.tags[a]: "b c" is not a tag's value`,
			`spec.default.appendModifications[1].httpFilter.match.listenerTags[a b]: is not a tag's name`}},
		{"a filter after the router",
			`{httpFilter: {operation: AddAfter, match: {name: envoy.filters.http.router}, value: a}}`, []string{
				"spec.default.appendModifications[0].httpFilter.operation: no filter follows the router"}},
		{"a match of Add", `{cluster: {operation: Add, match: {name: x}, value: a}}, ` +
			`{virtualHost: {operation: Add, match: {name: x}, value: a}}`, []string{
			"spec.default.appendModifications[0].cluster.match: has no meaning for Add",
			"spec.default.appendModifications[1].virtualHost.match.name: has no meaning for Add"}},
		{"names that are required", `{httpFilter: {operation: AddAfter, value: a}}, {networkFilter: {operation: Patch, ` +
			`value: a}}`, []string{"spec.default.appendModifications[0].httpFilter.match.name: is required for AddAfter",
			"spec.default.appendModifications[1].networkFilter.match.name: is required for Patch"}},
		{"values", `{cluster: {operation: Remove, value: a}}, {cluster: {operation: Patch}}, {cluster: {operation: Patch, ` +
			`value: a, jsonPatches: [{op: remove, path: /a}]}}, {cluster: {operation: Add}}, {httpFilter: {operation: ` +
			`AddFirst, jsonPatches: [{op: remove, path: /a}]}}`, []string{
			"spec.default.appendModifications[0].cluster: has no value and no jsonPatches for Remove",
			"spec.default.appendModifications[1].cluster: needs exactly one of value and jsonPatches",
			"spec.default.appendModifications[2].cluster: needs exactly one of value and jsonPatches",
			"spec.default.appendModifications[3].cluster.value: is required for Add",
			"spec.default.appendModifications[4].httpFilter.jsonPatches: has no meaning for AddFirst"}},
		{"JSON patches", `{cluster: {operation: Patch, jsonPatches: [{op: test, path: /a}, {op: add, path: a, value: 1}, ` +
			`{op: copy, path: /a}, {op: remove, path: /a, from: /b, value: 1}, {op: replace, path: /a}]}}`, []string{
			`spec.default.appendModifications[0].cluster.jsonPatches[0].op: is "test"`,
			`spec.default.appendModifications[0].cluster.jsonPatches[1].path: "a" is not a JSON pointer`,
			`spec.default.appendModifications[0].cluster.jsonPatches[2].from: "" is not a JSON pointer`,
			"spec.default.appendModifications[0].cluster.jsonPatches[3].from: has no meaning for remove",
			"spec.default.appendModifications[0].cluster.jsonPatches[3].value: has no meaning for remove",
			"spec.default.appendModifications[0].cluster.jsonPatches[4].value: is required for replace"}},
		{"large values", strings.Repeat(`{cluster: {operation: Patch, value: "`+strings.Repeat("a", 60000)+`"}}, `, 5),
			[]string{"spec.default.appendModifications: have values of 300000 bytes, at most 262144 are allowed"}},
	})
}
