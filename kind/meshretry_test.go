package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
)

func TestMeshRetryRejects(t *testing.T) {
	rejects(t, `{type: MeshRetry, mesh: m, name: r, spec: %s}`, []rejected{
		{"empty confs", `{to: [{targetRef: {kind: Mesh}, default: {}}, {targetRef: {kind: Mesh}, default: {tcp: {}}},
			{targetRef: {kind: Mesh}, default: {http: {}}}, {targetRef: {kind: Mesh}, default: {grpc: {}}},
			{targetRef: {kind: Mesh}, default: {http: {backOff: {}, rateLimitedBackOff: {}}}}]}`, []string{
			"spec.to[0].default: has no field; want tcp, http or grpc",
			"spec.to[1].default.tcp.maxConnectAttempt: is required",
			"spec.to[2].default.http: has no field", "spec.to[3].default.grpc: has no field",
			"spec.to[4].default.http.backOff: has no field",
			"spec.to[4].default.http.rateLimitedBackOff.resetHeaders: is required"}},
		{"connections of a route", `{to: [
			{targetRef: {kind: MeshHTTPRoute, name: r}, default: {tcp: {maxConnectAttempt: 1}}},
			{targetRef: {kind: MeshTCPRoute, name: r}, default: {http: {numRetries: 1}}}]}`, []string{
			"spec.to[0].default.tcp: is about connections, and a MeshHTTPRoute has requests; leave it out",
			`spec.to[1].targetRef.kind: is "MeshTCPRoute", want one of Mesh`}},
		{"numbers", `{to: [{targetRef: {kind: Mesh}, default: {tcp: {maxConnectAttempt: 0}, http: {numRetries: 1001,
			hostSelectionMaxAttempts: 0, hostSelection: [{predicate: OmitPreviousPriorities, updateFrequency: 1001}]},
			grpc: {numRetries: 4000000000}}}]}`, []string{
			"spec.to[0].default.tcp.maxConnectAttempt: is 0, want at least 1",
			"spec.to[0].default.http.hostSelectionMaxAttempts: is 0, want at least 1",
			"spec.to[0].default.http.hostSelection[0].updateFrequency: is 1001, want 1 to 1000"}},
		{"times", `{to: [{targetRef: {kind: Mesh}, default: {http: {perTryTimeout: 1us, backOff: {baseInterval: 0s,
			maxInterval: 1ns}, rateLimitedBackOff: {resetHeaders: [{name: a, format: Seconds}], maxInterval: 0s}}}},
			{targetRef: {kind: Mesh}, default: {grpc: {backOff: {baseInterval: 2s, maxInterval: 1s}}}}]}`, []string{
			"spec.to[0].default.http.perTryTimeout: is 1µs, want 1ms to 10y, or 0s for no limit",
			"spec.to[0].default.http.backOff.baseInterval: is 0s, want 1ms to 10y",
			"spec.to[0].default.http.backOff.maxInterval: is 1ns, want 1ms to 10y",
			"spec.to[0].default.http.rateLimitedBackOff.maxInterval: is 0s, want 1ms to 10y",
			"spec.to[1].default: grpc.backOff.maxInterval is 1s, which is below the baseInterval of 2s"}},
		{"causes", `{to: [{targetRef: {kind: Mesh}, default: {http: {retryOn: [5XX, "99", "600", "0503", HttpMethodget,
			canceled, ""]}, grpc: {retryOn: [cancelled, "503"]}}}]}`, []string{
			`spec.to[0].default.http.retryOn[0]: is "5XX", want one of 5xx, GatewayError`,
			"spec.to[0].default.http.retryOn[1]: is the status code 99, want 100 to 599",
			"spec.to[0].default.http.retryOn[2]: is the status code 600, want 100 to 599",
			`spec.to[0].default.http.retryOn[3]: is "0503", want one of`,
			`spec.to[0].default.http.retryOn[4]: is "HttpMethodget", want one of`,
			`spec.to[0].default.http.retryOn[5]: is "canceled", want one of`,
			`spec.to[0].default.http.retryOn[6]: is "", want one of`,
			`spec.to[0].default.grpc.retryOn[0]: is "cancelled", want one of Canceled`,
			`spec.to[0].default.grpc.retryOn[1]: is "503", want one of Canceled`}},
		{"headers", `{to: [{targetRef: {kind: Mesh}, default: {http: {
			retriableResponseHeaders: [{name: X-A, value: a}, {name: "", value: a}, {name: a},
			{name: a, type: Regex, value: a}],
			retriableRequestHeaders: [{name: ":path", value: a}, {name: a, type: Present, value: a},
			{name: a, type: RegularExpression, value: "(?=a)"}, {name: a, type: RegularExpression, value: "\\pL{50}"}],
			rateLimitedBackOff: {resetHeaders: [{name: Retry-After, format: Minutes}, {name: a}]}}}}]}`, []string{
			`spec.to[0].default.http.retriableResponseHeaders[0].name: "X-A" is not the name of a header in lower case`,
			"spec.to[0].default.http.retriableResponseHeaders[1].name: is required",
			"spec.to[0].default.http.retriableResponseHeaders[2].value: is required",
			`spec.to[0].default.http.retriableResponseHeaders[3].type: is "Regex", want one of Exact`,
			`spec.to[0].default.http.retriableRequestHeaders[0].name: ":path" is not the name of a header`,
			"spec.to[0].default.http.retriableRequestHeaders[1].value: has no meaning with the type Present",
			`spec.to[0].default.http.retriableRequestHeaders[2].value: "(?=a)" is not a regular expression of RE2`,
			"spec.to[0].default.http.retriableRequestHeaders[3].value: is too large",
			`spec.to[0].default.http.rateLimitedBackOff.resetHeaders[0].name: "Retry-After"`,
			`spec.to[0].default.http.rateLimitedBackOff.resetHeaders[0].format: is "Minutes", want one of Seconds`,
			"spec.to[0].default.http.rateLimitedBackOff.resetHeaders[1].format: is required"}},
		{"endpoints", `{to: [{targetRef: {kind: Mesh}, default: {http: {hostSelection: [{predicate: OmitPreviousHosts,
			updateFrequency: 3}, {predicate: OmitPreviousHosts}]}}}, {targetRef: {kind: Mesh}, default: {http: {
			hostSelection: [{predicate: OmitHostsWithTags}, {predicate: Random}]}}}]}`, []string{
			"spec.to[0].default.http.hostSelection[0].updateFrequency: has no meaning here",
			"spec.to[0].default.http.hostSelection[1].predicate: is OmitPreviousHosts again",
			"spec.to[1].default.http.hostSelection[0].predicate: is OmitHostsWithTags, which is not served",
			`spec.to[1].default.http.hostSelection[1].predicate: is "Random", want one of OmitPreviousHosts`}},
	})
}

// TestRetriesThatContradictEachOther: a policy may set one interval of a wait and leave the other to another policy.
// Only together they may be invalid.
func TestRetriesThatContradictEachOther(t *testing.T) {
	seconds := func(n int) *kind.Duration {
		d := kind.Duration(n) * 1e9
		return &d
	}
	waits := func(base, longest int) kind.RequestRetries {
		b := &kind.BackOff{}
		if base > 0 {
			b.BaseInterval = seconds(base)
		}
		if longest > 0 {
			b.MaxInterval = seconds(longest)
		}
		return kind.RequestRetries{BackOff: b}
	}
	for _, c := range []struct {
		http, grpc kind.RequestRetries
		partial    bool
		conflict   string
	}{
		{},
		{http: waits(1, 1)},
		{http: waits(1, 2), grpc: waits(2, 3)},
		{http: waits(1, 0), partial: true},
		{grpc: waits(0, 1), partial: true},
		{http: waits(3, 2), conflict: "http.backOff.maxInterval is 2s, which is below the baseInterval of 3s"},
		{http: waits(1, 2), grpc: waits(3, 2), conflict: "grpc.backOff.maxInterval is 2s"},
	} {
		conf := &kind.RetryConf{HTTP: &kind.HTTPRetries{RequestRetries: c.http},
			GRPC: &kind.GRPCRetries{RequestRetries: c.grpc}}
		of := kind.MeshRetries.Combination
		if got := of.Partial(conf); got != c.partial {
			t.Errorf("%+v: partial is %v", c, got)
		}
		if got := of.Conflict(conf); !strings.HasPrefix(got, c.conflict) || (got == "") != (c.conflict == "") {
			t.Errorf("%+v: the conflict is %q", c, got)
		}
	}
}

// TestFrequenciesThatClientsFillIn: clients of Kuma write 0 or the default for each predicate of a host selection.
func TestFrequenciesThatClientsFillIn(t *testing.T) {
	for _, test := range []struct {
		predicate string
		sent      int32
		kept      bool
	}{
		{kind.OmitPreviousHosts, 2, false}, {kind.OmitPreviousHosts, 0, false},
		{kind.OmitPreviousPriorities, 0, false}, {kind.OmitPreviousPriorities, 2, true},
	} {
		var spec kind.MeshRetry
		spec.To = make([]kind.ToItem[kind.RetryConf], 1)
		spec.To[0].TargetRef = kind.DestinationRef{Kind: "Mesh"}
		spec.To[0].Default.HTTP = &kind.HTTPRetries{
			HostSelection: []kind.HostSelection{{Predicate: test.predicate, UpdateFrequency: &test.sent}}}
		o := kind.MeshRetries.Make("m", "r", spec)
		if problems := kind.MeshRetries.Prepare(o); len(problems) > 0 {
			t.Errorf("%+v: %v", test, problems)
		}
		if got := o.Spec.To[0].Default.HTTP.HostSelection[0].UpdateFrequency; (got != nil) != test.kept {
			t.Errorf("%+v: the frequency is %v", test, got)
		}
	}
}
