package kind

import (
	"slices"
	"testing"

	"weft/resource"
)

// TestAStoredRegexStays: a user cannot write an expression that Envoy rejects. One that is stored passes with a
// warning.
func TestAStoredRegexStays(t *testing.T) {
	route := func(paths ...string) resource.Any {
		rule := HTTPRouteRule{}
		for _, path := range paths {
			rule.Matches = append(rule.Matches, HTTPMatch{Path: &PathMatch{Type: PathRegex, Value: path}})
		}
		return MeshHTTPRoutes.Make("default", "r", MeshHTTPRoute{To: []HTTPRouteTo{{Rules: []HTTPRouteRule{rule}}}})
	}
	const bad, other = `/\p{ASCII}+`, `/\x{100}`
	for _, c := range []struct {
		name             string
		before, after    resource.Any
		problem, warning string // fields
	}{
		{"a new policy", nil, route("/a", bad), "spec.to[0].rules[0].matches[1].path.value", ""},
		{"an added value", route("/a"), route("/a", bad), "spec.to[0].rules[0].matches[1].path.value", ""},
		{"a stored value", route(bad), route("/a", bad), "", "spec.to[0].rules[0].matches[1].path.value"},
		{"another value", route(bad), route(other), "spec.to[0].rules[0].matches[0].path.value", ""},
		{"a valid value", route(bad), route(`/[\x00-\x7f]+`), "", ""},
		{"a header", nil, MeshHTTPRoutes.Make("default", "r", MeshHTTPRoute{To: []HTTPRouteTo{{Rules: []HTTPRouteRule{{
			Matches: []HTTPMatch{{Headers: []HeaderMatch{{Type: HeaderRegex, Name: "a", Value: bad}}}}}}}}}),
			"spec.to[0].rules[0].matches[0].headers[0].value", ""},
		{"a query parameter", nil, MeshHTTPRoutes.Make("default", "r", MeshHTTPRoute{To: []HTTPRouteTo{{
			Rules: []HTTPRouteRule{{Matches: []HTTPMatch{{QueryParams: []QueryMatch{{Type: PathRegex, Name: "a",
				Value: bad}}}}}}}}}), "spec.to[0].rules[0].matches[0].queryParams[0].value", ""},
		{"a text", nil, MeshHTTPRoutes.Make("default", "r", MeshHTTPRoute{To: []HTTPRouteTo{{Rules: []HTTPRouteRule{{
			Matches: []HTTPMatch{{Headers: []HeaderMatch{{Name: "a", Value: bad}}}}}}}}}), "", ""},
	} {
		problems, warnings := CheckRegexes(c.before, c.after)
		var fields []string
		for _, p := range problems {
			fields = append(fields, p.Field)
		}
		if c.problem == "" && len(fields) > 0 || c.problem != "" && !slices.Equal(fields, []string{c.problem}) {
			t.Errorf("%s: the problems are %v, want %q", c.name, problems, c.problem)
		}
		if (len(warnings) > 0) != (c.warning != "") {
			t.Errorf("%s: the warnings are %q", c.name, warnings)
		}
	}
}
