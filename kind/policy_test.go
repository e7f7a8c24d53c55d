package kind_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft/kind"
	"weft/resource"
)

func TestMeshService(t *testing.T) {
	o := accepts(t, `
type: MeshService
mesh: default
name: web
spec:
  selector: {dataplaneTags: {kuma.io/service: web}}
  ports: [{port: 80}, {port: 81, targetPort: http, name: main, appProtocol: http}, {port: 82, name: "82", targetPort: 8080}]
`)
	ports := resource.SpecOf(o).(*kind.MeshService).Ports
	want := []kind.ServicePort{
		{Port: 80, TargetPort: &kind.PortRef{Number: 80}, AppProtocol: kind.TCP},
		{Port: 81, TargetPort: &kind.PortRef{Name: "http"}, Name: "main", AppProtocol: kind.HTTP},
		{Port: 82, TargetPort: &kind.PortRef{Number: 8080}, Name: "82", AppProtocol: kind.TCP},
	}
	if d := cmp.Diff(want, ports); d != "" {
		t.Error(d)
	}
	accepts(t, `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneLabels: {matchLabels: {}}}, ports: `+
		`[{port: 80}]}}`)
	accepts(t,
		`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`)
}

func TestMeshServiceRejects(t *testing.T) {
	rejects(t, `{type: MeshService, mesh: m, name: s, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec.selector: has 0 selections", "spec.ports: is required"}},
		{"two selectors", `{selector: {dataplaneTags: {a: b}, dataplaneRef: {name: a}}, ports: [{port: 80}]}`,
			[]string{"spec.selector: has 2 selections"}},
		{"selectors", `{selector: {dataplaneTags: {}}, ports: [{port: 80}]}`,
			[]string{"spec.selector.dataplaneTags: has no tag"}},
		{"a selector's tags", `{selector: {dataplaneTags: {a: "b c"}}, ports: [{port: 80}]}`,
			[]string{"spec.selector.dataplaneTags[a]: "}},
		{"a selector's labels", `{selector: {dataplaneLabels: {matchLabels: {a: "b c"}}}, ports: [{port: 80}]}`,
			[]string{"spec.selector.dataplaneLabels.matchLabels[a]: "}},
		{"a selector's name", `{selector: {dataplaneRef: {name: A}}, ports: [{port: 80}]}`,
			[]string{"spec.selector.dataplaneRef.name: "}},
		{"ports", `{selector: {dataplaneRef: {name: a}}, ports: [{port: 0}, {port: 80, targetPort: 70000}, {port: ` +
			`80, targetPort: HTTP}, {port: 81, targetPort: "", name: a}, {port: 82, name: a}]}`,
			[]string{
				"spec.ports[0].port: is 0", "spec.ports[1].targetPort: is 70000",
				"spec.ports[2].port: 80 is the port of spec.ports[1] too",
				`spec.ports[2].targetPort: "HTTP" is not a name`,
				"spec.ports[3].targetPort: is 0", `spec.ports[4].name: "a" is the name of spec.ports[3] too`}},
		{"a name that is another's number", `{selector: {dataplaneRef: {name: a}}, ports: [{port: 80, name: "81"}]}`,
			[]string{`spec.ports[0].name: "81" is a number`}},
		{"state and identities", `{state: Up, selector: {dataplaneRef: {name: a}}, ports: [{port: 80}], identities: ` +
			`[{type: Name, value: ""}]}`, []string{
			`spec.state: is "Up", want one of Available, Unavailable`, `spec.identities[0].type: is "Name"`,
			"spec.identities[0].value: is required"}},
	})
}

func TestMeshIdentity(t *testing.T) {
	o := accepts(t, `{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: {matchLabels: {}}}, `+
		`provider: {type: Bundled}}}`)
	got, err := json.Marshal(resource.SpecOf(o))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"selector":{"dataplane":{"matchLabels":{}}},"spiffeID":{"trustDomain":"{{ .Mesh }}.{{ .Zone ` +
		`}}.mesh.local"},` +
		`"provider":{"type":"Bundled","bundled":{"meshTrustCreation":"Enabled","insecureAllowSelfSigned":true,` +
		`"autogenerate":{"enabled":true},"certificateParameters":{"expiry":"24h0m0s"}}}}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	accepts(t, `
type: MeshIdentity
mesh: m
name: i
spec:
  spiffeID: {trustDomain: prod.example.com, path: '/team/{{ label "team" }}/{{.Workload}}'}
  provider:
    type: Bundled
    bundled:
      meshTrustCreation: Disabled
      certificateParameters: {expiry: 1d12h}
      ca:
        certificate: {type: InsecureInline, insecureInline: {value: pem}}
        privateKey: {type: Secret, secretRef: {kind: Secret, name: key}}
`)
}

func TestMeshIdentityRejects(t *testing.T) {
	rejects(t, `{type: MeshIdentity, mesh: m, name: i, spec: %s}`, []rejected{
		{"no provider", `{}`, []string{"spec.provider.type: is required: Bundled"}},
		{"an unknown provider", `{provider: {type: Vault}}`, []string{`spec.provider.type: is "Vault"`}},
		{"labels", `{selector: {dataplane: {matchLabels: {a: "b c"}}}, provider: {type: Bundled}}`,
			[]string{"spec.selector.dataplane.matchLabels[a]: "}},
		{"a trust domain", `{spiffeID: {trustDomain: "Prod/x"}, provider: {type: Bundled}}`,
			[]string{`spec.spiffeID.trustDomain: "Prod/x" is not a trust domain`}},
		{"a long trust domain", `{spiffeID: {trustDomain: "` + strings.Repeat("a", 256) + `"}, provider: {type: Bundled}}`,
			[]string{"spec.spiffeID.trustDomain: is a trust domain of 256 characters, want 255 at most"}},
		{"templates", `{spiffeID: {trustDomain: "{{ .Name }}", path: "/{{ range . }}"}, provider: {type: Bundled}}`,
			[]string{
				`spec.spiffeID.trustDomain: "{{ .Name }}" is not a template of {{ .Mesh }}`, "spec.spiffeID.path: "}},
		{"a trust domain of one Dataplane",
			`{spiffeID: {trustDomain: "{{ .Workload }}.local"}, provider: {type: Bundled}}`, []string{
				`spec.spiffeID.trustDomain: "{{ .Workload }}.local" is not a template of {{ .Mesh }} and {{ .Zone ` +
					`}}; a trust domain is the same for all`}},
		{"paths", `{spiffeID: {path: "workload"}, provider: {type: Bundled}}`,
			[]string{`spec.spiffeID.path: "workload" is not the path`}},
		{"a path that climbs", `{spiffeID: {path: "/../{{ .Workload }}"}, provider: {type: Bundled}}`,
			[]string{`spec.spiffeID.path: `}},
		{"values",
			`{provider: {type: Bundled, bundled: {meshTrustCreation: "yes", certificateParameters: {expiry: 1s}}}}`,
			[]string{
				`spec.provider.bundled.meshTrustCreation: is "yes"`,
				"spec.provider.bundled.certificateParameters.expiry: is 1s, want 10s to"}},
		{"a generated CA that may not sign itself",
			`{provider: {type: Bundled, bundled: {insecureAllowSelfSigned: false}}}`,
			[]string{"spec.provider.bundled.insecureAllowSelfSigned: is false"}},
		{"two CAs", `{provider: {type: Bundled, bundled: {autogenerate: {enabled: true}, ca: {}}}}`,
			[]string{"spec.provider.bundled.ca: is given while autogenerate is enabled"}},
		{"no CA", `{provider: {type: Bundled, bundled: {autogenerate: {enabled: false}}}}`,
			[]string{"spec.provider.bundled.ca: is required"}},
		{"half a CA", `{provider: {type: Bundled, bundled: {ca: {certificate: {type: Secret, secretRef: {kind: ` +
			`ConfigMap, name: A}}}}}}`, []string{
			`spec.provider.bundled.ca.certificate.secretRef.kind: is "ConfigMap"`,
			`spec.provider.bundled.ca.certificate.secretRef.name: "A"`,
			"spec.provider.bundled.ca.privateKey: is required"}},
		{"sources",
			`{provider: {type: Bundled, bundled: {ca: {certificate: {type: File}, privateKey: {type: Secret}}}}}`,
			[]string{
				`spec.provider.bundled.ca.certificate.type: "File" is not served`,
				"spec.provider.bundled.ca.privateKey.secretRef: is required"}},
		{"two sources", `{provider: {type: Bundled, bundled: {ca: {certificate: {type: Secret, insecureInline: ` +
			`{value: x}}, privateKey: {type: InsecureInline, secretRef: {kind: Secret, name: a}}}}}}`, []string{
			"spec.provider.bundled.ca.certificate.insecureInline: is given with the type Secret",
			"spec.provider.bundled.ca.privateKey.secretRef: is given with"}},
		{"an empty source", `{provider: {type: Bundled, bundled: {ca: {certificate: {type: InsecureInline}, ` +
			`privateKey: {type: Vault}}}}}`, []string{
			"spec.provider.bundled.ca.certificate.insecureInline.value: is required",
			`spec.provider.bundled.ca.privateKey.type: is "Vault"`}},
	})
}

// certificate returns a certificate in PEM, and its key.
func certificate(t *testing.T, authority bool) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: authority,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

func TestSpire(t *testing.T) {
	o := accepts(t, `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Spire}}}`)
	agent := resource.SpecOf(o).(*kind.MeshIdentity).Provider.Spire.Agent
	if *agent != (kind.SpireAgent{Timeout: kind.Duration(time.Second)}) {
		t.Errorf("the agent is %+v", agent)
	}
	accepts(t, `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Spire, spire: {agent: {timeout: `+
		`100ms, socketPath: /tmp/agent.sock}}}}}`)
	rejects(t, `{type: MeshIdentity, mesh: m, name: i, spec: {provider: {%s}}}`, []rejected{
		{"the other provider's", `type: Spire, bundled: {}`,
			[]string{"spec.provider.bundled: is given with the type Spire; leave it out"}},
		{"the other way", `type: Bundled, spire: {}`,
			[]string{"spec.provider.spire: is given with the type Bundled; leave it out"}},
		{"a timeout", `type: Spire, spire: {agent: {timeout: 1ms}}`,
			[]string{"spec.provider.spire.agent.timeout: is 1ms, want 10ms to 1m"}},
		{"a long timeout", `type: Spire, spire: {agent: {timeout: 1h}}`,
			[]string{"spec.provider.spire.agent.timeout: is 1h0m0s"}},
		{"a relative path", `type: Spire, spire: {agent: {socketPath: agent.sock}}`,
			[]string{`spec.provider.spire.agent.socketPath: "agent.sock" is not the path of a socket`}},
		{"a URL", `type: Spire, spire: {agent: {socketPath: "unix:///run/agent.sock"}}`,
			[]string{`spec.provider.spire.agent.socketPath: "unix:///run/agent.sock" is not`}},
		{"a path that climbs", `type: Spire, spire: {agent: {socketPath: /run/../agent.sock}}`,
			[]string{"spec.provider.spire.agent.socketPath: "}},
		{"a path of two lines", `type: Spire, spire: {agent: {socketPath: "/run/a\nb"}}`,
			[]string{"spec.provider.spire.agent.socketPath: "}},
		{"a long path", `type: Spire, spire: {agent: {socketPath: /` + strings.Repeat("a", 107) + `}}`,
			[]string{"spec.provider.spire.agent.socketPath: has 108 characters, want 107 at most"}},
	})
}

func TestMeshTrust(t *testing.T) {
	root, key := certificate(t, true)
	workload, _ := certificate(t, false)
	trust := func(domain, value string) string {
		return fmt.Sprintf(`{"type": "MeshTrust", "mesh": "m", "name": "t", "spec": {"trustDomain": %q, "caBundles": `+
			`[{"type": "Pem", "pem": {"value": %q}}]}}`, domain, value)
	}
	accepts(t, trust("default.east.mesh.local", root+"\n"+root))
	for _, test := range []struct {
		name, doc, want string
	}{
		{"no trust domain", trust("", root), "spec.trustDomain: is required"},
		{"a SPIFFE ID", trust("spiffe://a/b", root),
			`spec.trustDomain: "spiffe://a/b" is not a trust domain: write its name alone`},
		{"no name", trust("A b", root), `spec.trustDomain: "A b" is not a trust domain`},
		{"no PEM", trust("a", "root"), "spec.caBundles[0].pem.value: want certificates in PEM"},
		{"more than PEM", trust("a", root+"and more"), "spec.caBundles[0].pem.value: want certificates in PEM"},
		{"a key", trust("a", root+key), "spec.caBundles[0].pem.value: block 2 is not a certificate; only certificates"},
		{"a workload certificate", trust("a", workload),
			"spec.caBundles[0].pem.value: block 1 is not the certificate of an authority"},
		{"a broken certificate", trust("a", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			"spec.caBundles[0].pem.value: block 1 is not a certificate: "},
		{"no bundle", `{type: MeshTrust, mesh: m, name: t, spec: {trustDomain: a}}`, "spec.caBundles: is required"},
		{"a type", `{type: MeshTrust, mesh: m, name: t, spec: {trustDomain: a, caBundles: [{type: Der, pem: {value: x}}]}}`,
			`spec.caBundles[0].type: is "Der"`},
		{"no value", `{type: MeshTrust, mesh: m, name: t, spec: {trustDomain: a, caBundles: [{type: Pem}]}}`,
			"spec.caBundles[0].pem: is required"},
	} {
		got := strings.Join(problems(t, test.doc), "\n")
		if !strings.HasPrefix(got, test.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: got %q, want one problem %q", test.name, got, test.want)
		}
	}
}

func TestMeshTrafficPermission(t *testing.T) {
	o := accepts(t, `
type: MeshTrafficPermission
mesh: default
name: web
spec:
  targetRef: {kind: Dataplane, labels: {app: web}, sectionName: "8080"}
  rules:
  - default:
      deny: [{spiffeId: {type: Prefix, value: "spiffe://other/"}}]
      allowWithShadowDeny: []
      allow: [{spiffeID: {type: Exact, value: "spiffe://default.east.mesh.local/workload/client"}}]
`)
	denied := resource.SpecOf(o).(*kind.MeshTrafficPermission).Rules[0].Default.Deny[0]
	if denied.SpiffeID == nil || denied.SpiffeID.Value != "spiffe://other" ||
		denied.SpiffeID.Pattern(o.Envelope()) != (kind.IDPattern{Prefix: "spiffe://other/"}) ||
		denied.OlderSpiffeID != nil {
		t.Errorf("the older spelling was read as %+v", denied)
	}
	accepts(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {targetRef: {kind: Mesh}}}`)
	accepts(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{default: {deny: [{sni: {type: Exact, `+
		`value: aed22d4b0ed1c902b.api.443.default.mes}}], allow: [{sni: {type: Exact, value: a.api.443.default.mes}, `+
		`spiffeId: {type: Prefix, value: "spiffe://a/"}}]}}]}}`)
	accepts(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{matches: [], default: {}}, {matches: `+
		`[{sni: {type: Exact, value: aed22d4b0ed1c902b.api.443.default.mes}}], default: {allow: []}}]}}`)
	accepts(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {targetRef: {kind: Dataplane}}}`)
}

func TestMeshTrafficPermissionRejects(t *testing.T) {
	rejects(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: %s}`, []rejected{
		{"no kind", `{targetRef: {name: a}}`, []string{"spec.targetRef.kind: is required: Mesh, Dataplane"}},
		{"an unknown kind", `{targetRef: {kind: MeshGateway}}`,
			[]string{`spec.targetRef.kind: is "MeshGateway", which is not served by this release; there are no ` +
				`gateways; use the kind Dataplane`}},
		{"a part of the whole mesh", `{targetRef: {kind: Mesh, labels: {a: b}}}`,
			[]string{"spec.targetRef: of the kind Mesh has no name"}},
		{"name and labels", `{targetRef: {kind: Dataplane, name: a, labels: {a: b}}}`,
			[]string{"spec.targetRef: has a name and labels"}},
		{"values", `{targetRef: {kind: Dataplane, name: A, namespace: apps, sectionName: HTTP}}`,
			[]string{`spec.targetRef.name: "A"`, "spec.targetRef.namespace: has no meaning",
				`spec.targetRef.sectionName: "HTTP"`}},
		{"no caller", `{rules: [{default: {allow: [{}]}}]}`,
			[]string{"spec.rules[0].default.allow[0].spiffeID: is required"}},
		{"both spellings", `{rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://a/b"}, spiffeId: ` +
			`{type: Exact, value: "spiffe://a/b"}}]}}]}`,
			[]string{"spec.rules[0].default.allow[0].spiffeId: is the older spelling"}},
		{"a type", `{rules: [{}, {default: {deny: [{spiffeID: {value: "spiffe://a/b"}}, {spiffeID: {type: Regex, ` +
			`value: "spiffe://a/.*"}}]}}]}`, []string{
			"spec.rules[1].default.deny[0].spiffeID.type: is required",
			`spec.rules[1].default.deny[1].spiffeID.type: is "Regex"`}},
		{"no SPIFFE ID", `{rules: [{default: {allow: [{spiffeID: {type: Exact, value: "a/b"}}]}}]}`,
			[]string{`spec.rules[0].default.allow[0].spiffeID.value: "a/b" is not a SPIFFE ID`}},
		{"a prefix that no SPIFFE ID begins with",
			`{rules: [{default: {deny: [{spiffeID: {type: Prefix, value: "spiffe://prod/a,spiffe://prod/b"}}]}}]}`,
			[]string{
				`spec.rules[0].default.deny[0].spiffeID.value: "spiffe://prod/a,spiffe://prod/b" matches no SPIFFE ID`}},
		{"a prefix that is none", `{rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "prod/"}}]}}]}`,
			[]string{
				`spec.rules[0].default.allow[0].spiffeID.value: "prod/" is not the beginning of SPIFFE IDs`}},
		{"a prefix of no trust domain",
			`{rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe:///a"}}, {spiffeID: {type: Prefix, ` +
				`value: "spiffe://A b/"}}, {spiffeID: {type: Prefix, value: "spiffe://"}}]}}]}`, []string{
				"spec.rules[0].default.allow[2].spiffeID.value: is required",
				"spec.rules[0].default.allow[0].spiffeID.value: is required",
				"spec.rules[0].default.allow[1].spiffeID.value: \"A b\""}},
		{"what is no longer, or comes later", `{from: [], rules: [{matches: [], default: {action: Allow, allow: []}}]}`,
			[]string{
				"spec.from: has no meaning here; use `rules`, which",
				"spec.rules[0].default.action: has no meaning here"}},
		{"an SNI", `{rules: [{default: {allow: [{sni: {}}, {sni: {type: Prefix, value: a.b}}], deny: [{sni: {type: ` +
			`Exact, value: "*.mes"}, spiffeID: {type: Exact, value: x}}]}}]}`, []string{
			"spec.rules[0].default.deny[0].sni.value: \"*.mes\" is not a server name",
			`spec.rules[0].default.deny[0].spiffeID.value: "x" is not a SPIFFE ID`,
			"spec.rules[0].default.allow[0].sni.type: is required: Exact",
			`spec.rules[0].default.allow[0].sni.value: is required: a server name`,
			`spec.rules[0].default.allow[1].sni.type: is "Prefix", want one of Exact`}},
		{"matches", `{rules: [{matches: [{}, {sni: {}}, {sni: {type: Prefix, value: a.b}}, {sni: {type: Exact, ` +
			`value: "*.mes"}}, {sni: {type: Exact, value: A.mes}}, {sni: {type: Exact, value: sni.extsvc.shop.mail.443}}, ` +
			`{sni: {type: Exact, value: "mail{mesh=shop}"}}]}]}`, []string{
			"spec.rules[0].matches[0].sni: is required", "spec.rules[0].matches[1].sni.type: is required: Exact",
			`spec.rules[0].matches[1].sni.value: is required: a server name`,
			`spec.rules[0].matches[2].sni.type: is "Prefix", want one of Exact`,
			`spec.rules[0].matches[3].sni.value: "*.mes" is not a server name`,
			`spec.rules[0].matches[4].sni.value: "A.mes" is not`,
			`spec.rules[0].matches[5].sni.value: "sni.extsvc.shop.mail.443" is an SNI of Kuma; weft gives the service ` +
				`another one: write what status.zoneEgress.sni`,
			`spec.rules[0].matches[6].sni.value: "mail{mesh=shop}" is an SNI of Kuma`}},
	})
}

// TestAPrefixIsWholeSegments: "spiffe://prod" matches what "spiffe://prod/" does, and "spiffe://prod/web" no
// "spiffe://prod/web-admin", except in a policy that an earlier release stored. A trust domain is stored without the
// slash, since some clients reject a SPIFFE ID that ends in one.
func TestAPrefixIsWholeSegments(t *testing.T) {
	written := &resource.Meta{Vouched: resource.Vouched{Complete: true}}
	for value, want := range map[string]struct {
		stored          string
		matches, misses []string
		earlier         []string // what misses has and a policy of an earlier release matches
	}{
		"spiffe://prod": {"spiffe://prod", []string{"spiffe://prod/web", "spiffe://prod/a/b"},
			[]string{"spiffe://production/web", "spiffe://prod"}, nil},
		"spiffe://prod/": {"spiffe://prod", []string{"spiffe://prod/web"}, []string{"spiffe://production/web"}, nil},
		"spiffe://prod/ns": {"spiffe://prod/ns", []string{"spiffe://prod/ns", "spiffe://prod/ns/a"},
			[]string{"spiffe://prod/ns-admin", "spiffe://prod/nsx/a", "spiffe://prod/n"},
			[]string{"spiffe://prod/ns-admin", "spiffe://prod/nsx/a"}},
		"spiffe://prod/ns/": {"spiffe://prod/ns/", []string{"spiffe://prod/ns/a"},
			[]string{"spiffe://prod/ns", "spiffe://prod/nsx/a"}, nil},
	} {
		o := accepts(t, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{default: {allow: `+
			`[{spiffeID: {type: Prefix, value: "`+value+`"}}]}}]}}`)
		id := resource.SpecOf(o).(*kind.MeshTrafficPermission).Rules[0].Default.Allow[0].SpiffeID
		if id.Value != want.stored {
			t.Errorf("%s is stored as %s", value, id.Value)
		}
		for _, name := range slices.Concat(want.matches, want.misses) {
			matches := slices.Contains(want.matches, name)
			if got := id.Pattern(written).Has(name); got != matches {
				t.Errorf("%s matches %s: %t", value, name, got)
			}
			earlier := matches || slices.Contains(want.earlier, name)
			if got := id.Pattern(&resource.Meta{}).Has(name); got != earlier {
				t.Errorf("%s in a policy of an earlier release matches %s: %t", value, name, got)
			}
		}
	}
}
