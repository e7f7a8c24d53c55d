package kind_test

import (
	"encoding/json"
	"testing"

	"weft/kind"
)

func TestMeshCircuitBreakerRejects(t *testing.T) {
	rejects(t, `{type: MeshCircuitBreaker, mesh: m, name: b, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec: has neither to nor rules: at least one item is required"}},
		{"rules", `{rules: [{default: {}}, {default: {connectionLimits: {maxRequests: 0}, outlierDetection: {}}}]}`,
			[]string{"spec.rules[0].default: has no field; want connectionLimits or outlierDetection",
				"spec.rules[1].default.connectionLimits.maxRequests: is 0, want at least 1",
				"spec.rules[1].default.outlierDetection.detectors: is required: one of totalFailures"}},
		{"from of some callers", `{from: [{targetRef: {kind: MeshSubset}, default: {connectionLimits: ` +
			`{maxRequests: 1}}}]}`, []string{`spec.from[0].targetRef.kind: is "MeshSubset", and only Mesh is served`}},
		{"from beside rules", `{from: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxRequests: 1}}}], ` +
			`rules: [{default: {connectionLimits: {maxRequests: 1}}}]}`,
			[]string{"spec.from: is the older form of rules, which are there too"}},
		{"empty confs", `{to: [{targetRef: {kind: Mesh}, default: {}}, {targetRef: {kind: Mesh}, default: ` +
			`{outlierDetection: {}}}]}`, []string{
			"spec.to[0].default: has no field; want connectionLimits or outlierDetection",
			"spec.to[1].default.outlierDetection.detectors: is required: one of totalFailures"}},
		{"no detector", `{to: [{targetRef: {kind: Mesh}, default: {outlierDetection: {disabled: false, ` +
			`detectors: {}}}}]}`,
			[]string{"spec.to[0].default.outlierDetection.detectors: is required"}},
		{"limits of zero", `{to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 0, ` +
			`maxConnectionPools: 0, maxPendingRequests: 0, maxRetries: 0, maxRequests: 0}}}]}`, []string{
			"spec.to[0].default.connectionLimits.maxConnections: is 0, want at least 1; leave it out for the default",
			"spec.to[0].default.connectionLimits.maxConnectionPools: is 0",
			"spec.to[0].default.connectionLimits.maxPendingRequests: is 0",
			"spec.to[0].default.connectionLimits.maxRetries: is 0",
			"spec.to[0].default.connectionLimits.maxRequests: is 0"}},
		{"values of an ejection", `{to: [{targetRef: {kind: Mesh}, default: {outlierDetection: {disabled: true, ` +
			`interval: 0s, baseEjectionTime: 1us, maxEjectionPercent: 101, healthyPanicThreshold: 100.5}}}]}`, []string{
			"spec.to[0].default.outlierDetection.interval: is 0s, want 1ms to 10y",
			"spec.to[0].default.outlierDetection.baseEjectionTime: is 1µs",
			"spec.to[0].default.outlierDetection.maxEjectionPercent: is 101, want 0 to 100",
			"spec.to[0].default.outlierDetection.healthyPanicThreshold: is 100.5, want 0 to 100"}},
		{"values of detectors", `{to: [{targetRef: {kind: Mesh}, default: {outlierDetection: {detectors: {` +
			`totalFailures: {consecutive: 0}, gatewayFailures: {consecutive: 0}, ` +
			`localOriginFailures: {consecutive: 0}, ` +
			`successRate: {minimumHosts: 0, requestVolume: 0, standardDeviationFactor: "0.0001"}, ` +
			`failurePercentage: {minimumHosts: 0, requestVolume: 0, threshold: 101}}}}}]}`, []string{
			"spec.to[0].default.outlierDetection.detectors.totalFailures.consecutive: is 0, want at least 1",
			"spec.to[0].default.outlierDetection.detectors.gatewayFailures.consecutive: is 0",
			"spec.to[0].default.outlierDetection.detectors.localOriginFailures.consecutive: is 0",
			"spec.to[0].default.outlierDetection.detectors.successRate.minimumHosts: is 0",
			"spec.to[0].default.outlierDetection.detectors.successRate.requestVolume: is 0",
			"spec.to[0].default.outlierDetection.detectors.successRate.standardDeviationFactor: is 0.0001, want " +
				"0.001 to 1000",
			"spec.to[0].default.outlierDetection.detectors.failurePercentage.minimumHosts: is 0",
			"spec.to[0].default.outlierDetection.detectors.failurePercentage.requestVolume: is 0",
			"spec.to[0].default.outlierDetection.detectors.failurePercentage.threshold: is 101"}},
	})
}

// TestDecimals: a decimal is a number or its text, and is written so that clients which know whole numbers and texts
// read it.
func TestDecimals(t *testing.T) {
	for in, want := range map[string]string{`50`: `50`, `"50"`: `50`, `1.9`: `"1.9"`, `"1.9"`: `"1.9"`, `"0.0"`: `0`,
		`-1`: `-1`} {
		var d kind.Decimal
		if err := json.Unmarshal([]byte(in), &d); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if out, err := json.Marshal(d); err != nil || string(out) != want {
			t.Errorf("%s is written as %s (%v), want %s", in, out, err, want)
		}
	}
	for _, in := range []string{`""`, `"many"`, `1e3`, `"1e3"`, `"NaN"`, `"Inf"`, `"0x10"`, `true`, `"1_000"`} {
		if err := json.Unmarshal([]byte(in), new(kind.Decimal)); err == nil {
			t.Errorf("%s is taken for a number", in)
		}
	}
}
