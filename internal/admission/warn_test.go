package admission_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

func TestWarnings(t *testing.T) {
	w, _ := newEastWriter(t)
	for _, test := range []struct{ doc, warns string }{
		{`{type: MeshTrafficPermission, mesh: m, name: p, spec: {}}`, `mesh "m" has no MeshIdentity and no mtls`},
		{`{type: MeshExternalService, mesh: m, name: s, spec: {match: {port: 80}, endpoints: [{address: a.b, ` +
			`port: 80}]}}`, "no client can reach it until there is one"},
		{`{type: Mesh, name: m, mtls: {enabledBackend: a, backends: [{name: a, type: builtin}]}}`, ""},
		{`{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: []}}`, "spec.rules: names no caller"},
		{`{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: [{default: {allow: [{spiffeID: {type: ` +
			`Prefix, value: "spiffe://a"}}]}}]}}`, ""},
		{`{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1}}`, "its proxy carries no traffic"},
		{`{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, outbound: [{port: 80, backendRef: ` +
			`{kind: MeshService, name: a, port: 80}}]}}`, ""},
		{`{type: Mesh, name: m}`, ""},
		{`{type: MeshIdentity, mesh: m, name: i, spec: {provider: {type: Bundled}}}`, "selects no proxy"},
		{`{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: {matchLabels: {}}}, provider: ` +
			`{type: Bundled}}}`, ""},
		{`{type: MeshTrafficPermission, mesh: m, name: p, spec: {}}`, "spec.rules: names no caller"},
	} {
		got := strings.Join(put(t, w, test.doc).Warnings, "\n")
		if !strings.Contains(got, test.warns) || (got == "") != (test.warns == "") {
			t.Errorf("%s: warnings %q, want %q", test.doc, got, test.warns)
		}
	}
}

// TestWarningsOfWhatKumaTakes: what is taken as Kuma takes it, and may not be meant, is a warning.
func TestWarningsOfWhatKumaTakes(t *testing.T) {
	w, _ := newEastWriter(t)
	const service = `{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneTags: {a: b}}, ports: [{port: 80, ` +
		`appProtocol: %s}]}}`
	const dataplane = `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, %s}]}}`
	warns := map[string]string{
		fmt.Sprintf(service, "thrift"): `spec.ports[0].appProtocol: is "thrift", which proxies serve as tcp`,
		fmt.Sprintf(service, "HTTP"):   "",
		fmt.Sprintf(dataplane, "protocol: MySQL"): `networking.inbound[0].protocol: is "MySQL", which proxies serve ` +
			"as tcp",
		fmt.Sprintf(dataplane, "tags: {kuma.io/protocol: mysql}"): "networking.inbound[0].tags[kuma.io/protocol]: is " +
			`"mysql", which proxies serve as tcp`,
		fmt.Sprintf(dataplane, "tags: {kuma.io/protocol: HTTP}"): "",
		`{type: MeshExternalService, mesh: m, name: e, spec: {match: {port: 80}}}`: "spec.endpoints: is empty, so that " +
			"each request to the service fails",
		`{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: {to: [{targetRef: {kind: Mesh}, default: {}}]}}`: "" +
			"spec.to[0].default: is empty, so that the item has no effect",
		`{type: MeshTLS, mesh: m, name: t, spec: {rules: [{default: {}}]}}`: "spec.rules[0].default: is empty",
	}
	for _, d := range kind.Policies() {
		switch name := d.Describe().Name; name {
		case "MeshTimeout", "MeshCircuitBreaker", "MeshProxyPatch": // Kuma rejects them too
		case "MeshTrafficPermission", "MeshPassthrough": // without items they have an effect
		default:
			warns[fmt.Sprintf("{type: %s, mesh: m, name: p, spec: {targetRef: {kind: Mesh}}}", name)] =
				"spec: has no item of `to` or `rules`, so that the policy has no effect"
		}
	}
	for doc, want := range warns {
		got := strings.Join(put(t, w, doc).Warnings, "\n")
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", doc, got, want)
		}
	}
}

// TestSelectorsThatSelectNothing: a selector of labels that no resource of the zone can have is a warning, for each
// kind that selects; a zone that others reach may get such resources.
func TestSelectorsThatSelectNothing(t *testing.T) {
	alone, _ := newWriterWithMesh(t, admission.Options{Zone: "east"})
	joined, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	global, _ := newWriterWithMesh(t, admission.Options{})
	kubernetes, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Environment: kind.Kubernetes,
		SystemNamespace: "kuma-system"})
	for _, test := range []struct {
		doc, field               string
		remote, alsoOnKubernetes bool
	}{
		{`{type: MeshPassthrough, mesh: m, name: p, spec: {targetRef: {kind: Dataplane, labels: {k8s.kuma.io/namespace: ` +
			`a}}, default: {passthroughMode: None}}}`, "spec.targetRef.labels[k8s.kuma.io/namespace]", false, false},
		{`{type: MeshPassthrough, mesh: m, name: q, spec: {targetRef: {kind: MeshSubset, tags: {kuma.io/zone: west}}, ` +
			`default: {passthroughMode: None}}}`, "spec.targetRef.tags[kuma.io/zone]", false, true},
		{`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneTags: {k8s.kuma.io/namespace: a}}, ports: ` +
			`[{port: 80}]}}`, "spec.selector.dataplaneTags[k8s.kuma.io/namespace]", false, false},
		{`{type: MeshTimeout, mesh: m, name: t, spec: {to: [{targetRef: {kind: MeshService, labels: ` +
			`{k8s.kuma.io/namespace: a}}, default: {idleTimeout: 1m}}]}}`,
			"spec.to[0].targetRef.labels[k8s.kuma.io/namespace]", true, false},
		{`{type: HostnameGenerator, name: g, spec: {selector: {meshService: {matchLabels: {kuma.io/zone: west}}}, ` +
			`template: "{{ .Name }}.mesh"}}`, "spec.selector.meshService.matchLabels[kuma.io/zone]", true, true},
		{`{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: {matchLabels: {kuma.io/zone: west}}}, ` +
			`provider: {type: Bundled}}}`, "spec.selector.dataplane.matchLabels[kuma.io/zone]", false, true},
	} {
		for _, c := range []struct {
			name  string
			w     *admission.Writer
			warns bool
		}{{"alone", alone, true}, {"joined", joined, !test.remote}, {"global", global, false},
			{"on Kubernetes", kubernetes, test.alsoOnKubernetes}} {
			result, err := c.w.Put(t.Context(), parse(t, test.doc), admission.Change{DryRun: true})
			if err != nil {
				var e *resource.Error
				if errors.As(err, &e) && e.Code == resource.Forbidden { // global writes the kind
					continue
				}
				t.Fatal(err)
			}
			got := strings.Contains(strings.Join(result.Warnings, "\n"), test.field)
			if got != c.warns {
				t.Errorf("%s, %s: warnings %q, want one about %s: %v", test.doc, c.name, result.Warnings, test.field,
					c.warns)
			}
		}
	}
}

// TestSNIsAtAZoneEgress: a ZoneEgress is no Dataplane, so a rule of Dataplanes about an external service has no effect
// there. One of the whole mesh has.
func TestSNIsAtAZoneEgress(t *testing.T) {
	w, _ := newEastWriter(t)
	put(t, w, `{type: Mesh, name: m, mtls: {enabledBackend: a, backends: [{name: a, type: builtin}]}}`)
	put(t, w, `{type: Dataplane, mesh: m, name: ze, labels: {app: egress}, networking: {address: 10.0.0.1, `+
		`zoneEgress: {address: 10.0.0.1, port: 10002}}}`)
	const sni = `{type: Exact, value: a6b70ca98a72441a7.mail.443.m.esms}`
	const id = `{type: Exact, value: "spiffe://m/a"}`
	for _, policy := range []struct{ kind, rules string }{
		{"MeshTrafficPermission", `[{matches: [{sni: ` + sni + `}], default: {allow: [{spiffeID: ` + id + `}]}}]`},
		{"MeshTrafficPermission", `[{default: {allow: [{spiffeID: ` + id + `, sni: ` + sni + `}]}}]`},
		{"MeshTimeout", `[{matches: [{sni: ` + sni + `}], default: {idleTimeout: 1m}}]`},
		{"MeshRateLimit", `[{matches: [{sni: ` + sni + `}], default: {local: {tcp: {connectionRate: ` +
			`{num: 1, interval: 1s}}}}}]`},
	} {
		const older = "no effect at the ZoneEgress older"
		write := func(target string) string {
			return strings.Join(put(t, w, `{type: `+policy.kind+`, mesh: m, name: p, spec: {`+target+`rules: `+
				policy.rules+`}}`).Warnings, "\n")
		}
		const egresses = `targetRef: {kind: Dataplane, labels: {app: egress}}, `
		if got := write(egresses); strings.Contains(got, older) {
			t.Errorf("%s without a ZoneEgress: %q", policy.kind, got)
		}
		put(t, w, `{type: ZoneEgress, name: older, networking: {address: 10.0.0.2, port: 10002}}`)
		if got := write(egresses); !strings.Contains(got, older) {
			t.Errorf("%s of Dataplanes: %q, want a warning that it has %s", policy.kind, got, older)
		}
		if got := write(""); strings.Contains(got, older) {
			t.Errorf("%s of the mesh: %q", policy.kind, got)
		}
		if err := w.Delete(t.Context(), kind.ZoneEgresses.Key("", "older"), admission.Change{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoutingWithoutZoneEgress: a write that turns it on warns of the zones that it cuts off.
func TestRoutingWithoutZoneEgress(t *testing.T) {
	const mesh = `{type: Mesh, name: m, routing: {zoneEgress: true}}`
	w, _ := newWriterWithMesh(t, admission.Options{})
	dry := func() string {
		t.Helper()
		result, err := w.Put(t.Context(), parse(t, mesh), admission.Change{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(result.Warnings, "\n")
	}
	receive := func(zone string, of resource.Descriptor, name, spec string) {
		t.Helper()
		if err := w.Receive(t.Context(), received(kind.Owner{Zone: zone}, of, name, spec)); err != nil {
			t.Fatal(err)
		}
	}
	if got := dry(); got != "" {
		t.Errorf("a mesh without proxies: %s", got)
	}
	receive("west", kind.Dataplanes, "web", `{"networking":{"address":"10.0.0.1","inbound":[{"port":80}]}}`)
	receive("east", kind.Dataplanes, "web", `{"networking":{"address":"10.0.0.1","inbound":[{"port":80}]}}`)
	if got := dry(); !strings.Contains(got,
		"routing.zoneEgress: the zones east, west have no zone egress, so their proxies cannot reach other zones") {
		t.Errorf("two zones without an egress: %q", got)
	}
	receive("east", kind.Dataplanes, "exit", `{"networking":{"zoneEgress":{"address":"10.0.0.2","port":10002}}}`)
	if got := dry(); !strings.Contains(got, "zone west has no zone egress") {
		t.Errorf("one zone without an egress: %q", got)
	}
	receive("west", kind.ZoneEgresses, "ze", `{"zone":"west","networking":{"address":"10.0.0.3","port":10002}}`)
	if got := dry(); got != "" {
		t.Errorf("all zones have one: %q", got)
	}
}

// TestPermissionsWithoutEffect: a rule without effect looks like protection.
func TestPermissionsWithoutEffect(t *testing.T) {
	w, _ := newEastWriter(t)
	for _, doc := range []string{
		`{type: MeshIdentity, mesh: m, name: i, spec: {selector: {dataplane: {matchLabels: {}}}, provider: ` +
			`{type: Bundled}}}`,
		`{type: Dataplane, mesh: m, name: web, labels: {app: web}, networking: {address: 10.0.0.1, inbound: [{port: ` +
			`80}, {port: 81, name: api}]}}`,
		`{type: Dataplane, mesh: m, name: ingress, labels: {app: ingress}, networking: {zoneIngress: ` +
			`{address: 10.0.0.2, ` +
			`port: 10001, advertisedAddress: 192.0.2.1, advertisedPort: 1}}}`,
		`{type: Dataplane, mesh: m, name: exit, labels: {app: exit}, networking: {zoneEgress: {address: 10.0.0.3, ` +
			`port: 10002, name: out}}}`,
		`{type: Dataplane, mesh: m, name: both, labels: {app: both}, networking: {zoneIngress: {address: 10.0.0.4, ` +
			`port: 10001, name: in, advertisedAddress: 192.0.2.1, advertisedPort: 2}, zoneEgress: {address: ` +
			`10.0.0.4, port: 10002}}}`,
	} {
		put(t, w, doc)
	}
	const (
		caller  = `default: {allow: [{spiffeID: {type: Exact, value: "spiffe://a/b"}}]}`
		known   = "aed22d4b0ed1c902b.api.443.default.mes"
		of      = `matches: [{sni: {type: Exact, value: ` + known + `}}]`
		ingress = "spec.rules[0]: has no effect on a zone ingress"
		apart   = "spec.rules[0].matches: is about external services"
	)
	bySNI := func(value string) string {
		return `default: {deny: [{sni: {type: Exact, value: ` + value + `}}]}`
	}
	for _, test := range []struct{ target, rule, warns string }{
		{`{kind: Dataplane, name: ingress}`, caller, ingress},
		{`{kind: Dataplane, labels: {app: ingress}}`, caller, ingress},
		{`{kind: Dataplane, name: both, sectionName: in}`, caller, ingress},
		{`{kind: Dataplane, name: both, sectionName: "10002"}`, caller, ""},
		{`{kind: Dataplane, name: both}`, caller, ""},
		{`{kind: Dataplane}`, caller, ""},
		{`{kind: Mesh}`, of + ", " + caller, ""},
		{`{kind: Dataplane, name: ingress}`, `default: {}`, "spec.rules: names no caller"},
		{`{kind: Dataplane, name: web}`, of + ", " + caller, apart},
		{`{kind: Dataplane, name: web, sectionName: "80"}`, of, apart},
		{`{kind: Dataplane, name: exit, sectionName: out}`, of + ", " + caller, ""},
		{`{kind: Dataplane, name: to-come}`, of + ", " + caller, ""},
		{`{kind: Dataplane, name: exit}`, `matches: [{sni: {type: Exact, value: api.example.com}}]`,
			`spec.rules[0].matches[0].sni.value: "api.example.com" is not the SNI of an external service`},
		{`{kind: Dataplane, name: exit}`, bySNI("api.example.com"),
			`spec.rules[0].default.deny[0].sni.value: "api.example.com" is not the SNI of an external service, so ` +
				`that the entry has no effect`},
		{`{kind: Dataplane, name: web}`, bySNI(known),
			"spec.rules[0].default.deny[0].sni: is about an external service"},
		{`{kind: Dataplane, name: exit}`, of + ", " + bySNI(known), ""},
		{`{kind: Mesh}`, bySNI(known), "spec.rules[0]: has no matches, so that it applies to every external service"},
		{`{kind: Mesh}`, `matches: [{sni: {type: Exact, value: a6b70ca98a72441a7.web.80.default.ms}}]`,
			`is not the SNI of an external service`},
	} {
		got := strings.Join(put(t, w, `{type: MeshTrafficPermission, mesh: m, name: p, spec: {targetRef: `+test.target+
			`, rules: [{`+test.rule+`}]}}`).Warnings, "\n")
		if !strings.Contains(got, test.warns) || (got == "") != (test.warns == "") {
			t.Errorf("%s %s: warnings %q, want %q", test.target, test.rule, got, test.warns)
		}
	}
}

func TestExpiredRootWarning(t *testing.T) {
	w, _ := newEastWriter(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old root"}, IsCA: true,
		BasicConstraintsValid: true,
		NotAfter:              time.Date(2020, 2, 3, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	trust := kind.MeshTrusts.Make("m", "t",
		kind.MeshTrust{TrustDomain: "a", CABundles: []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: text}}}})
	result, err := w.Put(t.Context(), trust, admission.Change{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"spec.caBundles[0]: CN=old root has expired on 2020-02-03"}, result.Warnings); d != "" {
		t.Error(d)
	}
}
