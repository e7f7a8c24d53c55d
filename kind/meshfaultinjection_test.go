package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
)

func TestMeshFaultInjectionRejects(t *testing.T) {
	rejects(t, `{type: MeshFaultInjection, mesh: m, name: f, spec: %s}`, []rejected{
		{"empty confs", `{rules: [{default: {http: [{abort: {}, delay: {}, responseBandwidth: {limit: 1 kbps}}]}}]}`, []string{
			"spec.rules[0].default.http[0].abort.httpStatus: is required",
			"spec.rules[0].default.http[0].abort.percentage: is required",
			"spec.rules[0].default.http[0].delay.value: is required",
			"spec.rules[0].default.http[0].delay.percentage: is required",
			"spec.rules[0].default.http[0].responseBandwidth.percentage: is required"}},
		{"numbers", `{rules: [{default: {http: [{abort: {httpStatus: 199, percentage: "100.5"}}, {abort: {httpStatus: 600,
			percentage: -1}}, {delay: {value: 0s, percentage: "0.00001"}}, {delay: {value: 1us, percentage: 1}}]}}]}`,
			[]string{
				"spec.rules[0].default.http[0].abort.httpStatus: is 199, want 200 to 599",
				"spec.rules[0].default.http[0].abort.percentage: is 100.5, want 0 to 100 with at most 4 decimals",
				"spec.rules[0].default.http[1].abort.httpStatus: is 600, want 200 to 599",
				"spec.rules[0].default.http[1].abort.percentage: is -1, want 0 to 100",
				"spec.rules[0].default.http[2].delay.value: is 0s, want at least 1ms",
				"spec.rules[0].default.http[2].delay.percentage: is 0.00001, want 0 to 100 with at most 4 decimals",
				"spec.rules[0].default.http[3].delay.value: is 1µs, want at least 1ms"}},
		{"a match", `{rules: [{matches: [{}], default: {http: [{abort: {httpStatus: 500, percentage: 1}}]}}]}`, []string{
			"spec.rules[0].matches[0]: has no field; want spiffeID, sni or both"}},
		{"to", `{to: [{targetRef: {kind: Mesh}, default: {http: []}}]}`, []string{
			"spec.to: has an effect at gateways only, and there are none; use `rules`, in a policy that targets the"}},
		{"from some callers", `{from: [{targetRef: {kind: MeshService}, default: {http: []}}]}`, []string{
			`spec.from[0].targetRef.kind: is "MeshService", and only Mesh is served`}},
	})
}

// TestBandwidths: a limit of responses is a whole number with a unit.
func TestBandwidths(t *testing.T) {
	for limit, want := range map[string]uint64{"1 kbps": 1, "50kbps": 50, "2 Mbps": 2000, "1000 Gbps": 1_000_000_000,
		"0 kbps": 0, "kbps": 0, "1  kbps": 0, "-1 kbps": 0, "1.5 Mbps": 0, "1001 Gbps": 0, "5": 0, "1 KBPS": 0, "": 0,
		"99999999999999999999 kbps": 0, "5000000000 kbps": 0} {
		all := kind.Decimal(100)
		b := &kind.FaultBandwidth{Limit: limit, Percentage: &all}
		if got := b.Kbps(); got != want {
			t.Errorf("%q is %d kbps, want %d", limit, got, want)
		}
		o := kind.MeshFaultInjections.Make("m", "f", kind.MeshFaultInjection{Rules: []kind.RuleItem[kind.FaultConf]{
			{Default: kind.FaultConf{HTTP: []kind.HTTPFault{{ResponseBandwidth: b}}}}}})
		problems := kind.MeshFaultInjections.Prepare(o)
		if (len(problems) == 0) != (want > 0) || want == 0 && !strings.HasPrefix(problems[0].Field+": ",
			"spec.rules[0].default.http[0].responseBandwidth.limit: ") {
			t.Errorf("%q is rejected with %v", limit, problems)
		}
	}
}

// TestFromOfAMeshFaultInjection: the older form of rules without matches is stored as rules, with a warning.
func TestFromOfAMeshFaultInjection(t *testing.T) {
	status, all := uint32(500), kind.Decimal(100)
	conf := kind.FaultConf{HTTP: []kind.HTTPFault{{Abort: &kind.FaultAbort{HTTPStatus: &status, Percentage: &all}}}}
	o := kind.MeshFaultInjections.Make("m", "f", kind.MeshFaultInjection{From: []kind.FromItem[kind.FaultConf]{
		{TargetRef: kind.FromRef{Kind: "Mesh"}, Default: conf}}})
	if len(kind.MeshFaultInjections.Deprecations(o)) != 1 {
		t.Error("there is no warning")
	}
	if problems := kind.MeshFaultInjections.Prepare(o); len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(o.Spec.From) > 0 || len(o.Spec.Rules) != 1 || len(o.Spec.Rules[0].Default.HTTP) != 1 {
		t.Errorf("it is stored as %+v", o.Spec)
	}
}
