package kind_test

import (
	"testing"

	"weft/kind"
)

func TestMeshRateLimitRejects(t *testing.T) {
	rejects(t, `{type: MeshRateLimit, mesh: m, name: r, spec: %s}`, []rejected{
		{"empty confs", `{rules: [{default: {}}, {default: {local: {}}}, {default: {local: {http: {}, tcp: {}}}},
			{default: {local: {http: {requestRate: {}, onRateLimit: {}}, tcp: {connectionRate: {}}}}},
			{default: {local: {http: {onRateLimit: {headers: {}}}}}}]}`, []string{
			"spec.rules[0].default.local: is required",
			"spec.rules[1].default.local: has no field; want http or tcp",
			"spec.rules[2].default.local.http: has no field; want one of disabled, requestRate, onRateLimit",
			"spec.rules[2].default.local.tcp: has no field; want disabled or connectionRate",
			"spec.rules[3].default.local.http.requestRate.num: is required",
			"spec.rules[3].default.local.http.requestRate.interval: is required",
			"spec.rules[3].default.local.http.onRateLimit: has no field; want status or headers",
			"spec.rules[3].default.local.tcp.connectionRate.num: is required",
			"spec.rules[3].default.local.tcp.connectionRate.interval: is required",
			"spec.rules[4].default.local.http.onRateLimit.headers: has no field; want set or add"}},
		{"rates", `{rules: [{default: {local: {http: {requestRate: {num: 0, interval: 49ms}},
			tcp: {connectionRate: {num: 0, interval: 11y}}}}}]}`, []string{
			"spec.rules[0].default.local.http.requestRate.num: is 0, want at least 1; to reject all of them, use a " +
				"MeshTrafficPermission",
			"spec.rules[0].default.local.http.requestRate.interval: is 49ms, want 50ms to 10y",
			"spec.rules[0].default.local.tcp.connectionRate.num: is 0, want at least 1",
			"spec.rules[0].default.local.tcp.connectionRate.interval: is 96360h0m0s, want 50ms to 10y"}},
		{"responses", `{rules: [{default: {local: {http: {onRateLimit: {status: 418, headers: {set: [{name: host,
			value: a}, {name: x-a, value: a}, {name: X-A, value: b}], add: [{name: x-envoy-a, value: "%BAD%"}]}}}}}}]}`,
			[]string{
				"spec.rules[0].default.local.http.onRateLimit.status: is 418, which Envoy does not know; want 429",
				`spec.rules[0].default.local.http.onRateLimit.headers.set[0].name: "host" is a part of`,
				`spec.rules[0].default.local.http.onRateLimit.headers.set[2].name: "X-A" has two values`,
				`spec.rules[0].default.local.http.onRateLimit.headers.add[0].name: "x-envoy-a" is between`,
				`spec.rules[0].default.local.http.onRateLimit.headers.add[0].value: "%BAD%" is not an operator`}},
		{"connections by caller", `{rules: [{matches: [{spiffeID: {type: Prefix, value: "spiffe://m/"}}],
			default: {local: {tcp: {disabled: true}}}}]}`, []string{
			"spec.rules[0].default.local.tcp: is not about single requests, so it can't differ by caller"}},
		{"a match", `{rules: [{matches: [{}], default: {local: {tcp: {disabled: true}}}}]}`, []string{
			"spec.rules[0].matches[0]: has no field; want spiffeID, sni or both"}},
		{"to", `{to: [{targetRef: {kind: Mesh}, default: {local: {http: {disabled: true}}}}]}`, []string{
			"spec.to: has an effect at gateways only, and there are none; use `rules`, in a policy that targets the"}},
		{"from some callers", `{from: [{targetRef: {kind: MeshSubset}, default: {local: {http: {disabled: true}}}}]}`,
			[]string{`spec.from[0].targetRef.kind: is "MeshSubset", and only Mesh is served`}},
	})
}

// TestFromOfAMeshRateLimit: the older form of rules without matches is stored as rules, with a warning.
func TestFromOfAMeshRateLimit(t *testing.T) {
	n, second := uint32(5), kind.Duration(1e9)
	conf := kind.RateLimitConf{Local: &kind.LocalRateLimit{HTTP: &kind.HTTPRateLimit{
		RequestRate: &kind.Rate{Num: &n, Interval: &second}}}}
	o := kind.MeshRateLimits.Make("m", "r", kind.MeshRateLimit{From: []kind.FromItem[kind.RateLimitConf]{
		{TargetRef: kind.FromRef{Kind: "Mesh"}, Default: conf}}})
	if len(kind.MeshRateLimits.Deprecations(o)) != 1 {
		t.Error("there is no warning")
	}
	if problems := kind.MeshRateLimits.Prepare(o); len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(o.Spec.From) > 0 || len(o.Spec.Rules) != 1 || *o.Spec.Rules[0].Default.Requests().Rate().Num != n {
		t.Errorf("it is stored as %+v", o.Spec)
	}
}
