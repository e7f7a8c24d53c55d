package kind_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/kind"
)

func TestMeshHTTPRouteRejects(t *testing.T) {
	rejects(t, `{type: MeshHTTPRoute, mesh: m, name: r, spec: %s}`, []rejected{
		{"targets", `{targetRef: {kind: Dataplane, sectionName: http}, to: [{targetRef: {kind: Mesh}, rules: []},
			{targetRef: {kind: MeshHTTPRoute, name: a}}]}`, []string{
			"spec.targetRef.sectionName: has no meaning here", `spec.to[0].targetRef.kind: is "Mesh", and a route`,
			"spec.to[0].rules: is required", `spec.to[1].targetRef.kind: is "MeshHTTPRoute", want one of`,
			"spec.to[1].rules: is required"}},
	})
	rejects(t, httpRoute("%s"), []rejected{
		{"nothing", `matches: [], default: {}`, []string{
			"spec.to[0].rules[0].matches: is required"}},
		{"matches", `default: {backendRefs: []}, matches: [{}, {path: {type: Prefix, value: /}}, {path: {type: ` +
			`PathPrefix, value: /a/}}, {path: {type: Exact, value: a}}, {path: {type: Exact, value: "/a?b"}}, {path: ` +
			`{type: RegularExpression, value: "(?!a)"}}, {method: get}, {method: CONNECT}, {headers: [{name: A, value: ` +
			`b}, {name: a}, {type: Present, name: a, value: b}]}, {queryParams: [{type: Exact, name: a, value: b}, ` +
			`{type: Exact, name: a, value: c}, {name: b}, {type: RegularExpression, name: c, value: "["}]}]`, []string{
			`spec.to[0].rules[0].matches[1].path.type: is "Prefix"`,
			`spec.to[0].rules[0].matches[2].path.value: "/a/" ends in /`,
			`spec.to[0].rules[0].matches[3].path.value: "a" is not an absolute path`,
			`spec.to[0].rules[0].matches[4].path.value: "/a?b" has a query`,
			`spec.to[0].rules[0].matches[5].path.value: "(?!a)" is not a regular expression of RE2`,
			`spec.to[0].rules[0].matches[6].method: is "get"`,
			`spec.to[0].rules[0].matches[7].method: is CONNECT`,
			`spec.to[0].rules[0].matches[8].headers[0].name: "A"`,
			"spec.to[0].rules[0].matches[8].headers[1].value: is required",
			"spec.to[0].rules[0].matches[8].headers[2].value: has no meaning",
			"spec.to[0].rules[0].matches[9].queryParams[1].name: is the name of another",
			"spec.to[0].rules[0].matches[9].queryParams[2].type: is required",
			"spec.to[0].rules[0].matches[9].queryParams[2].value: is required",
			`spec.to[0].rules[0].matches[9].queryParams[3].value: "["`}},
		{"the same matches", `matches: [{method: GET}], default: {backendRefs: []}}, {matches: [{method: GET, path: ` +
			`{type: PathPrefix, value: /}}], default: {backendRefs: []}`, []string{
			"spec.to[0].rules[1].matches: are those of spec.to[0].rules[0] too"}},
	})
	rejects(t, httpRoute(`matches: [{path: {type: Exact, value: /a}}], default: {%s}`), []rejected{
		{"backends", `backendRefs: [{name: a}, {kind: MeshService, port: 80}, {kind: MeshService, name: a}, {kind: ` +
			`MeshService, name: a, port: 80, sectionName: http}, {kind: MeshExternalService, name: a, sectionName: a}, ` +
			`{kind: MeshService, name: a, port: 70000}, {kind: MeshService, name: a, port: 1, weight: 4294967295}]`,
			[]string{
				"spec.to[0].rules[0].default.backendRefs[0].kind: is required",
				"spec.to[0].rules[0].default.backendRefs[1].name: is required, or labels",
				"spec.to[0].rules[0].default.backendRefs[2].port: is required, or sectionName",
				"spec.to[0].rules[0].default.backendRefs[3].port: is given beside sectionName",
				"spec.to[0].rules[0].default.backendRefs[4].sectionName: has no meaning",
				"spec.to[0].rules[0].default.backendRefs[5].port: is 70000",
				"spec.to[0].rules[0].default.backendRefs: have weights with the sum 4294967301"}},
		{"filters", `filters: [{}, {type: Mirror}, {type: RequestMirror}, {type: URLRewrite, requestMirror: {backendRef: ` +
			`{kind: MeshExternalService, name: a}}}]`, []string{
			"spec.to[0].rules[0].default.filters[0].type: is required",
			`spec.to[0].rules[0].default.filters[1].type: is "Mirror"`,
			"spec.to[0].rules[0].default.filters[2].requestMirror: is required with the type RequestMirror",
			"spec.to[0].rules[0].default.filters[3].urlRewrite: is required with the type URLRewrite",
			"spec.to[0].rules[0].default.filters[3].requestMirror: is given with the type URLRewrite"}},
		{"headers", `filters: [{type: RequestHeaderModifier, requestHeaderModifier: {}}, {type: ResponseHeaderModifier, ` +
			`responseHeaderModifier: {set: [{name: Host, value: a}, {name: a, value: "%FOO%"}, {name: A, value: "%REQ%"}], ` +
			`add: [{name: b, value: "%START_TIME(%s)%"}, {name: content-length, value: "1"}], remove: [":path", ` +
			`x-envoy-a]}}]`, []string{
			"spec.to[0].rules[0].default.filters[0].requestHeaderModifier: has no field",
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.set[0].name: "host" is a part of`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.set[1].value: "%FOO%" is not an operator`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.set[2].name: "A" has two values`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.set[2].value: "%REQ%" has to name a header`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.add[1].name: "content-length" is set`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.remove[0]: ":path" is a part of`,
			`spec.to[0].rules[0].default.filters[1].responseHeaderModifier.remove[1]: "x-envoy-a" is between`}},
		{"a redirect beside others", `filters: [{type: RequestRedirect, requestRedirect: {statusCode: 304, hostname: ` +
			`10.0.0.1}}, {type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b/}}}], ` +
			`backendRefs: [{kind: MeshExternalService, name: a}]`, []string{
			`spec.to[0].rules[0].default.filters[0].requestRedirect.hostname: "10.0.0.1" is not a host name`,
			"spec.to[0].rules[0].default.filters[0].requestRedirect.statusCode: is 304",
			`spec.to[0].rules[0].default.filters[1].urlRewrite.path.replacePrefixMatch: "/b/" ends in /`,
			"spec.to[0].rules[0].default.filters[1].urlRewrite.path.type: is ReplacePrefixMatch, which replaces",
			"spec.to[0].rules[0].default.filters: has a URLRewrite beside a RequestRedirect",
			"spec.to[0].rules[0].default.backendRefs: has no meaning beside a RequestRedirect"}},
		{"a mirror", `filters: [{type: RequestMirror, requestMirror: {backendRef: {kind: MeshExternalService, name: a, ` +
			`weight: 2}, percentage: 101}}, {type: RequestRedirect, requestRedirect: {}}]`, []string{
			"spec.to[0].rules[0].default.filters[0].requestMirror.backendRef.weight: has no meaning",
			"spec.to[0].rules[0].default.filters[0].requestMirror.percentage: is 101",
			"spec.to[0].rules[0].default.filters[1].requestRedirect: leads to the URL of the request",
			"spec.to[0].rules[0].default.filters: has a RequestMirror beside a RequestRedirect"}},
	})
}

func TestMeshTCPRouteRejects(t *testing.T) {
	rejects(t, `{type: MeshTCPRoute, mesh: m, name: r, spec: {to: [{targetRef: {kind: MeshService, name: a}, rules: %s}]}}`,
		[]rejected{
			{"no rule", `[]`, []string{"spec.to[0].rules: is required: at least one rule"}},
			{"two rules without matches", `[` + toDB("") + `, ` + toDB("matches: [], ") + `]`,
				[]string{"spec.to[0].rules[1].matches: is empty, and so is spec.to[0].rules[0].matches"}},
			{"matches", `[` + toDB(`matches: [{}, {sni: {value: a}}, {sni: {type: Exact}}, {sni: {type: Exact, value: `+
				`"*.a"}}, {sni: {type: Wildcard, value: a.b}}, {sni: {type: Wildcard, value: "*"}}, {sni: {type: Exact, `+
				`value: A.b}}, {sni: {type: Exact, value: 10.0.0.1}}, {sni: {type: Exact, value: a.b}}], `) + `, ` +
				toDB(`matches: [{sni: {type: Exact, value: a.b}}, {sni: {type: Wildcard, value: "*.*.b"}}], `) + `]`,
				[]string{
					"spec.to[0].rules[0].matches[0].sni: is required",
					"spec.to[0].rules[0].matches[1].sni.type: is required",
					"spec.to[0].rules[0].matches[2].sni.value: is required",
					`spec.to[0].rules[0].matches[3].sni.value: "*.a" is not the value of a match of the type Exact`,
					`spec.to[0].rules[0].matches[4].sni.value: "a.b" is not the value of a match of the type Wildcard`,
					"spec.to[0].rules[0].matches[5].sni.value: is *; a rule without matches",
					`spec.to[0].rules[0].matches[6].sni.value: "A.b" is not`,
					`spec.to[0].rules[0].matches[7].sni.value: "10.0.0.1" is not`,
					"spec.to[0].rules[1].matches[0].sni: is that of spec.to[0].rules[0].matches[8].sni too",
					`spec.to[0].rules[1].matches[1].sni.value: "*.*.b" is not`}},
			{"too many matches", `[` + toDB(manySNIs("a", 600)) + `, ` + toDB(manySNIs("b", 425)) + `]`,
				[]string{"spec.to[0].rules: have 1025 matches in total, want at most 1024"}},
			{"no backend", `[{default: {backendRefs: []}}]`,
				[]string{"spec.to[0].rules[0].default.backendRefs: is required"}},
			{"a backend", `[{default: {backendRefs: [{kind: MeshService, name: a}]}}]`,
				[]string{"spec.to[0].rules[0].default.backendRefs[0].port: is required"}},
		})
}

// toDB is a rule of a MeshTCPRoute with matches.
func toDB(matches string) string {
	return `{` + matches + `default: {backendRefs: [{kind: MeshService, name: db, port: 5432}]}}`
}

// manySNIs are matches of some host names below a domain.
func manySNIs(domain string, n int) string {
	var matches []string
	for i := range n {
		matches = append(matches, fmt.Sprintf("{sni: {type: Exact, value: h%d.%s}}", i, domain))
	}
	return "matches: [" + strings.Join(matches, ", ") + "], "
}

// TestOrderOfSNIs: exact names precede wildcards, and longer wildcards precede shorter ones.
func TestOrderOfSNIs(t *testing.T) {
	order := []string{"a.example.com", "z", "*.b.example.com", "*.example.com", "*.example.org", "*.com"}
	shuffled := []string{"*.com", "*.example.org", "z", "*.b.example.com", "*.example.com", "a.example.com"}
	slices.SortFunc(shuffled, kind.CompareSNIs)
	if !slices.Equal(shuffled, order) {
		t.Errorf("the order is %v, want %v", shuffled, order)
	}
}

// TestEqualMatchesHaveOneKey: the order of matches and headers, and values by default, do not count.
func TestEqualMatchesHaveOneKey(t *testing.T) {
	root := &kind.PathMatch{Type: kind.PathPrefix, Value: "/"}
	a, b := kind.HeaderMatch{Name: "a", Value: "1"}, kind.HeaderMatch{Type: kind.HeaderExact, Name: "b", Value: "2"}
	one := kind.MatchesKey([]kind.HTTPMatch{{Headers: []kind.HeaderMatch{a, b}}, {Method: "GET"}})
	same := kind.MatchesKey([]kind.HTTPMatch{{Method: "GET", Path: root}, {Path: root, Headers: []kind.HeaderMatch{b,
		a}},
		{Method: "GET"}})
	if one != same {
		t.Errorf("equal matches have the keys %s and %s", one, same)
	}
	if other := kind.MatchesKey([]kind.HTTPMatch{{Headers: []kind.HeaderMatch{a}}, {Method: "GET"}}); other == one {
		t.Errorf("different matches have the key %s", other)
	}
}

// TestEnvoyFormat: operators stay, and every other percent sign is escaped once.
func TestEnvoyFormat(t *testing.T) {
	for value, want := range map[string]string{
		"a": "a", "100%": "100%%", "100%%": "100%%", "%a%": "%%a%%", "%REQ(x)%-%PROTOCOL%": "%REQ(x)%-%PROTOCOL%",
		"%20a": "%%20a", "%REQ(:authority?host)%": "%REQ(:authority?host)%",
	} {
		if problem := kind.HeaderValueProblem(value); problem != "" {
			t.Errorf("%s: %s", value, problem)
		}
		if got := kind.EnvoyFormat(value); got != want {
			t.Errorf("%s becomes %s, want %s", value, got, want)
		}
	}
	for _, value := range []string{"", "%FILE_CONTENT(/etc/passwd)%", "%ENVIRONMENT(HOME)%", "%REQ()%", "%PROTOCOL:3%",
		"a\nb"} {
		if kind.HeaderValueProblem(value) == "" {
			t.Errorf("%s is accepted", strings.ToValidUTF8(value, ""))
		}
	}
}
