// Package weft_test checks the rules of the repository: the imports that a package may have, and the form of the code.
// Each rule states its reason. A rule without a valid reason is removed.
package weft_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// wall bounds the imports that a package, and every package below it, may have of this module. A package without a wall
// may import every package except main packages.
type wall struct {
	path   string
	may    []string
	reason string
}

var walls = []wall{
	{"resource", nil, "the envelope depends on no kind and no mesh, so a new kind does not change it"},
	{"internal/table", []string{"internal/wait"}, "dependency tracking is tested without meshes and does not depend on them"},
	{"internal/xds", []string{"resource"}, "the protocol does not depend on the meaning of the resources"},
	{"internal/wire", nil, "a contract does not depend on its implementations"},
	{"internal/settings", []string{"resource", "internal/access", "internal/agent/kumaenv"},
		"settings are read before any part exists that they configure; access rules are settings"},
	{"internal/adminsocket", nil,
		"the operating system decides which users may open the socket, independent of the API behind it"},
	{"internal/wait", nil, "a wait does not depend on its condition"},
	{"internal/spelling", nil, "the spelling of a name does not depend on its meaning"},
	{"internal/testwait", nil, "the deadlines of tests do not depend on the tested package"},
	{"internal/golden", []string{"internal/golden"}, "the form of an expectation does not depend on the tested package"},
	{"internal/testnet", nil, "the network of tests does not depend on the tested package"},
	{"internal/certfile", nil, "reading certificate files does not depend on the server that presents them"},
	{"internal/audit", []string{"resource", "kind", "internal/access"},
		"the recorded fields and the masked values do not depend on the caller that writes"},
	{"internal/access", []string{"kind", "resource"},
		"one place decides every permission, independent of the protocol of the request"},
	{"internal/traffic", nil, "counting lost requests does not depend on the possible causes"},
	{"examples", nil, "examples are files"},
	{"internal/image", []string{"internal/image"}, "an archive does not depend on the meaning of its files"},
	{"internal/process", []string{"internal/wait"}, "running a program does not depend on its meaning"},
	{"internal/demo", []string{"examples", "internal/process", "internal/traffic", "internal/wait"},
		"the demo uses only the means of a user: programs and YAML"},
	{"kind", []string{"resource"}, "a kind defines valid documents, not their effect"},
	{"internal/schema", []string{"kind", "resource", "internal/schema"},
		"the schemas are a function of the kinds alone"},
	{"internal/kube/reach", []string{"internal/kube/api"},
		"a user's machine reaches a control plane in a cluster with a kubeconfig alone"},
	{"internal/kube/api", []string{"internal/wait"}, "requests to the API server do not depend on the kinds of the objects"},
	{"internal/kube/webhook", []string{"resource", "internal/connlimit", "internal/kube/api", "internal/pki",
		"internal/wait"},
		"a webhook does not depend on the objects that it reviews"},
	{"internal/kube/inject", []string{"kind", "resource", "internal/settings", "internal/agent/probecall",
		"internal/agent/redirect", "internal/kube/convert", "internal/kube/podmeta", "internal/spelling"},
		"the patch of a Pod is a function of the Pod, its Namespace and the settings"},
	{"internal/cni", []string{"internal/agent/redirect"},
		"a node's network configuration depends on no mesh, and its plugin redirects as the init container does"},
	{"internal/kube/injector", []string{"kind", "resource", "internal/settings", "internal/kube/api",
		"internal/kube/convert", "internal/kube/inject", "internal/kube/webhook", "internal/wait"},
		"the webhook of Pods does not depend on the parts of the control plane"},
	{"internal/kube/crd", []string{"kind", "resource", "internal/schema", "internal/kube/api", "internal/store/kube"},
		"the definitions, and where the rows of each kind are, are functions of the kinds alone"},
	{"internal/kube/podtoken", []string{"resource", "internal/kube/api", "internal/pki", "internal/wait"},
		"a token proves a Pod, independent of what the Pod may do"},
	{"deploy", nil, "the chart is files"},
	{"internal/kube/install", []string{"deploy", "internal/kube/api", "internal/kube/crd", "internal/kube/install"},
		"the objects of an installation are a function of the values alone"},
	{"internal/kube/convert", []string{"kind", "resource", "internal/agent/redirect", "internal/kube/podmeta"},
		"a resource is a function of Kubernetes objects, which is tested without an API server"},
	{"internal/kube/events", []string{"internal/kube/api", "internal/kube/convert"},
		"sending an event does not depend on its reason"},
	{"internal/kube/objects", []string{"internal/table", "internal/kube/api", "internal/kube/convert"},
		"the tables have the objects as they are, and decide nothing about them"},
	{"internal/store", []string{"resource", "internal/store"},
		"a store keeps bytes under keys and does not depend on their meaning"},
	{"internal/store/sql/postgrestest", []string{"internal/store/sql", "internal/process"},
		"a server of tests keeps no resource"},
	{"internal/store/kube", []string{"resource", "internal/store", "internal/kube/api"},
		"the kinds are described to the store, so a new one does not change it"},
	{"internal/sni", []string{"kind", "resource"},
		"an SNI is a function of the resource alone, so every zone computes the same one"},
	{"internal/policy", []string{"kind", "resource", "internal/interned"},
		"selection, order and merging are tested without a mesh, and are the same for every kind of policy"},
	{"internal/match", []string{"kind", "resource", "internal/policy"},
		"the policies of a proxy are a function of the resources alone"},
	{"internal/state", []string{"kind", "resource", "internal/table", "internal/pki", "internal/policy",
		"internal/sni"}, "rows and their indexes do not depend on what is derived from them"},
	{
		"internal/identity",
		[]string{"kind", "resource", "internal/table", "internal/state", "internal/match", "internal/pki"},
		"identities are the first stage: they follow from rows alone, and no service decides about them",
	},
	{"internal/zoneroute", []string{"kind", "resource", "internal/table", "internal/state", "internal/identity"},
		"routes out of a zone follow from rows and identities, so services and zone proxies need no circle"},
	{"internal/service", []string{"kind", "resource", "internal/interned", "internal/table", "internal/policy", "internal/state", "internal/identity",
		"internal/policy", "internal/sni", "internal/zoneroute"},
		"a service is the same for each client, and does not depend on the zone proxies that forward to it"},
	{"internal/zoneproxy", []string{"kind", "resource", "internal/table", "internal/state", "internal/identity",
		"internal/sni", "internal/zoneroute", "internal/service"},
		"what zone proxies serve is the same for all of them: policies of a proxy do not change it"},
	{"internal/proxy", []string{"kind", "resource", "internal/interned", "internal/table", "internal/state", "internal/identity",
		"internal/match", "internal/policy", "internal/service", "internal/zoneproxy"},
		"the configuration of a proxy does not depend on Envoy or on a store"},
	{"internal/graph", []string{"internal/state", "internal/identity", "internal/zoneroute", "internal/service",
		"internal/zoneproxy", "internal/proxy"},
		"the state creates the stages in their order, and derives nothing"},
	{"internal/graph/graphtest", []string{"kind", "resource", "internal/table", "internal/graph", "internal/golden",
		"internal/match", "internal/state", "internal/zoneroute", "internal/service", "internal/proxy",
		"internal/inspect"},
		"a scenario is loaded without the parts that store or publish it"},
	{
		"internal/barrier",
		[]string{"kind", "resource", "internal/table", "internal/state", "internal/wait"},
		"waiting for acks does not depend on the write that follows, or on the streams",
	},
	{
		"internal/envoy",
		[]string{"kind", "internal/state", "internal/identity", "internal/zoneroute", "internal/service", "internal/zoneproxy", "internal/proxy", "internal/match", "internal/xds"},
		"configuration is a function of derived values, and its generation reads nothing else",
	},
	{
		"internal/envoysim",
		[]string{"kind", "internal/state", "internal/service", "internal/zoneproxy", "internal/proxy", "internal/xds", "internal/envoy"},
		"the result of a request follows from the generated configuration, not from a second evaluation of policies",
	},
	{
		"internal/check",
		[]string{"kind", "resource", "internal/access", "internal/table", "internal/match", "internal/policy", "internal/state", "internal/service", "internal/proxy", "internal/graph", "internal/inspect", "internal/pki", "internal/wait", "internal/wire"},
		"problems are a function of one state of the mesh, and a check sends no request",
	},
	{
		"internal/preview",
		[]string{"kind", "resource", "internal/table", "internal/match", "internal/policy", "internal/state",
			"internal/service", "internal/proxy", "internal/graph", "internal/xds"},
		"a comparison reads derived values of both sides; the generation of configuration is an argument",
	},
	{"internal/inspect", []string{"kind", "resource", "internal/access", "internal/table", "internal/match", "internal/policy", "internal/sni",
		"internal/state", "internal/identity", "internal/service", "internal/proxy", "internal/graph"},
		"a read model is a function of one snapshot of the table and is not stored; nothing is derived from it"},
	{"internal/search", []string{"kind", "resource", "internal/access", "internal/table", "internal/state", "internal/sni",
		"internal/inspect", "internal/topk"},
		"a search is a function of one snapshot of the table, independent of the request"},
	{"internal/topk", nil, "the first items of an order do not depend on what they are"},
	{"internal/admission", []string{"kind", "resource", "internal/policy", "internal/sni", "internal/pki",
		"internal/match", "internal/store"}, "a write is admitted without the configuration that it leads to"},
	{"internal/view", []string{"resource", "kind", "internal/view", "internal/store", "internal/admission", "internal/mirror", "internal/table", "internal/state", "internal/graph", "internal/wait"},
		"reads return the stored resources, independent of the reader"},
	{"internal/pki", []string{"kind", "resource", "internal/wait"},
		"an identity does not depend on the protocol that authenticates it"},
	{"internal/replica", []string{"kind", "resource", "internal/store", "internal/admission", "internal/mirror",
		"internal/wait"}, "leader election and leases do not depend on the work of the leader"},
	{"internal/join", []string{"kind", "resource", "internal/zonesync", "internal/wire", "internal/store",
		"internal/mirror", "internal/admission", "internal/pki", "internal/access", "internal/wait"},
		"zone sync copies resources between stores and does not depend on their meaning"},
	{"internal/rest/kumactl", []string{"kind", "resource", "internal/admission"},
		"what a client knows follows from its request, and not from what is stored"},
	{"internal/zonesync", []string{"kind", "resource", "internal/wire"},
		"the protocol between zones does not depend on the store"},
	{
		"internal/zonequery",
		[]string{"resource", "internal/wire", "internal/state", "internal/inspect", "internal/envoysim",
			"internal/preview", "internal/wait", "internal/xds"},
		"an inspection request does not depend on the API that sends it, and has its results from the read models",
	},
	{"internal/sim", []string{"kind", "resource", "internal/wire", "internal/zonesync"},
		"a world that is replayed by its seed has no real store, clock or network"},
	{
		"internal/lookup",
		[]string{"resource", "kind", "internal/graph", "internal/table", "internal/wait"},
		"the result of a lookup is a row, independent of the resolver and of the store",
	},
	{"internal/token", []string{"resource", "kind", "internal/access", "internal/admission", "internal/pki",
		"internal/store", "internal/token"}, "the first start issues tokens too, without HTTP"},
	{"internal/agent", []string{"internal/wire", "resource", "kind", "internal/agent", "internal/connlimit",
		"internal/wait"},
		"the agent runs beside every proxy, so it is small and links no control plane"},
	{"internal/agent/redirect", nil,
		"the rules of a machine are installed and removed while the proxy does not run"},
	{"internal/agent/kumaenv", nil, "the control plane reads the names too, and nothing else of the agent"},
	{"internal/agent/probecall", nil, "injector and probe proxy compare a text, and nothing else"},
	{"internal/terminal", []string{"resource"}, "what is printed does not depend on the command"},
	{"internal/connlimit", nil, "the bounds of a port do not depend on its protocol"},
	{"internal/agent/nameserver", nil, "DNS responses depend on the host names alone, not on the source of the names"},
}

// dependency has the packages that may import packages of other modules, or parts of the control plane.
type dependency struct {
	prefixes []string // of the imported packages
	allowed  []string // the importing packages, with those below them
	reason   string
}

var dependencies = []dependency{
	{
		[]string{"github.com/envoyproxy/"},
		[]string{"internal/envoy", "internal/envoysim", "internal/xds", "internal/agent", "test/load",
			"test/mesh", "internal/dpserver"},
		"only the packages that generate, send, read or authenticate configuration depend on Envoy's API; the others " +
			"describe the mesh",
	},
	{
		[]string{"k8s.io/", "sigs.k8s.io/controller-runtime"},
		[]string{"cmd/weft", "internal/kube", "internal/store/kube", "test/kubernetes"},
		"Kubernetes is one environment of a mesh; the meaning of a mesh does not depend on it",
	},
	{
		[]string{"weft/internal/push", "weft/internal/reconcile", "weft/internal/mirror", "weft/internal/join",
			"weft/internal/replica"},
		[]string{"internal"},
		"internal/server wires the parts of a control plane, and tests start it too; a command adds flags only",
	},
	{
		[]string{"weft/internal/inspect"},
		[]string{"cmd/weft", "internal/inspect", "internal/check", "internal/rest", "internal/search",
			"internal/zonequery", "internal/push", "internal/server", "internal/graph/graphtest"},
		"a report is for a reader of the API: configuration and the control plane's writes do not depend on it",
	},
	{
		[]string{"weft/internal/server"},
		[]string{"cmd/weft", "internal/server"},
		"internal/server imports every part, so no part may import it",
	},
	{
		[]string{"github.com/spf13/cobra"},
		[]string{"cmd", "test/load"},
		"only commands have flags",
	},
	{
		[]string{"modernc.org/sqlite", "github.com/jackc/"},
		[]string{"internal/store/sql"},
		"the contract of the store hides the database",
	},
}

func TestWalls(t *testing.T) {
	for _, p := range packages(t) {
		wall, limited := wallOf(p.path())
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, "weft/")
			if isOurs && slices.Contains(testSupport, ours) {
				if !isTestPackage(p.path()) {
					t.Errorf("%s imports %s, which is for tests", p.path(), ours)
				}
				continue
			}
			if isOurs && limited && !within(ours, append(wall.may, p.path())) {
				t.Errorf("%s imports %s: %s", p.path(), ours, wall.reason)
			}
		}
	}
}

// testSupport are packages for every test. Of the other packages, those that tests alone use import them.
var testSupport = []string{"internal/testwait", "internal/testnet"}

// isTestPackage reports whether a package is one that tests alone use, or a program for tests.
func isTestPackage(pkg string) bool {
	return strings.HasSuffix(pkg, "test") || within(pkg, []string{"test"})
}

func TestDependencies(t *testing.T) {
	for _, p := range packages(t) {
		for _, d := range dependencies {
			if within(p.path(), d.allowed) {
				continue
			}
			for _, imported := range p.Imports {
				if slices.ContainsFunc(d.prefixes, func(prefix string) bool {
					return strings.HasPrefix(imported, prefix)
				}) {
					t.Errorf("%s imports %s: %s", p.path(), imported, d.reason)
				}
			}
		}
	}
}

// TestAgentIsSmall: weft-dp runs beside every proxy, and weft-cni as root on every node, so a package that they link,
// and a flaw in the package, runs on every machine.
func TestAgentIsSmall(t *testing.T) {
	for program, may := range map[string][]string{
		"cmd/weft-dp": {"cmd/weft-dp", "cmd/internal/subcommand", "internal/agent", "internal/connlimit", "internal/terminal", "internal/wire", "internal/wait", "resource",
			"kind"},
		"cmd/weft-cni": {"cmd/weft-cni", "internal/cni", "internal/agent/redirect"},
	} {
		linked, err := exec.Command("go", "list", "-deps", "./"+program).Output()
		if err != nil {
			t.Fatal(explain(err))
		}
		for imported := range strings.FieldsSeq(string(linked)) {
			if ours, isOurs := strings.CutPrefix(imported, "weft/"); isOurs && !within(ours, may) {
				t.Errorf("%s links %s, want only %s of this module", program, ours, strings.Join(may, ", "))
			}
			if strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "modernc.org/") {
				t.Errorf("%s links %s, which only the control plane may link", program, imported)
			}
		}
	}
}

// TestPackagesHaveAContract: a package comment states the contract of a package. A package with a generic name has no
// boundary and collects unrelated code.
func TestPackagesHaveAContract(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.path())
		}
		if slices.Contains([]string{"util", "utils", "common", "core", "types", "helpers", "misc", "base"}, p.Name) {
			t.Errorf("%s: the name %q is generic: name the package after its concept", p.path(), p.Name)
		}
	}
}

// TestCodeSize bounds files and functions that are written by hand, so that a reader can follow them. It also forbids
// getters with the prefix Get.
func TestCodeSize(t *testing.T) {
	const maxFile, maxFunction = 900, 100
	for file, source := range goFiles(t) {
		if bytes.Contains(source.text, []byte("// Code generated ")) {
			continue
		}
		if n := bytes.Count(source.text, []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, want at most %d", file, n, maxFile)
		}
		for _, d := range source.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := source.lines(f); n > maxFunction && !strings.HasSuffix(file, "_test.go") { // a table may be long
				t.Errorf("%s: %s has %d lines, want at most %d", file, f.Name.Name, n, maxFunction)
			}
			if getter.MatchString(f.Name.Name) && !slices.Contains(grpcMethods, f.Name.Name) {
				t.Errorf("%s: %s: remove the prefix Get", file, f.Name.Name)
			}
		}
	}
}

// getter matches the names of getters. The exceptions are methods of interfaces of gRPC, and of services of Kubernetes.
var getter = regexp.MustCompile(`^Get[A-Z]`)

var grpcMethods = []string{"GetRequestMetadata", "GetInfo", "GetPluginInfo", "GetPluginCapabilities"}

// TestBubblesAreOfPackageBubble: a bubble of synctest.Test crashes the race detector now and then ([bubble.Test]).
func TestBubblesAreOfPackageBubble(t *testing.T) {
	for file, source := range goFiles(t) {
		if filepath.Dir(file) == "internal/bubble" {
			continue
		}
		ast.Inspect(source.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Test" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "synctest" {
					t.Errorf("%s:%d calls synctest.Test: call bubble.Test", file, source.files.Position(n.Pos()).Line)
				}
			}
			return true
		})
	}
}

// TestFilesNameNoMachine: a path of the author's machine does not exist on other machines.
func TestFilesNameNoMachine(t *testing.T) {
	path := regexp.MustCompile(`(^|[^\w.*/-])/(home|Users|root|work)/\w+`)
	for _, file := range listed(t) {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := path.Find(content); found != nil {
			t.Errorf("%s has %q, which does not exist on other machines", file, found)
		}
	}
}

// TestDocumentationReferences: every link, file and make target in the documentation exists.
func TestDocumentationReferences(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	source := regexp.MustCompile("`((?:internal|cmd|kind|test|examples)/[\\w./-]+)`")
	target := regexp.MustCompile("`make ([a-z]+)")
	for _, file := range listed(t) {
		if path.Ext(file) != ".md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(path.Join(path.Dir(file), found[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", file, found[1])
			}
		}
		for _, found := range source.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(found[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", file, found[1])
			}
		}
		for _, found := range target.FindAllStringSubmatch(string(text), -1) {
			if !bytes.Contains(makefile, []byte("\n"+found[1]+":")) {
				t.Errorf("%s names `make %s`, which the Makefile does not have", file, found[1])
			}
		}
	}
}

// TestRequirementsAreShown: a line of docs/requirements.md, and of the ports, roles and writers in docs/security.md,
// names existing tests, "later" or "missing".
func TestRequirementsAreShown(t *testing.T) {
	checkNamedTests(t, "docs/requirements.md", "")
	for _, heading := range []string{"## What listens\n", "## Roles\n", "## Who writes what\n"} {
		checkNamedTests(t, securityPage, heading)
	}
}

// checkNamedTests fails if the last cell of a table's line names a test that does not exist. With a heading, only the
// section below it is checked.
func checkNamedTests(t *testing.T, page, heading string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if heading != "" {
		_, text, _ = bytes.Cut(text, []byte(heading))
		text, _, _ = bytes.Cut(text, []byte("\n## "))
	}
	shown := regexp.MustCompile("^`([\\w./-]+)` (.+)$")
	lines := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		by := strings.TrimSuffix(cells[len(cells)-1], " |\n")
		if len(cells) < 2 || by == "shown by" || by == "test" {
			continue
		}
		lines++
		if by == "later" || by == "missing" {
			continue
		}
		for _, of := range strings.Split(by, "; ") {
			found := shown.FindStringSubmatch(of)
			if found == nil {
				t.Errorf("%s: %q names no package and test: %s", page, of, line)
				continue
			}
			tests := testsOf(t, found[1])
			for _, name := range strings.Split(found[2], ", ") {
				if test, part, _ := strings.Cut(name, "/"); !strings.Contains(tests, "func "+test+"(") ||
					!isPart(tests, found[1], part) {
					t.Errorf("%s names %s of %s, which does not exist", page, name, found[1])
				}
			}
		}
	}
	if lines == 0 {
		t.Errorf("%s has no line that names tests", page)
	}
}

// testsOf returns the source of the tests of a package.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range listed(t) {
		if path.Dir(file) != pkg || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// isPart reports whether the tests of a package have a case of that name, in a table or as a file of testdata.
func isPart(tests, pkg, name string) bool {
	if name == "" || strings.Contains(tests, `"`+name+`"`) {
		return true
	}
	for _, folder := range []string{"testdata", "testdata/*"} {
		if found, err := filepath.Glob(path.Join(pkg, folder, name+".txtar")); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// listedPackage is the output of `go list` for a package.
type listedPackage struct {
	ImportPath string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string // without those of the tests
}

// path returns the path of the package relative to the root.
func (p listedPackage) path() string { return strings.TrimPrefix(p.ImportPath, "weft/") }

var listPackages = sync.OnceValues(func() ([]listedPackage, error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Doc,GoFiles,Imports", "./...").Output()
	if err != nil {
		return nil, explain(err)
	}
	var all []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func packages(t *testing.T) []listedPackage {
	t.Helper()
	all, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// explain adds the standard error of a program to the error of its run.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return err
}

// wallOf returns the wall of a package: the one with the longest path that contains the package.
func wallOf(pkg string) (found wall, ok bool) {
	for _, w := range walls {
		if within(pkg, []string{w.path}) && len(w.path) > len(found.path) {
			found, ok = w, true
		}
	}
	return found, ok
}

// within reports whether a package is one of the folders, or below one.
func within(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return pkg == f || strings.HasPrefix(pkg, f+"/") })
}

// goSource is one Go file.
type goSource struct {
	text  []byte
	tree  *ast.File
	files *token.FileSet
}

func (s goSource) lines(n ast.Node) int {
	return s.files.Position(n.End()).Line - s.files.Position(n.Pos()).Line + 1
}

// goFiles returns the Go files of the repository, by path.
func goFiles(t *testing.T) map[string]goSource {
	t.Helper()
	found := map[string]goSource{}
	for _, file := range listed(t) {
		if path.Ext(file) != ".go" {
			continue
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found[file] = goSource{text, tree, files}
	}
	return found
}

// listed returns the files of the repository, with new files that git does not ignore.
func listed(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}
