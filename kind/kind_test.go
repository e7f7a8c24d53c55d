package kind_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/schema/schematest"
	"weft/kind"
	"weft/resource"
)

// problems reads a resource and returns its problems, one per line: "field: reason".
func problems(t *testing.T, doc string) []string {
	t.Helper()
	o, err := resource.Parse([]byte(doc), kind.ByName)
	var found resource.Problems
	if err == nil {
		found = kind.ByName(o.Key().Kind).Prepare(o)
	} else if rejected := (*resource.Error)(nil); errors.As(err, &rejected) {
		found = rejected.Problems
	}
	if err != nil && len(found) == 0 {
		t.Fatalf("%v in\n%s", err, doc)
	}
	if len(found) == 0 {
		described(t, o, doc)
	}
	var lines []string
	for _, p := range found {
		lines = append(lines, p.Field+": "+p.Reason)
	}
	return lines
}

// described requires that the schema of a kind accepts what validation accepted.
func described(t *testing.T, o resource.Any, doc string) {
	t.Helper()
	if err := schematest.Check(kind.ByName(o.Key().Kind), []byte(doc)); err != nil {
		t.Errorf("%v in\n%s", err, doc)
	}
}

// rejected is a document, and the beginning of each of its problems.
type rejected struct {
	name, doc string
	want      []string
}

// rejects inserts each document into a frame and compares the problems.
func rejects(t *testing.T, frame string, tests []rejected) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := problems(t, fmt.Sprintf(frame, test.doc))
			for _, want := range test.want {
				if !anyHasPrefix(got, want) {
					t.Errorf("no problem begins with %q", want)
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("%d problems, want %d", len(got), len(test.want))
			}
			if t.Failed() {
				t.Logf("problems:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func anyHasPrefix(lines []string, prefix string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

func accepts(t *testing.T, doc string) resource.Any {
	t.Helper()
	if got := problems(t, doc); len(got) > 0 {
		t.Fatalf("rejected:\n%s\nin\n%s", strings.Join(got, "\n"), doc)
	}
	o, err := resource.Parse([]byte(doc), kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	kind.ByName(o.Key().Kind).Prepare(o)
	return o
}

func TestKindsAreWhole(t *testing.T) {
	paths := map[string]string{}
	for _, d := range kind.All() {
		info := d.Describe()
		if kind.ByName(info.Name) != d {
			t.Errorf("%s is not found by its name, or there are two", info.Name)
		}
		for _, path := range info.Segments() {
			if other, taken := paths[path]; taken || path == "" {
				t.Errorf("%s and %s have the path %q", info.Name, other, path)
			}
			paths[path] = info.Name
		}
		if info.StatusOf != "" && kind.StatusKind(info.StatusOf) != d {
			t.Errorf("%s is not found as the status of %s", info.Name, info.StatusOf)
		}
	}
	if kind.ByName("") != nil || kind.StatusKind("") != nil || kind.StatusKind("Secret") != nil {
		t.Error("a kind is found where there is none")
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 254)
	for _, test := range []struct {
		name      string
		mesh, any bool // whether the name is valid for a mesh, or for any other resource
	}{
		{"a", true, true},
		{"a-1", true, true},
		{long[:63], true, true},
		{long[:64], false, true},
		{long[:253], false, true},
		{long, false, false},
		{"1a", false, true},
		{"a.b", false, true},
		{"", false, false},
		{"A", false, false},
		{"a_b", false, false},
		{"-a", false, false},
		{"a-", false, false},
		{"a..b", false, false},
		{"a/b", false, false},
		{"a\n", false, false},
		{"ä", false, false},
	} {
		mesh := kind.Meshes.Make("", test.name, kind.Mesh{})
		if got := kind.Meshes.Prepare(mesh); (len(got) == 0) != test.mesh {
			t.Errorf("Mesh %q: %v", test.name, got)
		}
		secret := kind.Secrets.Make("m", test.name, kind.Secret{Data: []byte("x")})
		if got := kind.Secrets.Prepare(secret); (len(got) == 0) != test.any {
			t.Errorf("Secret %q: %v", test.name, got)
		}
	}
}

func TestLabels(t *testing.T) {
	rejects(t, `{type: Mesh, name: m, labels: {%s}}`, []rejected{
		{"good", `a: b, kuma.io/workload: w-1.x_Y, empty: "", kuma.io/display-name: ` + strings.Repeat("a", 200), nil},
		{"a name", `"a b": c`, []string{"labels[a b]: is not a label's name"}},
		{"a prefix", `"A/b": c`, []string{"labels[A/b]: is not a label's name"}},
		{"a long name", strings.Repeat("a", 64) + `: c`, []string{"labels[aaa"}},
		{"a value", `a: "b c", d: -e`, []string{"labels[a]: \"b c\" is not", "labels[d]: \"-e\" is not"}},
		{"a long value", `a: ` + strings.Repeat("a", 64), []string{"labels[a]: \"aaa"}},
		{"what is gone", `kuma.io/proxy-type: ingress`, []string{"labels[kuma.io/proxy-type]: has no meaning here"}},
	})
}

func TestSecret(t *testing.T) {
	accepts(t, `{type: Secret, mesh: m, name: s, data: c2VjcmV0}`)
	rejects(t, `{type: Secret, mesh: m, name: s, %s}`, []rejected{
		{"no data", `data: ""`, []string{"data: is required"}},
		{"no base64", `data: "not base64"`, []string{"data: is not base64, from its character 4 on"}},
		{"too much", `data: "` + strings.Repeat("AAAA", 1<<19) + `"`,
			[]string{"data: has 2097152 characters, want 1441802 at most"}},
	})
}

func TestZone(t *testing.T) {
	o := accepts(t, `{type: Zone, name: east}`)
	if enabled := resource.SpecOf(o).(*kind.Zone).Enabled; enabled == nil || !*enabled {
		t.Error("a zone is not enabled by default")
	}
	accepts(t, `{type: Zone, name: east, enabled: false}`)
	rejects(t, `{type: Zone, %s}`, []rejected{
		{"a name with a dot", `name: a.b`, []string{`name: "a.b" is not a name of a mesh or zone`}},
		{"a value", `name: east, enabled: "no"`, []string{"enabled: is a string, want true or false"}},
		{"a field", `name: east, ingress: {}`, []string{"ingress: is not a known field"}},
	})
}

func TestZoneIngress(t *testing.T) {
	accepts(t, `{type: ZoneIngress, name: zi, zone: east, networking: {address: 10.0.0.1, port: 10001, `+
		`advertisedAddress: 192.168.1.100, advertisedPort: 30001, admin: {port: 9901}}}`)
	accepts(t, `{type: ZoneIngress, name: zi, networking: {address: 10.0.0.1, port: 10001}}`)
	rejects(t, `{type: ZoneIngress, name: zi, %s}`, []rejected{
		{"nothing", `networking: {}`,
			[]string{"networking.address: is required", "networking.port: is 0, want a port"}},
		{"half of where it is dialed", `networking: {address: 10.0.0.1, port: 1, advertisedPort: 1}`,
			[]string{"networking.advertisedAddress: is required"}},
		{"the other half", `networking: {address: 10.0.0.1, port: 1, advertisedAddress: 10.0.0.2}`,
			[]string{"networking.advertisedPort: is 0, want a port"}},
		{"unspecified addresses", `networking: {address: "::", port: 1, advertisedAddress: "a local", advertisedPort: 1}`,
			[]string{
				"networking.address: :: means every address",
				`networking.advertisedAddress: "a local" is neither an IP address nor a host name`}},
		{"a zone", `zone: a.b, networking: {address: 10.0.0.1, port: 1}`,
			[]string{`zone: "a.b" is not a name of a mesh or zone`}},
		{"Envoy's own port", `networking: {address: 127.0.0.1, port: 9901, admin: {port: 9901}}`,
			[]string{"networking.admin.port: 127.0.0.1:9901 is taken"}},
	})
}

func TestZoneEgress(t *testing.T) {
	accepts(t,
		`{type: ZoneEgress, name: ze, zone: east, networking: {address: 10.0.0.2, port: 10002, admin: {port: 9901}}}`)
	rejects(t, `{type: ZoneEgress, name: ze, %s}`, []rejected{
		{"nothing", `networking: {}`,
			[]string{"networking.address: is required", "networking.port: is 0, want a port"}},
		{"unspecified addresses", `networking: {address: 0.0.0.0, port: 1}`,
			[]string{"networking.address: 0.0.0.0 means every address"}},
		{"a host name", `networking: {address: a.local, port: 1}`,
			[]string{`networking.address: "a.local" is not an IP address`}},
		{"a zone", `zone: a.b, networking: {address: 10.0.0.1, port: 1}`,
			[]string{`zone: "a.b" is not a name of a mesh or zone`}},
		{"Envoy's own port", `networking: {address: 127.0.0.1, port: 9901, admin: {port: 9901}}`,
			[]string{"networking.admin.port: 127.0.0.1:9901 is taken"}},
		{"an address for other zones", `networking: {address: 10.0.0.1, port: 1, advertisedAddress: 10.0.0.2}`,
			[]string{"networking.advertisedAddress: is not a known field"}},
	})
}

func TestMeshMultiZoneService(t *testing.T) {
	accepts(t, `{type: MeshMultiZoneService, mesh: m, name: web, spec: {selector: {meshService: {matchLabels: `+
		`{kuma.io/display-name: web}}}, ports: [{port: 80, targetPort: 8080, name: http, appProtocol: http}]}}`)
	accepts(t,
		`{type: MeshMultiZoneService, mesh: m, name: all, spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`)
	rejects(t, `{type: MeshMultiZoneService, mesh: m, name: web, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec.selector.meshService: is required: the labels",
			"spec.ports: is required: at least one port"}},
		{"labels", `{selector: {meshService: {matchLabels: {a: "b c"}}}, ports: [{port: 80}]}`,
			[]string{"spec.selector.meshService.matchLabels[a]: "}},
		{"ports", `{selector: {meshService: {}}, ports: [{port: 80, name: a}, {port: 80, appProtocol: udp}, {port: ` +
			`81, name: a}]}`, []string{
			"spec.ports[1].port: 80 is the port of spec.ports[0] too", `spec.ports[1].appProtocol: is "udp"`,
			`spec.ports[2].name: "a" is the name of spec.ports[0] too`}},
	})
}

// named returns n ingresses with a host name each.
func named(n int) (ingresses []kind.ZoneProxyAddress) {
	for i := range n {
		ingresses = append(ingresses,
			kind.ZoneProxyAddress{Name: fmt.Sprintf("i%d", i), Address: fmt.Sprintf("lb%d.example", i), Port: 1})
	}
	return ingresses
}

// TestMeshZoneAddress: other zones dial the address in the row, whichever zone sent it.
func TestMeshZoneAddress(t *testing.T) {
	for name, test := range map[string]struct {
		ingresses []kind.ZoneProxyAddress
		problems  []string
	}{
		"two": {[]kind.ZoneProxyAddress{{Name: "a", Address: "10.0.0.1", Port: 1},
			{Name: "a", Address: "10.0.0.1", Port: 1, Legacy: true}}, nil},
		"unspecified addresses": {[]kind.ZoneProxyAddress{{Name: "a", Address: "0.0.0.0", Port: 1},
			{Name: "b", Address: "0x7f.1", Port: 0}, {Name: "c", Address: "localhost", Port: 1}}, []string{
			"spec.ingresses[0].address: 0.0.0.0 means every address; name one",
			`spec.ingresses[1].address: "0x7f.1" is neither an IP address nor a host name: want lower case letters, ` +
				`digits, '-' and '_', in parts between dots, the last not a number`,
			"spec.ingresses[1].port: is 0, want a port from 1 to 65535",
			`spec.ingresses[2].address: "localhost" is the name of every machine for itself; name the machine ` +
				`as others do`}},
		"host names": {named(64), nil},
		"too many host names": {named(65),
			[]string{"spec.ingresses: has 65 host names, want 64 at most, since each zone resolves all of them"}},
		"a name twice": {[]kind.ZoneProxyAddress{{Name: "a", Address: "10.0.0.1", Port: 1},
			{Name: "a", Address: "10.0.0.2", Port: 1}}, []string{
			`spec.ingresses[1].name: "a" is the name of spec.ingresses[0] too`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range kind.MeshZoneAddresses.Prepare(kind.MeshZoneAddresses.Make("m", "east",
				kind.MeshZoneAddress{Ingresses: test.ingresses})) {
				got = append(got, p.Field+": "+p.Reason)
			}
			if d := cmp.Diff(test.problems, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestGlobalSecret(t *testing.T) {
	accepts(t, `{type: GlobalSecret, name: s, data: c2VjcmV0}`)
	rejects(t, `{type: GlobalSecret, name: s, %s}`, []rejected{
		{"no data", `data: ""`, []string{"data: is required"}},
		{"no base64", `data: "not base64"`, []string{"data: is not base64, from its character 4 on"}},
	})
}

func TestHostnameGenerator(t *testing.T) {
	accepts(t, `{type: HostnameGenerator, name: g, spec: {selector: {meshService: {matchLabels: {}}}, template: "{{ `+
		`.DisplayName }}.svc.{{.Zone}}.mesh.local"}}`)
	accepts(t, `{type: HostnameGenerator, name: g, spec: {selector: {meshService: {matchLabels: {a: b}}}, template: `+
		`'{{ .Name }}-{{ .Mesh }}.{{ .Namespace }}.{{ label "team" }}.corp'}}`)
	accepts(t, `{type: HostnameGenerator, name: g, spec: {selector: {meshExternalService: {matchLabels: {a: b}}}, `+
		`template: "{{ .DisplayName }}.extsvc.mesh.local"}}`)
	rejects(t, `{type: HostnameGenerator, name: g, spec: %s}`, []rejected{
		{"nothing", `{}`,
			[]string{"spec.selector: has 0 selections",
				`spec.template: is required: for example "{{ .DisplayName }}.svc`}},
		{"labels", `{selector: {meshService: {matchLabels: {a: "b c"}}}, template: a}`,
			[]string{"spec.selector.meshService.matchLabels[a]: "}},
		{"labels of external services", `{selector: {meshExternalService: {matchLabels: {a: "b c"}}}, template: a}`,
			[]string{"spec.selector.meshExternalService.matchLabels[a]: "}},
		{"two selections", `{selector: {meshService: {}, meshExternalService: {}}, template: a}`,
			[]string{"spec.selector: has 2 selections, want exactly one of meshService, meshMultiZoneService, " +
				"meshExternalService"}},
		{"an unknown action", `{selector: {meshService: {}}, template: "{{ .Workload }}.local"}`, []string{
			`spec.template: "{{ .Workload }}.local" is not a template of {{ .DisplayName }}, {{ .Name }}, {{ ` +
				`.Namespace }}, {{ .Mesh }}, {{ .Zone }} and {{ label "NAME" }}`}},
		{"an action that does not end", `{selector: {meshService: {}}, template: "{{ .Mesh }}.{{ .Zone"}`,
			[]string{`spec.template: "{{ .Mesh }}.{{ .Zone" is not a template`}},
		{"no host name", `{selector: {meshService: {}}, template: "{{ .Name }}_x.Local"}`,
			[]string{`spec.template: "{{ .Name }}_x.Local" does not render to a host name`}},
		{"an IP address", `{selector: {meshService: {}}, template: "{{ .Name }}.0.0.1"}`,
			[]string{`spec.template: "{{ .Name }}.0.0.1" does not render`}},
		{"a long part", `{selector: {meshService: {}}, template: "` + strings.Repeat("a", 64) + `.local"}`,
			[]string{"spec.template: \"aaa"}},
		{"what comes later", `{selector: {meshService: {}, meshExternalService: {}}, extension: {}, template: a}`,
			[]string{
				"spec.extension: has no meaning here"}},
	})
}

// TestWhatOnlyAdministratorsReadIsEncrypted: a value that API readers may not read is encrypted in the database.
func TestWhatOnlyAdministratorsReadIsEncrypted(t *testing.T) {
	for _, d := range kind.All() {
		if info := d.Describe(); info.AdminOnly && !info.Encrypted {
			t.Errorf("%s is read by administrators only, and stored for everybody", info.Name)
		}
	}
}

// TestEveryKindHasItsWriter: a kind states which users write it, or that only the control plane or administrators do.
// The kinds that speak for a whole mesh are listed, since the compiler does not know them.
func TestEveryKindHasItsWriter(t *testing.T) {
	operators := strings.Fields("Mesh Zone ZoneIngress ZoneEgress MeshIdentity MeshTrust MeshExternalService " +
		"MeshMultiZoneService HostnameGenerator MeshProxyPatch ContainerPatch")
	for _, d := range kind.All() {
		info := d.Describe()
		want := resource.Writer
		switch {
		case info.ReadOnly || info.Hidden:
			want = ""
		case info.AdminOnly:
			want = resource.Administrator
		case slices.Contains(operators, info.Name):
			want = resource.Operator
		}
		if info.WrittenBy != want {
			t.Errorf("%s: WrittenBy is %q, want %q", info.Name, info.WrittenBy, want)
		}
		if kind.OfOperators(info.Name) && want != resource.Operator {
			t.Errorf("%s is in the system namespace, and WrittenBy is %q", info.Name, info.WrittenBy)
		}
	}
	if kind.OfOperators("MeshProxyPatch") || !kind.OfOperators("ContainerPatch") {
		t.Error("a MeshProxyPatch may be in the namespace of its Pods, a ContainerPatch only in the system namespace")
	}
}
