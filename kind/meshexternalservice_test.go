package kind_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/kind"
	"weft/resource"
)

func TestMeshExternalService(t *testing.T) {
	o := accepts(t, `
type: MeshExternalService
mesh: default
name: api
spec:
  match: {port: 443}
  endpoints: [{address: api.example.com, port: 443}, {address: 192.0.2.1, port: 443, priority: 1}, {address: "2001:db8::1", port: 443}, {address: localhost, port: 8443}, {address: 127.0.0.1, port: 8443}]
  tls:
    enabled: true
    version: {min: TLS12}
    verification: {subjectAltNames: [{value: api.example.com}]}
`)
	got, err := json.Marshal(resource.SpecOf(o).(*kind.MeshExternalService).TLS)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`{"enabled":true,"version":{"min":"TLS12"},"verification":{"mode":"Secured",`+
		`"subjectAltNames":[{"type":"Exact","value":"api.example.com"}]}}`, string(got)); d != "" {
		t.Error(d)
	}
	if m := resource.SpecOf(o).(*kind.MeshExternalService).Match; m != (kind.ExternalMatch{Type: "HostnameGenerator",
		Port: 443, Protocol: kind.TCP}) {
		t.Errorf("match is %+v", m)
	}
	for _, tls := range []string{
		`{}`, `{enabled: false}`, `{enabled: true}`,
		`{enabled: true, version: {min: TLSAuto, max: TLS12}, allowRenegotiation: true}`,
		`{enabled: true, version: {min: TLS13, max: TLSAuto}}`,
		`{enabled: true, verification: {mode: SkipSAN, caCert: {type: Secret, secretRef: {kind: Secret, name: ca}}}}`,
		`{enabled: true, verification: {mode: SkipCA, serverName: api.example.com}}`,
		`{enabled: true, verification: {serverName: api.example.com, subjectAltNames: [{type: Prefix, value: ` +
			`"spiffe://a/"}, {value: 192.0.2.1}]}}`,
		`{enabled: true, verification: {mode: SkipAll, clientCert: {type: Secret, secretRef: {kind: Secret, name: ` +
			`c}}, clientKey: {type: Secret, secretRef: {kind: Secret, name: k}}}}`,
	} {
		accepts(t, `{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 1}, endpoints: [{address: `+
			`a.b, port: 1}], tls: `+tls+`}}`)
	}
}

func TestMeshExternalServiceRejects(t *testing.T) {
	rejects(t, `{type: MeshExternalService, mesh: m, name: s, spec: %s}`, []rejected{
		{"nothing", `{}`,
			[]string{"spec.match.port: is 0, want a port"}},
		{"match", `{match: {type: SNI, port: 70000, protocol: udp}, endpoints: [{address: a.b, port: 1}]}`, []string{
			`spec.match.type: is "SNI", want one of HostnameGenerator`, "spec.match.port: is 70000",
			`spec.match.protocol: is "udp"`}},
		{"a driver's extension", `{match: {port: 1}, endpoints: [{address: a.b, port: 1}], extension: {type: Lambda}}`,
			[]string{"spec.extension: has no meaning here; write the endpoints"}},
	})
	rejects(t, `{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 1}, endpoints: [%s]}}`, []rejected{
		{"nothing", `{}`, []string{"spec.endpoints[0].address: is required: an IP address or a host name",
			"spec.endpoints[0].port: is 0"}},
		{"everywhere", `{address: 0.0.0.0, port: 1}, {address: "::", port: 1}, {address: 224.0.0.1, port: 1}`, []string{
			"spec.endpoints[0].address: 0.0.0.0 means every address",
			"spec.endpoints[1].address: :: means every address",
			"spec.endpoints[2].address: 224.0.0.1 is a multicast address"}},
		{"another spelling", `{address: "2001:DB8::1", port: 1}, {address: "::ffff:192.0.2.1", port: 1}, {address: ` +
			`API.example.com, port: 1}, {address: api.example.com., port: 1}`, []string{
			"spec.endpoints[0].address: write 2001:DB8::1 as 2001:db8::1",
			"spec.endpoints[1].address: write ::ffff:192.0.2.1 as 192.0.2.1",
			"spec.endpoints[3]: api.example.com:1 is spec.endpoints[2] too"}},
		{"no host names", `{address: "a-.example.com", port: 1}, {address: "https://a.b/", port: 1}, {address: ` +
			`"a.b:443", port: 1}, {address: "*.example.com", port: 1}, {address: 10.0.0.256, port: 1}, {address: ` +
			`"[::1]", port: 1}, {address: unix:///a, port: 1}, {address: ` + strings.Repeat("a", 64) + `.b, port: 1}`,
			[]string{
				"spec.endpoints[0].address: ", "spec.endpoints[1].address: ", "spec.endpoints[2].address: ",
				"spec.endpoints[3].address: ",
				"spec.endpoints[4].address: ", "spec.endpoints[5].address: ", "spec.endpoints[6].address: ",
				"spec.endpoints[7].address: "}},
		{"a server twice", `{address: a.b, port: 1}, {address: a.b, port: 2}, {address: a.b, port: 1, priority: 1}`,
			[]string{"spec.endpoints[2]: a.b:1 is spec.endpoints[0] too"}},
		{"a priority", `{address: a.b, port: 1, priority: 129}`,
			[]string{"spec.endpoints[0].priority: is 129, want 128 at most"}},
		{"far too many", strings.Repeat(`{address: a.b, port: 1},`, 257),
			[]string{"spec.endpoints: has 257 items, want 256 at most"}},
	})
}

// TestExternalTLSRejects: a field that looks like protection is never without effect.
func TestExternalTLSRejects(t *testing.T) {
	const secret = `{type: Secret, secretRef: {kind: Secret, name: s}}`
	at := "spec.tls.verification."
	rejects(t, `{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 1}, endpoints: [{address: a.b, `+
		`port: 1}], tls: {%s}}}`, []rejected{
		{"what is not enabled", `verification: {serverName: a.b}`,
			[]string{"spec.tls.enabled: is not true, so that what else stands in tls has no effect"}},
		{"versions of what is not enabled", `enabled: false, version: {min: TLS13}`,
			[]string{"spec.tls.enabled: is not true"}},
		{"versions", `enabled: true, version: {min: TLS13, max: TLS12}`,
			[]string{"spec.tls.version.max: is TLS12, older than min, which is TLS13"}},
		{"unknown versions", `enabled: true, version: {min: "1.2", max: SSL3}`,
			[]string{`spec.tls.version.min: is "1.2", want one of TLSAuto, TLS10`, `spec.tls.version.max: is "SSL3"`}},
		{"a mode", `enabled: true, verification: {mode: skipall}`,
			[]string{at + `mode: is "skipall", want one of Secured, SkipSAN, SkipCA, SkipAll`}},
		{"SANs that are not verified", `enabled: true, verification: {mode: SkipSAN, subjectAltNames: [{value: a}]}`,
			[]string{at + "subjectAltNames: has no effect with the mode SkipSAN"}},
		{"CAs that are not verified", `enabled: true, verification: {mode: SkipCA, caCert: ` + secret + `}`,
			[]string{at + "caCert: has no effect with the mode SkipCA"}},
		{"SANs without a verified CA", `enabled: true, verification: {mode: SkipCA, subjectAltNames: [{value: a}]}`,
			[]string{at + "subjectAltNames: has no effect with the mode SkipCA"}},
		{"both", `enabled: true, verification: {mode: SkipAll, subjectAltNames: [{value: a}], caCert: ` + secret + `}`,
			[]string{at + "subjectAltNames: has no effect", at + "caCert: has no effect"}},
		{"names", `enabled: true, verification: {serverName: "*.example.com", subjectAltNames: [{type: Regex, ` +
			`value: a}, {}]}`, []string{
			at + `serverName: "*.example.com" is not a host name`,
			at + `subjectAltNames[0].type: is "Regex", want one of Exact, Prefix`,
			at + "subjectAltNames[1].value: is required"}},
		{"an address for a name", `enabled: true, verification: {serverName: 192.0.2.1}`,
			[]string{at + `serverName: "192.0.2.1" is not a host name`}},
		{"no key", `enabled: true, verification: {clientCert: ` + secret + `}`,
			[]string{at + "clientKey: is required where clientCert is given"}},
		{"no certificate", `enabled: true, verification: {clientKey: ` + secret + `}`,
			[]string{at + "clientCert: is required where clientKey is given"}},
		{"sources", `enabled: true, verification: {caCert: {type: File}, clientCert: {type: Secret}, clientKey: ` +
			`{type: InsecureInline}}`, []string{
			at + `caCert.type: "File" is not served by this release; use Secret`,
			at + "clientCert.secretRef: is required", at + "clientKey.insecureInline.value: is required"}},
		{"files", `enabled: true, verification: {caCert: {type: File, file: {path: /c}}, clientCert: {type: EnvVar, ` +
			`envVar: {name: C}}}`, []string{
			at + "caCert.file: is not served by this release; use a Secret",
			at + "clientCert.envVar: is not served by this release; use a Secret"}},
		{"no PEM", `enabled: true, verification: {caCert: {type: InsecureInline, insecureInline: {value: ca}}, ` +
			`clientCert: {type: InsecureInline, insecureInline: {value: c}}, clientKey: {type: InsecureInline, ` +
			`insecureInline: {value: k}}}`, []string{
			at + "caCert.insecureInline.value: want certificates in PEM",
			at + "clientCert.insecureInline.value: want certificates in PEM",
			at + "clientKey.insecureInline.value: want one private key in PEM"}},
	})
	rejects(t, `{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 1, protocol: tls}, endpoints: `+
		`[{address: a.b, port: 1}], tls: {%s}}}`, []rejected{
		{"TLS within TLS", `enabled: true`, []string{"spec.tls.enabled: is true, while match.protocol is tls"}},
	})
}

// TestClientCertificateOfAnExternalService: no problem contains the key, whatever is invalid.
func TestClientCertificateOfAnExternalService(t *testing.T) {
	cert, key := certificate(t, false)
	_, another := certificate(t, false)
	for name, test := range map[string]struct{ key, want string }{
		"its key": {key, ""},
		"another's key": {another,
			"spec.tls.verification.clientKey.insecureInline.value: is not the key of the certificate"},
		"a certificate": {cert, "spec.tls.verification.clientKey.insecureInline.value: is not a private key"},
	} {
		inline := func(value string) string {
			return fmt.Sprintf(`{type: InsecureInline, insecureInline: {value: %q}}`, value)
		}
		got := strings.Join(problems(t, `{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 1}, `+
			`endpoints: [{address: a.b, port: 1}], tls: {enabled: true, verification: {clientCert: `+
			inline(cert)+`, clientKey: `+inline(test.key)+`}}}}`), "\n")
		if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
