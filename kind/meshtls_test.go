package kind_test

import (
	"testing"

	"weft/kind"
)

func TestMeshTLSRejects(t *testing.T) {
	rejects(t, `{type: MeshTLS, mesh: m, name: t, spec: %s}`, []rejected{
		{"an unknown mode", `{rules: [{default: {mode: strict}}]}`, []string{
			`spec.rules[0].default.mode: is "strict", want one of Strict, Permissive`}},
		{"versions", `{rules: [{default: {tlsVersion: {min: TLS13, max: TLS12}}}, {default: {tlsVersion: {min: SSL3}}}]}`,
			[]string{
				"spec.rules[0].default.tlsVersion.max: is TLS12, older than min, which is TLS13",
				`spec.rules[1].default.tlsVersion.min: is "SSL3"`}},
		{"ciphers", `{rules: [{default: {tlsCiphers: [TLS_AES_128_GCM_SHA256]}}, {default: {tlsCiphers: ` +
			`[ECDHE-RSA-AES128-GCM-SHA256, ECDHE-RSA-AES128-GCM-SHA256]}}]}`, []string{
			`spec.rules[0].default.tlsCiphers: has "TLS_AES_128_GCM_SHA256" at 0`,
			"spec.rules[1].default.tlsCiphers: has ECDHE-RSA-AES128-GCM-SHA256 twice"}},
		{"a part of the mesh", `{targetRef: {kind: Dataplane, labels: {a: b}}, rules: [{default: {mode: Strict, ` +
			`tlsVersion: {min: TLS13}, tlsCiphers: [ECDHE-RSA-AES128-GCM-SHA256]}}]}`, []string{
			"spec.rules[0].default.tlsVersion: needs a targetRef of the kind Mesh",
			"spec.rules[0].default.tlsCiphers: needs a targetRef of the kind Mesh"}},
		{"from some callers", `{from: [{targetRef: {kind: MeshSubset}, default: {mode: Strict}}]}`, []string{
			`spec.from[0].targetRef.kind: is "MeshSubset", and only Mesh is served`}},
	})
}

// TestFromOfAMeshTLS: the older form of rules without matches is stored as rules.
func TestFromOfAMeshTLS(t *testing.T) {
	o := kind.MeshTLSes.Make("m", "t", kind.MeshTLS{From: []kind.FromItem[kind.TLSConf]{
		{TargetRef: kind.FromRef{Kind: "Mesh"}, Default: kind.TLSConf{Mode: kind.TLSPermissive}}}})
	if problems := kind.MeshTLSes.Prepare(o); len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(o.Spec.From) > 0 || len(o.Spec.Rules) != 1 || o.Spec.Rules[0].Default.Mode != kind.TLSPermissive {
		t.Errorf("it is stored as %+v", o.Spec)
	}
}
