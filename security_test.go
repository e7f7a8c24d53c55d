package weft_test

import (
	"bytes"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const securityPage = "docs/security.md"

// securityTable returns the rows of the table below a heading of docs/security.md, each as its cells.
func securityTable(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := bytes.Cut(page, []byte("\n"+heading+"\n"))
	if section, _, _ = bytes.Cut(section, []byte("\n#")); !found {
		t.Fatalf("%s has no heading %q", securityPage, heading)
	}
	for line := range strings.Lines(string(section)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") {
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	if len(rows) < 2 {
		t.Fatalf("%s has no table below %q", securityPage, heading)
	}
	return rows[1:] // without the names of the columns
}

// compareRows fails for a name without its row, for a row about a name that does not exist, and for a name with two
// rows.
func compareRows(t *testing.T, what string, listed, want []string) {
	t.Helper()
	slices.Sort(listed)
	for i, name := range listed {
		if i > 0 && listed[i-1] == name {
			t.Errorf("%s has two rows of the %s %s", securityPage, what, name)
		}
		if !slices.Contains(want, name) {
			t.Errorf("%s has a row of the %s %s, which does not exist", securityPage, what, name)
		}
	}
	for _, name := range want {
		if !slices.Contains(listed, name) {
			t.Errorf("%s has no row of the %s %s: state who writes it, what its worst value does to others, and the "+
				"test that shows it", securityPage, what, name)
		}
	}
	if len(want) == 0 {
		t.Errorf("no %s is found, so nothing is compared", what)
	}
}

// TestWritersOfKinds: each kind has its row in docs/security.md, with the action of its writers, and with its direction
// between zones.
func TestWritersOfKinds(t *testing.T) {
	var listed, want []string
	writers := map[string]string{}
	for _, row := range securityTable(t, "### Kinds") {
		for name := range strings.SplitSeq(row[0], ", ") {
			listed = append(listed, name)
			writers[name] = row[1]
		}
	}
	for _, d := range kind.All() {
		info := d.Describe()
		want = append(want, info.Name)
		first, zones := "the control plane", ""
		if info.WrittenBy != "" {
			first = "`" + string(info.WrittenBy) + "`"
		}
		switch {
		case info.Sync.Has(resource.ZoneToZones):
			zones = "a zone for all zones"
		case info.Sync.Has(resource.ZoneToGlobal):
			zones = "a zone for itself"
		case info.Sync.Has(resource.GlobalToZones):
			zones = "global for zones"
		}
		by, sender, _ := strings.Cut(writers[info.Name], "; ")
		if by, _, _ = strings.Cut(by, ","); by != first || sender != zones {
			t.Errorf("%s: the row of %s is written by %q, want %q and %q", securityPage, info.Name, writers[info.Name],
				first, zones)
		}
	}
	compareRows(t, "kind", listed, want)
}

// TestReadObjectsOfKubernetes: each object that the roles of the chart let weft read has its row in docs/security.md. A
// control plane reads no other object, since the API server rejects it.
func TestReadObjectsOfKubernetes(t *testing.T) {
	var listed []string
	for _, row := range securityTable(t, "### Objects of Kubernetes") {
		listed = append(listed, strings.Split(row[0], ", ")...)
	}
	rule := regexp.MustCompile(`(?m)^- apiGroups: \[(.*)\]\n  resources: \[(.*)\]\n` +
		`(?:  resourceNames:.*\n(?:  - .*\n)*)?  verbs: \[(.*)\]$`)
	files, err := filepath.Glob("deploy/chart/templates/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := rule.FindAllStringSubmatch(string(text), -1)
		if n := strings.Count(string(text), "\n  verbs: "); n != len(found) {
			t.Errorf("%s has %d rules, and %d are understood", file, n, len(found))
		}
		for _, r := range found {
			if r[1] == "kuma.io" || !regexp.MustCompile(`\b(get|list|watch)\b`).MatchString(r[3]) {
				continue
			}
			for object := range strings.SplitSeq(r[2], ", ") {
				read[object] = true
			}
		}
	}
	compareRows(t, "object", listed, slices.Sorted(maps.Keys(read)))
}

// TestMessagesOfOthers: each field of the messages that agents and zones send has its row in docs/security.md.
func TestMessagesOfOthers(t *testing.T) {
	// discovery are the fields of Envoy's DeltaDiscoveryRequest that the server reads.
	discovery := strings.Fields("node type_url resource_names_subscribe resource_names_unsubscribe " +
		"initial_resource_versions response_nonce error_detail")
	for heading, services := range map[string][]protoreflect.ServiceDescriptor{
		"### Messages of agents and Envoys": {wire.File_agent_proto.Services().ByName("Agent")},
		"### Messages of zones": {wire.File_zonesync_proto.Services().ByName("ZoneSync"),
			wire.File_zonequery_proto.Services().ByName("ZoneQueries")},
	} {
		var listed []string
		for _, row := range securityTable(t, heading) {
			for field := range strings.SplitSeq(row[1], ", ") {
				listed = append(listed, row[0]+"."+strings.Trim(field, "`"))
			}
		}
		fields := map[string]bool{}
		for _, service := range services {
			for i := range service.Methods().Len() {
				addFields(fields, service.Methods().Get(i).Input())
			}
		}
		switch services[0].Name() {
		case "ZoneSync":
			addFields(fields, wire.File_zonesync_proto.Messages().ByName("Item")) // encoded in a Batch
		case "Agent":
			for _, field := range discovery {
				fields["DeltaDiscoveryRequest."+field] = true
			}
		}
		compareRows(t, "field", listed, slices.Sorted(maps.Keys(fields)))
	}
}

// addFields adds the fields of a message and of the messages in it, as MESSAGE.FIELD. A field that has a message is
// listed by the fields of that message.
func addFields(fields map[string]bool, m protoreflect.MessageDescriptor) {
	name := strings.TrimPrefix(string(m.FullName()), string(m.ParentFile().Package())+".")
	for i := range m.Fields().Len() {
		switch f := m.Fields().Get(i); {
		case f.Message() == nil || f.IsMap():
			fields[name+"."+string(f.Name())] = true
		default:
			addFields(fields, f.Message())
		}
	}
}

// listeners has the calls that open a port, by file, each with a text of its row below "What listens".
var listeners = map[string]string{
	"internal/server/ports.go":                "5678", // and the others of a control plane: see [TestPortsThatListen]
	"internal/adminsocket/adminsocket.go":     "`admin.sock`",
	"internal/agent/commands.go":              "sockets of `weft-dp`",
	"internal/agent/runtimedir.go":            "sockets of `weft-dp`",
	"internal/agent/nameserver/nameserver.go": "--dns-port",
	"internal/agent/names.go":                 "--dns-port",
	"internal/agent/external.go":              "an egress's resolver",
	"internal/agent/probeproxy.go":            "--probe-proxy-port",
	"internal/agent/readiness.go":             "--readiness-port",
	"internal/server/kubernetes.go":           "5443", // TLS over the port of ports.go
}

// notOfDeployments are files and folders that open ports, and run in no deployment, or only to test a port.
var notOfDeployments = []string{"test", "internal/testnet", "internal/demo", "cmd/weft/demo.go",
	"internal/agent/redirect/validate.go"}

// listenersOfEnvoy are texts of the rows about what Envoy opens, which no call and no setting of weft shows.
var listenersOfEnvoy = []string{"Envoy's admin pages", "inbounds, zone proxies"}

// TestPortsThatListen: each port that a program opens has its row in docs/security.md: each call that listens, each
// setting of a port, and each flag of weft-dp for one. Each row is about one of these.
func TestPortsThatListen(t *testing.T) {
	rows := securityTable(t, "## What listens")
	known := map[string]bool{} // the rows about a port that exists
	has := func(text string) (found bool) {
		for _, row := range rows {
			if strings.Contains(row[0], text) {
				known[row[0]], found = true, true
			}
		}
		return found
	}
	for _, text := range listenersOfEnvoy {
		if !has(text) {
			t.Errorf("%s has no row of %s below What listens", securityPage, text)
		}
	}
	listen := regexp.MustCompile(`^Listen(Packet|Unix|Unixgram|TCP|UDP|IP|AndServe|AndServeTLS)?$`)
	found := map[string]bool{}
	for file, source := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || within(file, notOfDeployments) {
			continue
		}
		ast.Inspect(source.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && listen.MatchString(f.Sel.Name) {
					found[file] = true
				}
			}
			return true
		})
	}
	for file := range found {
		if row, ok := listeners[file]; !ok || !has(row) {
			t.Errorf("%s listens, and %s has no row of it below What listens", file, securityPage)
		}
	}
	for file := range listeners {
		if !found[file] {
			t.Errorf("%s does not listen", file)
		}
	}
	for pattern, files := range map[string]string{
		"(?m)^\\| `([\\w.]+(?i:port(?:Inbound|Outbound)?))` \\| `KUMA": "docs/settings.md",
		`IntVar\(&c\.\w[\w.]*, "([\w-]+-port)"`:                        "cmd/weft-dp/main.go"} {
		text, err := os.ReadFile(files)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no port", files)
		}
		for _, name := range names {
			if name[1] != "store.postgres.port" && !has(name[1]) { // where PostgreSQL listens
				t.Errorf("%s has the port %s, and %s has no row of it below What listens", files, name[1], securityPage)
			}
		}
	}
	for _, row := range rows {
		if !known[row[0]] {
			t.Errorf("%s has a row of %s below What listens, which no program opens", securityPage, row[0])
		}
	}
}
