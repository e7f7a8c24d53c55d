package kind_test

import "testing"

func TestMeshTimeoutRejects(t *testing.T) {
	rejects(t, `{type: MeshTimeout, mesh: m, name: t, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec.to: is required"}},
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
	})
}
