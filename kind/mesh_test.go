package kind_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

func TestMesh(t *testing.T) {
	accepts(t, `{type: Mesh, name: m, skipCreatingInitialPolicies: ["*"]}`)
	rejects(t, `{type: Mesh, name: m, %s}`, []rejected{
		{"a field with a replacement", `metrics: {}, logging: {}`,
			[]string{"logging: has no effect: this release writes no access logs, and lacks MeshAccessLog",
				"metrics: has no effect: this release exposes no metrics of proxies, and lacks MeshMetric"}},
	})
}

func TestMeshMTLS(t *testing.T) {
	mesh := accepts(t, `
type: Mesh
name: m
mtls:
  enabledBackend: ca-1
  backends:
  - {name: ca-1, type: builtin, mode: STRICT, dpCert: {rotation: {expiration: 1d}}, conf: {caCert: {RSAbits: 4096, expiration: 5y}}}
  - {name: ca-2, type: provided, mode: PERMISSIVE, conf: {cert: {secret: cert}, key: {secret: key}}}
  - {name: ca-3, type: builtin}
  skipValidation: true
`)
	mtls := resource.SpecOf(mesh).(*kind.Mesh).MTLS
	if b := mtls.SigningBackend(); b == nil || b.Name != "ca-1" {
		t.Errorf("enabled is %+v", b)
	}
	for name, want := range map[string]string{"ca-1": "24h0m0s 4096 43800h0m0s", "ca-3": "24h0m0s 2048 87600h0m0s"} {
		b := mtls.Backend(name)
		bits, life := b.BuiltinCA()
		if got := fmt.Sprint(b.CertificateLife(), bits, life); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	accepts(t, `{type: Mesh, name: m, mtls: {}}`)
	accepts(t, `{type: Mesh, name: m, mtls: {backends: [{name: a, type: builtin, dpCert: {rotation: {expiration: `+
		`30m}}, conf: {}}]}}`)
	cert, key := certificate(t, true)
	accepts(t,
		fmt.Sprintf(`{type: Mesh, name: m, mtls: {enabledBackend: a, backends: [{name: a, type: provided, conf: `+
			`{cert: {inlineString: %q}, key: {inline: %s}}}]}}`,
			cert, base64.StdEncoding.EncodeToString([]byte(key))))
}

// TestMeshMTLSRejects: a Mesh that enables mutual TLS never ends up without it.
func TestMeshMTLSRejects(t *testing.T) {
	rejects(t, `{type: Mesh, name: m, mtls: %s}`, []rejected{
		{"a backend that is none", `{enabledBackend: ca-2, backends: [{name: ca-1, type: builtin}]}`,
			[]string{`mtls.enabledBackend: "ca-2" is none of the backends`}},
		{"no backends", `{enabledBackend: ca-1}`, []string{`mtls.enabledBackend: "ca-1" is none of the backends`}},
		{"names", `{backends: [{type: builtin}, {name: A, type: builtin}, {name: a, type: builtin}, {name: a, ` +
			`type: builtin}]}`, []string{
			"mtls.backends[0].name: is required", `mtls.backends[1].name: "A" is not a name`,
			`mtls.backends[3].name: "a" is the name of mtls.backends[2] too`}},
		{"types and modes", `{backends: [{name: a}, {name: b, type: vault}, {name: c, type: builtin, mode: strict}]}`,
			[]string{
				"mtls.backends[0].type: is required: builtin, provided",
				`mtls.backends[1].type: is "vault", want one of builtin, provided`,
				`mtls.backends[2].mode: is "strict", want one of STRICT, PERMISSIVE`}},
		{"far too many", `{backends: [` + strings.Repeat("{name: a, type: builtin},", 17) + `]}`,
			[]string{"mtls.backends: has 17 items, want 16 at most"}},
		{"lives", `{backends: [{name: a, type: builtin, dpCert: {rotation: {expiration: 1s}}}, {name: b, type: ` +
			`builtin, dpCert: {rotation: {expiration: soon}}}, {name: c, type: builtin, dpCert: {rotation: ` +
			`{expiration: 2y}}}]}`, []string{
			"mtls.backends[0].dpCert.rotation.expiration: is 1s, want 10s to 365d",
			`mtls.backends[1].dpCert.rotation.expiration: "soon" is not a duration`,
			"mtls.backends[2].dpCert.rotation.expiration: is 2y, want 10s to 365d"}},
		{"a builtin authority", `{backends: [{name: a, type: builtin, conf: {caCert: {RSAbits: 1024, expiration: ` +
			`101y}}}, {name: b, type: builtin, conf: {caCert: {RSAbits: 16384, expiration: 12h}, cert: {secret: a}, ` +
			`key: {secret: b}}}]}`, []string{
			"mtls.backends[0].conf.caCert.RSAbits: is 1024, want 2048 to 8192",
			"mtls.backends[0].conf.caCert.expiration: is 101y, want 1h to 100y",
			"mtls.backends[1].conf.caCert.RSAbits: is 16384",
			"mtls.backends[1].conf.caCert.expiration: is 12h0m0s, less than the 1d of the certificates",
			"mtls.backends[1].conf.cert: is given with the type builtin",
			"mtls.backends[1].conf.key: is given with the type builtin"}},
		{"a provided CA without a certificate",
			`{backends: [{name: a, type: provided}, {name: b, type: provided, conf: {caCert: {}, cert: {}, key: ` +
				`{secret: K}}}]}`, []string{
				"mtls.backends[0].conf.cert: is required", "mtls.backends[0].conf.key: is required",
				"mtls.backends[1].conf.caCert: is given with the type provided",
				"mtls.backends[1].conf.cert: has 0 values", `mtls.backends[1].conf.key.secret: "K" is not a name`}},
		{"two values", `{backends: [{name: a, type: provided, conf: {cert: {secret: a, inlineString: b}, key: ` +
			`{inline: YQ==, inlineString: b}}}]}`, []string{
			"mtls.backends[0].conf.cert: has 2 values, want exactly one of secret, inline, inlineString",
			"mtls.backends[0].conf.key: has 2 values"}},
		{"no PEM", `{backends: [{name: a, type: provided, conf: {cert: {inlineString: cert}, key: {inline: a2V5}}}]}`,
			[]string{
				"mtls.backends[0].conf.cert: want certificates in PEM",
				"mtls.backends[0].conf.key: want one private key in PEM"}},
		{"no base64", `{backends: [{name: a, type: provided, conf: {cert: {inline: "-----BEGIN"}, key: {secret: k}}}]}`,
			[]string{"mtls.backends[0].conf.cert.inline: "}},
		{"files of the control plane",
			`{backends: [{name: a, type: provided, conf: {cert: {file: /c}, key: {file: /k}}}]}`, []string{
				"mtls.backends[0].conf.cert.file: is not served by this release; use a Secret",
				"mtls.backends[0].conf.key.file: is not served by this release; use a Secret"}},
	})
}

// TestProvidedAuthority: no problem contains the key, whatever is invalid.
func TestProvidedAuthority(t *testing.T) {
	cert, key := certificate(t, true)
	workload, itsKey := certificate(t, false)
	broken := "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
	for name, test := range map[string]struct{ cert, key, want string }{
		"another's key": {cert, itsKey, "mtls.backends[0].conf.key: is not the key of the certificate"},
		"a workload certificate": {workload, itsKey,
			"mtls.backends[0].conf.cert: block 1 is not the certificate of an authority"},
		"the other way": {key, cert, "mtls.backends[0].conf.cert: block 1 is not a certificate; only certificates " +
			"belong here\nmtls.backends[0].conf.key: is not a private key"},
		"a broken key": {cert, broken, "mtls.backends[0].conf.key: is not a private key in PEM"},
		"two keys": {cert, key + key,
			"mtls.backends[0].conf.key: want one private key in PEM and nothing beside it"},
		"the right pair": {cert, key, ""},
	} {
		doc := fmt.Sprintf(`{type: Mesh, name: m, mtls: {backends: [{name: a, type: provided, conf: {cert: `+
			`{inlineString: %q}, key: {inlineString: %q}}}]}}`, test.cert, test.key)
		got := strings.Join(problems(t, doc), "\n")
		if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) || strings.Contains(got, "c2VjcmV0") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestMeshRouting(t *testing.T) {
	accepts(t, `{type: Mesh, name: m, routing: {zoneEgress: true, localityAwareLoadBalancing: false, `+
		`defaultForbidMeshExternalServiceAccess: true}}`)
	rejects(t, `{type: Mesh, name: m, routing: %s}`, []rejected{
		{"a string", `{zoneEgress: "yes"}`, []string{"routing.zoneEgress: "}},
		{"an unknown field", `{egress: true}`, []string{"routing.egress: is not a known field"}},
	})
}

// TestMembershipShape: a rule that matches no Dataplane by mistake would lock a mesh, or open it.
func TestMembershipShape(t *testing.T) {
	accepts(t, `
type: Mesh
name: m
dataplaneProxyMembership:
  allowed:
  - tags: {kuma.io/environment: universal, team: "*", kuma.io/protocol: "*"}
  - kubernetes: {namespace: {name: ns-1}, zone: east, pod: {labels: {a: b}}}
  - kubernetes: {namespace: {labels: {a: b}}}
  - kubernetes: {namespace: {name: "1"}}
  - kubernetes: {zone: east}
  blocked:
  - tags: {team: a}
`)
	accepts(t, `{type: Mesh, name: m, dataplaneProxyMembership: {allowed: [], blocked: []}}`)
	for _, list := range []string{"allowed", "blocked"} {
		at := "dataplaneProxyMembership." + list
		rejects(t, `{type: Mesh, name: m, dataplaneProxyMembership: {`+list+`: [%s]}}`, []rejected{
			{"both", `{tags: {a: b}, kubernetes: {zone: east}}`,
				[]string{at + "[0]: has tags and kubernetes; make two entries"}},
			{"neither", `{}, {tags: {}}`,
				[]string{at + "[0]: says nothing: write tags", at + "[1]: says nothing: write tags"}},
			{"empty", `{kubernetes: {}}, {kubernetes: {namespace: {}}}, {kubernetes: {pod: {}}}`, []string{
				at + "[0].kubernetes: says nothing: write namespace, pod or zone",
				at + "[1].kubernetes.namespace: says nothing: write a name",
				at + "[2].kubernetes.pod.labels: is required"}},
			{"a namespace twice", `{kubernetes: {namespace: {name: a, labels: {a: b}}}}`,
				[]string{at + "[0].kubernetes.namespace: has a name and labels"}},
			{"tags", `{tags: {"a b": "*", a: "b*", c: "", kuma.io/protocol: udp}}`, []string{
				at + "[0].tags[a b]: is not a tag's name", at + `[0].tags[a]: "b*" is not a tag's value`,
				at + "[0].tags[c]: has no value", at + `[0].tags[kuma.io/protocol]: is "udp"`}},
			{"values", `{kubernetes: {namespace: {name: A.b}, zone: a.b, pod: {labels: {a: "b c"}}}}, {kubernetes: ` +
				`{namespace: {labels: {"a b": c}}}}`, []string{
				at + `[0].kubernetes.namespace.name: "A.b" is not a namespace`,
				at + `[0].kubernetes.zone: "a.b" is not`, at + "[0].kubernetes.pod.labels[a]: ",
				at + "[1].kubernetes.namespace.labels[a b]: "}},
		})
	}
}

func TestParseDuration(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"10y": 10 * year, "1y30d": year + 30*24*time.Hour, "1y1h": year + time.Hour,
		"1y364d23h59m": 2*year - time.Minute, "100y": 100 * year, "0y": 0,
	} {
		if got, err := resource.ParseDuration(text); got != want || err != nil {
			t.Errorf("%s is %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"y", "1y365d", "1y24h", "1y-1s", "1y y", "1d1y", "-1y", "300y",
		"99999999999999999999y", "1y1", "1yd"} {
		if got, err := resource.ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
