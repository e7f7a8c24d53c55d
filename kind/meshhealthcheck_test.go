package kind_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

func TestMeshHealthCheckRejects(t *testing.T) {
	rejects(t, `{type: MeshHealthCheck, mesh: m, name: h, spec: %s}`, []rejected{
		{"no checker", `{to: [{targetRef: {kind: Mesh}, default: {}}, {targetRef: {kind: Mesh}, default: ` +
			`{interval: 1s}}]}`, []string{
			"spec.to[0].default: has no checker; want tcp, http or grpc",
			"spec.to[1].default: has no checker"}},
		{"a route", `{to: [{targetRef: {kind: MeshHTTPRoute, name: a}, default: {tcp: {}}}]}`, []string{
			"spec.to[0].targetRef.kind: is \"MeshHTTPRoute\""}},
		{"times of zero", `{to: [{targetRef: {kind: Mesh}, default: {tcp: {}, interval: 0s, timeout: 0s, ` +
			`initialJitter: 1us, intervalJitter: 0s, noTrafficInterval: 0s}}]}`, []string{
			"spec.to[0].default.interval: is 0s, want 1ms to 10y",
			"spec.to[0].default.timeout: is 0s",
			"spec.to[0].default.initialJitter: is 1µs",
			"spec.to[0].default.intervalJitter: is 0s",
			"spec.to[0].default.noTrafficInterval: is 0s"}},
		{"numbers", `{to: [{targetRef: {kind: Mesh}, default: {tcp: {}, unhealthyThreshold: 0, healthyThreshold: -1, ` +
			`intervalJitterPercent: 101, healthyPanicThreshold: 100.5}}]}`, []string{
			"spec.to[0].default.unhealthyThreshold: is 0, want 1 to 1000000",
			"spec.to[0].default.healthyThreshold: is -1",
			"spec.to[0].default.intervalJitterPercent: is 101, want 0 to 100",
			"spec.to[0].default.healthyPanicThreshold: is 100.5, want 0 to 100"}},
		{"a file", `{to: [{targetRef: {kind: Mesh}, default: {tcp: {}, eventLogPath: log}}, {targetRef: {kind: Mesh}, ` +
			`default: {tcp: {}, eventLogPath: /var/log/}}, {targetRef: {kind: Mesh}, default: {tcp: {}, ` +
			`eventLogPath: "/a\nb"}}, {targetRef: {kind: Mesh}, default: {tcp: {}, eventLogPath: /..}}]}`, []string{
			`spec.to[0].default.eventLogPath: "log" is not the absolute path of a file`,
			`spec.to[1].default.eventLogPath: "/var/log/" is not`,
			`spec.to[2].default.eventLogPath: "/a\nb" is not`,
			`spec.to[3].default.eventLogPath: "/.." is not`}},
		{"texts", `{to: [{targetRef: {kind: Mesh}, default: {tcp: {send: a, receive: ["", a]}}}]}`, []string{
			"spec.to[0].default.tcp.receive[0]: is empty; leave receive out to check the connection alone"}},
		{"a long text", fmt.Sprintf(`{to: [{targetRef: {kind: Mesh}, default: {tcp: {send: %s}}}]}`,
			strings.Repeat("a", 4097)), []string{
			"spec.to[0].default.tcp.send: has 4097 characters, want 4096 at most"}},
		{"an HTTP check", `{to: [{targetRef: {kind: Mesh}, default: {http: {path: a, expectedStatuses: [99, 600, 200, ` +
			`200]}}}, {targetRef: {kind: Mesh}, default: {http: {path: "/a?b#c"}}}, ` +
			`{targetRef: {kind: Mesh}, default: {http: {path: "/a?b c"}}}]}`, []string{
			`spec.to[0].default.http.path: "a" is not an absolute path`,
			"spec.to[0].default.http.expectedStatuses[0]: is 99, want 100 to 599",
			"spec.to[0].default.http.expectedStatuses[1]: is 600",
			"spec.to[0].default.http.expectedStatuses[3]: is 200, which is there before; leave it out",
			`spec.to[1].default.http.path: "/a?b#c" is not a path with a query`,
			`spec.to[2].default.http.path: "/a?b c" is not a path with a query`}},
		{"headers", `{to: [{targetRef: {kind: Mesh}, default: {http: {requestHeadersToAdd: {set: [{name: Host, value: a}, ` +
			`{name: ":path", value: a}, {name: "a b", value: a}, {name: a, value: ""}], add: [{name: x-weft-a, ` +
			`value: "a\nb"}]}}}}]}`, []string{
			`spec.to[0].default.http.requestHeadersToAdd.set[0].name: "host" can't be changed`,
			`spec.to[0].default.http.requestHeadersToAdd.set[1].name: ":path" can't be changed`,
			`spec.to[0].default.http.requestHeadersToAdd.set[2].name: "a b" is not the name of a header`,
			`spec.to[0].default.http.requestHeadersToAdd.set[3].value: is required`,
			`spec.to[0].default.http.requestHeadersToAdd.add[0].name: "x-weft-a" is between the proxies themselves`,
			`spec.to[0].default.http.requestHeadersToAdd.add[0].value: "a\nb" is not the value of a header`}},
		{"a gRPC check", `{to: [{targetRef: {kind: Mesh}, default: {grpc: {serviceName: "a\nb", authority: "a b"}}}]}`,
			[]string{`spec.to[0].default.grpc.serviceName: "a\nb" is not the name of a service`,
				`spec.to[0].default.grpc.authority: "a b" is not a host name`}},
	})
}

// TestCheckers: the checker of a port follows its protocol, and is tcp where that one is absent or disabled.
func TestCheckers(t *testing.T) {
	for _, row := range []struct {
		conf      string
		protocol  kind.Protocol
		forwarded bool
		want      kind.Checker
	}{
		{"tcp: {}, http: {}, grpc: {}", kind.GRPC, false, kind.GRPCChecker},
		{"tcp: {}, http: {}, grpc: {}", kind.HTTP, false, kind.HTTPChecker},
		{"tcp: {}, http: {}, grpc: {}", kind.HTTP2, false, kind.HTTPChecker},
		{"tcp: {}, http: {}, grpc: {}", kind.TCP, false, kind.TCPChecker},
		{"tcp: {}, http: {}, grpc: {}", kind.Kafka, false, kind.TCPChecker},
		{"tcp: {}, http: {}, grpc: {}", kind.HTTP, true, kind.TCPChecker},
		{"tcp: {}, http: {disabled: true}", kind.HTTP, false, kind.TCPChecker},
		{"tcp: {}, http: {disabled: false}", kind.HTTP, false, kind.HTTPChecker},
		{"tcp: {}, grpc: {disabled: true}, http: {}", kind.GRPC, false, kind.TCPChecker},
		{"tcp: {}", kind.HTTP, false, kind.TCPChecker},
		{"tcp: {disabled: true}", kind.HTTP, false, kind.NoChecker},
		{"tcp: {disabled: true}, http: {}", kind.HTTP, false, kind.HTTPChecker},
		{"http: {}", kind.TCP, false, kind.NoChecker},
		{"http: {}", kind.GRPC, false, kind.NoChecker},
		{"http: {}, grpc: {}", kind.GRPC, true, kind.NoChecker},
	} {
		o := accepts(t, `{type: MeshHealthCheck, mesh: m, name: h, spec: {to: [{targetRef: {kind: Mesh}, default: {`+
			row.conf+`}}]}}`)
		conf := &resource.SpecOf(o).(*kind.MeshHealthCheck).To[0].Default
		if got := conf.CheckerOf(row.protocol, row.forwarded); got != row.want {
			t.Errorf("%s, %s, forwarded %t: the checker is %q, want %q", row.conf, row.protocol, row.forwarded, got,
				row.want)
		}
	}
}
