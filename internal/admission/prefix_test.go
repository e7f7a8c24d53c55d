package admission_test

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/admission"
	"weft/kind"
)

// A policy of an earlier release keeps the meaning of its prefixes until a user changes it, and the change says so.
func TestPrefixesOfAnEarlierRelease(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east"})
	for _, match := range []string{
		`{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{default: {deny: [{spiffeID: {type: Prefix, ` +
			`value: "spiffe://m/web"}}], allow: [{spiffeID: {type: Exact, value: "spiffe://m/NAME"}}]}}]}}`,
		`{type: MeshRateLimit, mesh: m, name: p, spec: {rules: [{matches: [{spiffeID: {type: Prefix, value: ` +
			`"spiffe://m/web"}}], default: {local: {http: {requestRate: {num: 1, interval: 1s}}}}}, {default: {local: ` +
			`{http: {onRateLimit: {headers: {set: [{name: a, value: NAME}]}}}}}}]}}`,
	} {
		policy := func(name string, change admission.Change) (open int, said bool) {
			t.Helper()
			o := parse(t, strings.ReplaceAll(match, "NAME", name))
			if change.ControlPlane { // it completes no labels, which a user's write does
				o = put(t, w, strings.ReplaceAll(match, "NAME", name)).Object
			}
			result, err := w.Put(t.Context(), o, change)
			if err != nil {
				t.Fatal(err)
			}
			return len(kind.OpenPrefixes(result.Object)), slices.ContainsFunc(result.Warnings, func(text string) bool {
				return strings.Contains(text, `"spiffe://m/web" matches whole segments from now on`)
			})
		}
		for _, step := range []struct {
			what, name string
			change     admission.Change
			open       int
			said       bool
		}{
			{"a row of an earlier release", "one", admission.Change{ControlPlane: true}, 1, false},
			{"the same document", "one", admission.Change{}, 1, false},
			{"a change of a user", "two", admission.Change{}, 0, true},
			{"a further change", "three", admission.Change{}, 0, false},
		} {
			if open, said := policy(step.name, step.change); open != step.open || said != step.said {
				t.Errorf("%s: %d prefixes match within a segment, want %d; the write says so: %t", step.what, open,
					step.open, said)
			}
		}
	}
}

// A prefix that looks as if it should match within a segment gets a warning.
func TestPrefixesThatEndWithinASegment(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east"})
	for value, warns := range map[string]bool{"spiffe://m/web-": true, "spiffe://m/ns.": true, "spiffe://m/web": false,
		"spiffe://m/ns/": false, "spiffe://m": false} {
		result, err := w.Put(t.Context(), parse(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: `+
			`[{default: {deny: [{spiffeID: {type: Prefix, value: "`+value+`"}}]}}]}}`), admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		want := `spec.rules[0].default.deny[0].spiffeID.value: "` + value + `" matches whole segments: itself, and what ` +
			`begins with "` + value + `/", not "` + value + `x"; write an entry for each caller`
		if slices.Contains(result.Warnings, want) != warns {
			t.Errorf("%s: the warnings are %q", value, result.Warnings)
		}
	}
}
