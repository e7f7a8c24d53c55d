package kind_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/kind"
	"weft/resource"
)

// TestDocumentsThatKumaTakes reads documents that kumactl 2.14.3 takes, one for each spelling and each empty part of
// the kinds. Each is taken, or its first line is the reason why it is not, as docs/coming-from-kuma.md says.
func TestDocumentsThatKumaTakes(t *testing.T) {
	raw, err := os.ReadFile("testdata/taken-by-kuma.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range txtar.Parse(raw).Files {
		t.Run(file.Name, func(t *testing.T) {
			document := string(file.Data)
			reason, rest, decided := strings.Cut(strings.TrimPrefix(document, "# "), "\n")
			if decided = decided && strings.HasPrefix(document, "# "); decided {
				document = rest
			}
			problems := problemsOf(document)
			switch {
			case !decided && problems != "":
				t.Errorf("%sis rejected: %s", document, problems)
			case decided && !strings.Contains(problems, reason):
				t.Errorf("%s: got %q, want %q", document, problems, reason)
			}
		})
	}
}

// problemsOf returns why a document is rejected; empty: it is taken.
func problemsOf(document string) string {
	o, err := resource.Parse([]byte(document), kind.ByName)
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, p := range kind.ByName(o.Key().Kind).Prepare(o) {
		texts = append(texts, p.Field+": "+p.Reason)
	}
	return strings.Join(texts, "; ")
}

// TestSpellingsOfKumaMeanTheSame: what Kuma does not tell apart is stored, or served, as one.
func TestSpellingsOfKumaMeanTheSame(t *testing.T) {
	for _, c := range []struct{ written, same string }{
		{`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneTags: {a: b}}, ports: [{port: 80, ` +
			`appProtocol: Http2}, {port: 81, appProtocol: thrift}]}}`,
			`{type: MeshService, mesh: m, name: s, spec: {selector: {dataplaneTags: {a: b}}, ports: [{port: 80, ` +
				`appProtocol: http2}, {port: 81, appProtocol: tcp}]}}`},
		{`{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, protocol: GRPC}, ` +
			`{port: 81, protocol: mysql}]}}`,
			`{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, protocol: grpc}, ` +
				`{port: 81, protocol: tcp}]}}`},
		{`{type: MeshExternalService, mesh: m, name: e, spec: {match: {port: 1}, endpoints: [{address: A_b.Example.com., ` +
			`port: 1}], tls: {enabled: true, verification: {serverName: A.b.}}}}`,
			`{type: MeshExternalService, mesh: m, name: e, spec: {match: {port: 1}, endpoints: [{address: ` +
				`a_b.example.com, port: 1}], tls: {enabled: true, verification: {serverName: a.b}}}}`},
		{`{type: MeshPassthrough, mesh: m, name: p, spec: {default: {appendMatch: [{type: Domain, value: ` +
			`"*.A_b.com.", protocol: tls}, {type: Domain, value: "*", protocol: tls}]}}}`,
			`{type: MeshPassthrough, mesh: m, name: p, spec: {default: {appendMatch: [{type: Domain, value: "*.a_b.com", ` +
				`protocol: tls}, {type: Domain, value: "*", protocol: tls}]}}}`},
		{`{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
			`{loadBalancer: {type: Random, random: {}, roundRobin: {}}}}]}}`,
			`{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: {to: [{targetRef: {kind: Mesh}, default: ` +
				`{loadBalancer: {type: Random}}}]}}`},
		{`{type: MeshFaultInjection, mesh: m, name: f, spec: {rules: [{default: {http: [{}, {abort: {httpStatus: 500, ` +
			`percentage: 1}}]}}]}}`,
			`{type: MeshFaultInjection, mesh: m, name: f, spec: {rules: [{default: {http: [{abort: {httpStatus: 500, ` +
				`percentage: 1}}]}}]}}`},
	} {
		written, same := stored(t, prepared(t, c.written)), stored(t, prepared(t, c.same))
		if string(written) != string(same) {
			t.Errorf("%s\nis stored as %s\nwant %s", c.written, written, same)
		}
	}
	dp := prepared(t, `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: `+
		`{kuma.io/protocol: HTTP}}, {port: 81, tags: {kuma.io/protocol: mysql}}]}}`).(*resource.Object[kind.Dataplane])
	n := &dp.Spec.Networking
	if n.Effective(n.Inbound[0]).Protocol != kind.HTTP || n.Effective(n.Inbound[1]).Protocol != kind.TCP ||
		n.Inbound[0].Tags[kind.ProtocolTag] != "HTTP" {
		t.Errorf("the inbounds are %+v", n.Inbound)
	}
}

// prepared reads a valid document.
func prepared(t *testing.T, document string) resource.Any {
	t.Helper()
	o, err := resource.Parse([]byte(document), kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	if problems := kind.ByName(o.Key().Kind).Prepare(o); len(problems) > 0 {
		t.Fatalf("%s: %v", document, problems)
	}
	return o
}
