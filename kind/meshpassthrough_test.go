package kind_test

import "testing"

func TestMeshPassthrough(t *testing.T) {
	for _, conf := range []string{
		`passthroughMode: None`,
		`passthroughMode: Matched, appendMatch: []`,
		`appendMatch: [{type: Domain, value: "*", protocol: tls}, {type: Domain, value: "*.example.com", protocol: http, port: 80}]`,
		`appendMatch: [{type: IP, value: 169.254.169.254}, {type: CIDR, value: "::/0", protocol: mysql, port: 3306}]`,
		`appendMatch: [{type: IP, value: "fd00::1", port: 80}, {type: IP, value: "fd00::1", port: 80, protocol: tls}, ` +
			`{type: IP, value: "fd00::1", port: 81}]`,
	} {
		accepts(t, `{type: MeshPassthrough, mesh: m, name: p, spec: {default: {`+conf+`}}}`)
	}
}

func TestMeshPassthroughRejects(t *testing.T) {
	rejects(t, `{type: MeshPassthrough, mesh: m, name: p, spec: {%s}}`, []rejected{
		{"a section", `targetRef: {kind: Dataplane, sectionName: http}, default: {passthroughMode: All}`, []string{
			"spec.targetRef.sectionName: has no meaning here"}},
		{"a mode", `default: {passthroughMode: Some}`, []string{
			`spec.default.passthroughMode: is "Some", want one of All, Matched, None`}},
	})
	rejects(t, `{type: MeshPassthrough, mesh: m, name: p, spec: {default: {appendMatch: [%s]}}}`, []rejected{
		{"a type", `{type: Host, value: a}`, []string{`spec.default.appendMatch[0].type: is "Host", want one of Domain`}},
		{"domains", `{type: Domain, value: "*x.com", protocol: tls}, {type: Domain, value: a-.com, protocol: tls}, ` +
			`{type: Domain, value: 10.0.0.1, protocol: tls}, {type: Domain, value: "*.", protocol: tls}`, []string{
			`spec.default.appendMatch[0].value: "*x.com" is not a domain`,
			`spec.default.appendMatch[1].value: "a-.com" is not`,
			`spec.default.appendMatch[2].value: "10.0.0.1" is an IP address; use the type IP`,
			`spec.default.appendMatch[3].value: "*." is not`}},
		{"IP addresses", `{type: IP, value: a.b}, {type: IP, value: 0.0.0.0}, {type: IP, value: "FD00::1"}, ` +
			`{type: IP, value: "fe80::1%eth0"}`, []string{
			`spec.default.appendMatch[0].value: "a.b" is not an IP address`,
			"spec.default.appendMatch[1].value: 0.0.0.0 means every address",
			"spec.default.appendMatch[2].value: write FD00::1 as fd00::1",
			`spec.default.appendMatch[3].value: "fe80::1%eth0" is not an IP address`}},
		{"blocks", `{type: CIDR, value: 10.0.0.1}, {type: CIDR, value: 10.0.0.1/8}, {type: CIDR, value: ` +
			`"::ffff:10.0.0.0/104"}`, []string{
			`spec.default.appendMatch[0].value: "10.0.0.1" is not a CIDR block`,
			"spec.default.appendMatch[1].value: write 10.0.0.1/8 as 10.0.0.0/8",
			`spec.default.appendMatch[2].value: "::ffff:10.0.0.0/104" is not a CIDR block`}},
		{"a port", `{type: IP, value: 10.0.0.1, port: 70000}`, []string{"spec.default.appendMatch[0].port: is 70000"}},
		{"a protocol", `{type: IP, value: 10.0.0.1, protocol: udp}`, []string{
			`spec.default.appendMatch[0].protocol: is "udp"`}},
		{"domains of connections without one", `{type: Domain, value: a.b}, {type: Domain, value: a.b, protocol: ` +
			`mysql, port: 1}`, []string{
			"spec.default.appendMatch[0].protocol: is tcp, whose connections have no name of a domain",
			"spec.default.appendMatch[1].protocol: is mysql"}},
		{"ports that are required", `{type: IP, value: 10.0.0.1, protocol: mysql}, {type: Domain, value: "*", ` +
			`protocol: http}, {type: Domain, value: "*.a.b", protocol: grpc}`, []string{
			"spec.default.appendMatch[0].port: is required for mysql",
			"spec.default.appendMatch[1].port: is required for * with http",
			"spec.default.appendMatch[2].port: is required for *.a.b with grpc"}},
		{"versions of HTTP on one port", `{type: Domain, value: a.b, protocol: http, port: 80}, {type: Domain, ` +
			`value: c.d, protocol: grpc, port: 80}`, []string{
			"spec.default.appendMatch[1].protocol: is grpc, and http in spec.default.appendMatch[0]"}},
		{"a duplicate", `{type: IP, value: 10.0.0.1}, {type: IP, value: 10.0.0.1, protocol: tcp}`, []string{
			"spec.default.appendMatch[1]: is spec.default.appendMatch[0] again"}},
	})
}
