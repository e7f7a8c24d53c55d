package kind_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
)

func TestMeshTimeoutRejects(t *testing.T) {
	rejects(t, `{type: MeshTimeout, mesh: m, name: t, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec: has neither to nor rules"}},
		{"no target", `{to: [{default: {idleTimeout: 1s}}]}`, []string{
			"spec.to[0].targetRef.kind: is required: Mesh, MeshService, MeshMultiZoneService, MeshExternalService"}},
		{"targets", `{targetRef: {kind: Dataplane, namespace: a}, to: [
			{targetRef: {kind: Mesh, name: a}, default: {idleTimeout: 1s}},
			{targetRef: {kind: MeshService}, default: {idleTimeout: 1s}},
			{targetRef: {kind: MeshService, name: A, sectionName: HTTP}, default: {idleTimeout: 1s}},
			{targetRef: {kind: MeshService, name: a, labels: {a: b}}, default: {idleTimeout: 1s}},
			{targetRef: {kind: MeshExternalService, name: a, sectionName: a}, default: {idleTimeout: 1s}},
			{targetRef: {kind: Dataplane, name: a}, default: {idleTimeout: 1s}}]}`, []string{
			"spec.targetRef.namespace: has no meaning",
			"spec.to[0].targetRef: of the kind Mesh has no name",
			"spec.to[1].targetRef.name: is required, or labels",
			`spec.to[2].targetRef.name: "A"`,
			`spec.to[2].targetRef.sectionName: "HTTP"`,
			"spec.to[3].targetRef: has a name and labels",
			"spec.to[4].targetRef.sectionName: has no meaning here: a MeshExternalService has one port",
			`spec.to[5].targetRef.kind: is "Dataplane", want one of Mesh`}},
		{"empty confs", `{to: [{targetRef: {kind: Mesh}, default: {}}, {targetRef: {kind: Mesh}, default: {http: {}}}]}`,
			[]string{"spec.to[0].default: has no field", "spec.to[1].default.http: has no field"}},
		{"durations", `{to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 0s, idleTimeout: -1s, http: {` +
			`requestTimeout: 999us, streamIdleTimeout: -1h, maxStreamDuration: 11y, maxConnectionDuration: 1ns, ` +
			`requestHeadersTimeout: -1ms}}}]}`, []string{
			"spec.to[0].default.connectionTimeout: is 0s, want 1ms to 10y",
			"spec.to[0].default.idleTimeout: is -1s, want 1ms to 10y, or 0s for no limit",
			"spec.to[0].default.http.requestTimeout: is 999µs",
			"spec.to[0].default.http.streamIdleTimeout: is -1h0m0s",
			"spec.to[0].default.http.maxStreamDuration: is 96360h0m0s",
			"spec.to[0].default.http.maxConnectionDuration: is 1ns",
			"spec.to[0].default.http.requestHeadersTimeout: is -1ms"}},
		{"empty rules", `{rules: [{default: {}}, {matches: [{}], default: {idleTimeout: 1ns}}]}`, []string{
			"spec.rules[0].default: has no field",
			"spec.rules[1].matches[0]: has no field; want spiffeID, sni or both",
			"spec.rules[1].default.idleTimeout: is 1ns"}},
		{"matches", `{rules: [{default: {http: {requestTimeout: 1s}}, matches: [
			{spiffeID: {type: Regex, value: "spiffe://a/b"}}, {spiffeID: {type: Exact, value: a}},
			{spiffeID: {type: Prefix, value: "spiffe://a/b,c"}}, {sni: {type: Prefix, value: a.b}},
			{spiffeID: {type: Exact, value: "spiffe://a/b"}, spiffeId: {type: Exact, value: "spiffe://a/b"}}]}]}`, []string{
			`spec.rules[0].matches[0].spiffeID.type: is "Regex"`,
			"spec.rules[0].matches[1].spiffeID.value: \"a\" is not a SPIFFE ID",
			"spec.rules[0].matches[2].spiffeID.value:",
			`spec.rules[0].matches[3].sni.type: is "Prefix"`,
			"spec.rules[0].matches[4].spiffeId: is the older spelling"}},
		{"fields of connections by caller", `{rules: [{matches: [{spiffeID: {type: Exact, value: "spiffe://a/b"}}], ` +
			`default: {connectionTimeout: 1s, idleTimeout: 1s, http: {requestTimeout: 1s, streamIdleTimeout: 1s, ` +
			`maxStreamDuration: 1s, maxConnectionDuration: 1s, requestHeadersTimeout: 1s}}}]}`, []string{
			"spec.rules[0].default.connectionTimeout: is not about single requests",
			"spec.rules[0].default.idleTimeout: is not about single requests",
			"spec.rules[0].default.http.maxStreamDuration: is not about single requests",
			"spec.rules[0].default.http.maxConnectionDuration: is not about single requests",
			"spec.rules[0].default.http.requestHeadersTimeout: is not about single requests"}},
		{"from with a subset", `{from: [{targetRef: {kind: MeshSubset}, default: {idleTimeout: 1s}}]}`, []string{
			`spec.from[0].targetRef.kind: is "MeshSubset", and only Mesh is served`}},
		{"from and rules", `{from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}], rules: [{default: ` +
			`{idleTimeout: 1s}}]}`, []string{"spec.from: is the older form of rules, which are there too"}},
	})
}

// TestFromIsRewritten: items of the older form about the whole mesh become rules, with a warning about the older form.
func TestFromIsRewritten(t *testing.T) {
	second := kind.Duration(time.Second)
	conf := kind.TimeoutConf{IdleTimeout: &second}
	o := kind.MeshTimeouts.Make("m", "t", kind.MeshTimeout{
		To:   []kind.ToItem[kind.TimeoutConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: conf}},
		From: []kind.FromItem[kind.TimeoutConf]{{TargetRef: kind.FromRef{Kind: "Mesh"}, Default: conf}},
	})
	got := kind.MeshTimeouts.Deprecations(o)
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.from: is deprecated") {
		t.Errorf("the warnings are %q", got)
	}
	if problems := kind.MeshTimeouts.Prepare(o); len(problems) > 0 {
		t.Fatal(problems)
	}
	rules := kind.MeshTimeouts.Parts(o).Rules
	if len(o.Spec.From) > 0 || len(rules) != 1 || len(rules[0].Matches) > 0 ||
		*rules[0].Conf.(*kind.TimeoutConf) != conf {
		t.Errorf("from is %v, and the rules are %v", o.Spec.From, rules)
	}
	if got := kind.MeshTimeouts.Deprecations(o); len(got) > 0 {
		t.Errorf("rules give the warnings %q", got)
	}
}

// TestOlderTargets: a target by tags is kept, with a warning about the form that replaces it; proxy types are removed.
func TestOlderTargets(t *testing.T) {
	second := kind.Duration(time.Second)
	to := []kind.ToItem[kind.TimeoutConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"},
		Default: kind.TimeoutConf{IdleTimeout: &second}}}
	for _, c := range []struct {
		target kind.TargetRef
		want   string // of the warnings, joined with "; "
	}{
		{kind.TargetRef{Kind: "MeshSubset", Tags: map[string]string{"version": "v1"}},
			"spec.targetRef.kind: MeshSubset is deprecated"},
		{kind.TargetRef{Kind: "MeshServiceSubset", Name: "web", Tags: map[string]string{"version": "v1"},
			ProxyTypes: []string{"Sidecar"}}, "spec.targetRef.kind: MeshServiceSubset is deprecated; " +
			"spec.targetRef.proxyTypes: is deprecated"},
		{kind.TargetRef{Kind: "Mesh", ProxyTypes: []string{"Gateway", "Sidecar"}},
			"spec.targetRef.proxyTypes: is deprecated"},
		{kind.TargetRef{Kind: "Dataplane"}, ""},
	} {
		o := kind.MeshTimeouts.Make("m", "t", kind.MeshTimeout{TargetRef: &c.target, To: to})
		var got []string
		for _, warning := range kind.MeshTimeouts.Deprecations(o) {
			first, _, _ := strings.Cut(warning, ";")
			first, _, _ = strings.Cut(first, ", and is not")
			got = append(got, first)
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("%v: the warnings are %s, want %s", c.target, got, c.want)
		}
		if problems := kind.MeshTimeouts.Prepare(o); len(problems) > 0 || len(o.Spec.TargetRef.ProxyTypes) > 0 {
			t.Errorf("%v is stored as %v with the problems %v", c.target, o.Spec.TargetRef, problems)
		}
	}
}

// TestMatchesOfRules: the older spelling of spiffeID and a prefix with a final slash are rewritten; the matches of a
// policy are bounded.
func TestMatchesOfRules(t *testing.T) {
	older := kind.RuleMatch{OlderSpiffeID: &kind.IDMatch{Type: "Prefix", Value: "spiffe://a/"}}
	zero := kind.Duration(0)
	rule := kind.RuleItem[kind.TimeoutConf]{Matches: []kind.RuleMatch{older},
		Default: kind.TimeoutConf{HTTP: &kind.HTTPTimeouts{RequestTimeout: &zero}}}
	o := kind.MeshTimeouts.Make("m", "t", kind.MeshTimeout{Rules: []kind.RuleItem[kind.TimeoutConf]{rule}})
	if problems := kind.MeshTimeouts.Prepare(o); len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := o.Spec.Rules[0].Matches[0]; got.OlderSpiffeID != nil || got.SpiffeID.Value != "spiffe://a" {
		t.Errorf("the match is %+v", got)
	}
	rule.Matches = slices.Repeat(rule.Matches, 200)
	o.Spec.Rules = []kind.RuleItem[kind.TimeoutConf]{rule, rule}
	if problems := kind.MeshTimeouts.Prepare(o); len(problems) != 1 ||
		!strings.Contains(problems[0].Reason, "400 matches, at most 256") {
		t.Errorf("the problems are %v", problems)
	}
}
