// Package weft_test keeps the rules of the repository: which package may know of which, and what the code
// never does. Each rule says why it is there; a rule whose reason is gone goes too.
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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// room is what a package of ours may import of ours. A package that is not listed may import everything
// but main packages; one that is listed covers the packages below it.
type room struct {
	path   string
	may    []string
	reason string
}

var rooms = []room{
	{"resource", nil, "the envelope knows no kind and no mesh, so that a new kind never changes it"},
	{"internal/table", nil, "dependency tracking is proven without meshes, and knows nothing of them"},
	{"internal/xds", nil, "the protocol is the same whatever the resources mean"},
	{"internal/wire", nil, "a contract depends on nobody who keeps it"},
	{"internal/settings", []string{"internal/access"},
		"settings are read before anything exists that they could set; who may do what is said in the words of access"},
	{"internal/adminsocket", nil, "who may open a socket is for the operating system to say, whatever is served there"},
	{"internal/wait", nil, "a wait is the same for every condition"},
	{"internal/certfile", nil, "files are files, whoever shows what is in them"},
	{"internal/audit", []string{"resource", "kind", "internal/access"},
		"what is recorded, and what is masked in it, is the same whoever writes"},
	{"internal/access", []string{"resource"},
		"who may do what is decided in one place, whoever asks and whatever it is about"},
	{"internal/traffic", nil, "what counts lost requests knows nothing of why they could be lost"},
	{"examples", nil, "examples are files"},
	{"internal/demo", []string{"examples", "internal/traffic", "internal/wait"},
		"the demo has only what a user has: programs and YAML"},
	{"kind", []string{"resource"}, "a kind says what may be written, not what it does"},
	{"internal/schema", []string{"kind", "resource", "internal/schema"},
		"what may be written is told from the kinds alone, and is the same wherever it is asked"},
	{"internal/store", []string{"resource", "internal/store"},
		"a store keeps bytes under keys; what they mean is others' matter"},
	{"internal/sni", []string{"kind", "resource"},
		"a server name is a function of the resource alone, so that everybody can check whose it is"},
	{"internal/policy", []string{"kind", "resource"},
		"selection, order and merging are proven without a mesh, and are the same for every kind of policy"},
	{"internal/match", []string{"kind", "resource", "internal/policy"},
		"what hits which proxy is a function of the resources alone"},
	{"internal/graph", []string{"kind", "resource", "internal/table", "internal/match", "internal/identity",
		"internal/sni"}, "what the mesh means is said without Envoy and without a store"},
	{"internal/envoy", []string{"kind", "internal/graph", "internal/match", "internal/xds"},
		"configuration is a function of the graph: nothing is looked up on the way"},
	{"internal/envoysim", []string{"kind", "internal/graph", "internal/match", "internal/xds", "internal/envoy"},
		"what a request does is read from the generated configuration, never from the policies a second time"},
	{"internal/check", []string{"kind", "resource", "internal/table", "internal/match", "internal/graph",
		"internal/insight", "internal/identity", "internal/wire"},
		"what is wrong is read from one state of the mesh, and nobody is asked"},
	{"internal/insight", []string{"kind", "resource", "internal/table", "internal/graph"},
		"how a mesh is, is a function of one moment of the table, and nothing is stored for it"},
	{"internal/view", []string{"resource", "kind", "internal/view", "internal/store", "internal/admit",
		"internal/mirror", "internal/table", "internal/graph", "internal/wait"},
		"what is read is what is stored, and who reads it is no matter"},
	{"internal/identity", []string{"kind", "resource"}, "who somebody is must not depend on who asks"},
	{"internal/instances", []string{"kind", "resource", "internal/store", "internal/admit", "internal/mirror",
		"internal/wait"}, "who leads and who lives is known without what the leader does"},
	{"internal/join", []string{"kind", "resource", "internal/zonesync", "internal/wire", "internal/store",
		"internal/mirror", "internal/admit", "internal/identity", "internal/access", "internal/wait"},
		"zones and global bring each other's stores into line; what the resources mean is others' matter"},
	{"internal/zonesync", []string{"kind", "resource", "internal/wire"},
		"what is said between zones is the same whatever store it ends in"},
	{"internal/zonequery", []string{"resource", "internal/wire", "internal/graph", "internal/envoysim"},
		"what a zone is asked is the same whoever asks, and nothing is looked up for it here"},
	{"internal/sim", []string{"kind", "resource", "internal/wire", "internal/zonesync"},
		"a world that replays has nothing in it that is real"},
	{"internal/lookup", []string{"resource", "kind", "internal/graph", "internal/table"},
		"the addresses of a host name are a row, however the name is looked up and wherever the row is stored"},
	{"internal/token", []string{"resource", "kind", "internal/access", "internal/admit", "internal/identity",
		"internal/store", "internal/token"}, "tokens are made without HTTP too: by the first start"},
	{"internal/agent", []string{"internal/wire", "resource", "kind", "internal/agent", "internal/wait"},
		"the agent runs beside every proxy: it is small, and links no control plane"},
	{"internal/agent/redirect", nil,
		"rules of a machine are made and undone without the proxy, which may not run yet or no more"},
	{"internal/agent/nameserver", nil, "what a machine answers depends on the names alone, whoever tells them"},
}

// outside is who may import a family of packages of others.
type outside struct {
	prefixes []string
	who      []string
	reason   string
}

var outsiders = []outside{
	{
		[]string{"github.com/envoyproxy/"},
		[]string{"internal/envoy", "internal/envoysim", "internal/xds", "internal/agent", "internal/load",
			"internal/dpserver"},
		"Envoy's protos stay where they are made, sent, read or authenticated, so that everything else speaks " +
			"of the mesh",
	},
	{
		[]string{"k8s.io/", "sigs.k8s.io/controller-runtime"},
		[]string{"cmd/weft", "internal/kube", "internal/store/kube"},
		"Kubernetes is one way to run a mesh, not what a mesh is",
	},
	{
		[]string{"weft/internal/publish", "weft/internal/reconcile", "weft/internal/mirror", "weft/internal/join",
			"weft/internal/instances"},
		[]string{"internal"},
		"the parts of a control plane are wired in internal/server, which a test starts too; a command has only flags",
	},
	{
		[]string{"weft/internal/server"},
		[]string{"cmd/weft", "internal/server"},
		"the wiring knows every part, so that no part needs to know it",
	},
	{
		[]string{"github.com/spf13/cobra"},
		[]string{"cmd"},
		"flags end where the wiring ends",
	},
	{
		[]string{"modernc.org/sqlite", "github.com/jackc/"},
		[]string{"internal/store/sql"},
		"which database it is stays behind the store's contract",
	},
}

func TestRooms(t *testing.T) {
	for _, p := range packages(t) {
		room, limited := roomOf(p.path())
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, "weft/")
			if isOurs && limited && !within(ours, append(room.may, p.path())) {
				t.Errorf("%s imports %s: %s", p.path(), ours, room.reason)
			}
		}
	}
}

func TestWhoImportsOthers(t *testing.T) {
	for _, p := range packages(t) {
		for _, o := range outsiders {
			if within(p.path(), o.who) {
				continue
			}
			for _, imported := range p.Imports {
				if slices.ContainsFunc(o.prefixes, func(prefix string) bool {
					return strings.HasPrefix(imported, prefix)
				}) {
					t.Errorf("%s imports %s: %s", p.path(), imported, o.reason)
				}
			}
		}
	}
}

// TestAgentIsSmall: weft-dp stands beside every proxy, so whatever it links is there a thousand times, and
// a flaw in it too.
func TestAgentIsSmall(t *testing.T) {
	may := []string{"cmd/weft-dp", "internal/agent", "internal/wire", "internal/wait", "resource", "kind"}
	linked, err := exec.Command("go", "list", "-deps", "./cmd/weft-dp").Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	for imported := range strings.FieldsSeq(string(linked)) {
		if ours, isOurs := strings.CutPrefix(imported, "weft/"); isOurs && !within(ours, may) {
			t.Errorf("weft-dp links %s, and may link of ours only %s", ours, strings.Join(may, ", "))
		}
		if strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "modernc.org/") {
			t.Errorf("weft-dp links %s, which is the control plane's", imported)
		}
	}
}

// TestPackagesHaveAContract: a package that cannot say in one comment what it promises has no boundary,
// and one that is called after no noun collects what belongs elsewhere.
func TestPackagesHaveAContract(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.path())
		}
		if slices.Contains([]string{"util", "utils", "common", "core", "types", "helpers", "misc", "base"}, p.Name) {
			t.Errorf("%s: a package is called after what it holds, and everything fits into %q", p.path(), p.Name)
		}
	}
}

// TestCalmCode keeps what is written by hand readable in one sitting.
func TestCalmCode(t *testing.T) {
	const maxFile, maxFunction = 900, 100
	for file, source := range goFiles(t) {
		if bytes.Contains(source.text, []byte("// Code generated ")) {
			continue
		}
		if n := bytes.Count(source.text, []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, and nobody keeps more than %d in mind", file, n, maxFile)
		}
		for _, d := range source.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := source.lines(f); n > maxFunction && !strings.HasSuffix(file, "_test.go") { // a table may be long
				t.Errorf("%s: %s has %d lines, want at most %d", file, f.Name.Name, n, maxFunction)
			}
			if getter.MatchString(f.Name.Name) && f.Name.Name != grpcCredentials {
				t.Errorf("%s: %s: what is got says enough, leave out the Get", file, f.Name.Name)
			}
		}
	}
}

// getter matches names of our own; the exception is the name that gRPC gives to credentials' one method.
var getter = regexp.MustCompile(`^Get[A-Z]`)

const grpcCredentials = "GetRequestMetadata"

// TestTestsWaitForEvents: a test that sleeps is slow where the event was early and fails where it was
// late. Under testing/synctest time is not real, and sleeping is how it passes.
func TestTestsWaitForEvents(t *testing.T) {
	for file, source := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") || source.imports("testing/synctest") {
			continue
		}
		ast.Inspect(source.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s:%d sleeps: wait for the event", file, source.files.Position(n.Pos()).Line)
				}
			}
			return true
		})
	}
}

// TestFilesNameNoMachine: a path of the machine on which something was written is of no use elsewhere.
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
			t.Errorf("%s names %q, which is somewhere else on every other machine", file, found)
		}
	}
}

// TestDocumentationLeadsSomewhere: a link, a file or a make target that does not exist is a promise
// that the first page does not keep.
func TestDocumentationLeadsSomewhere(t *testing.T) {
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
				t.Errorf("%s speaks of %s, which does not exist", file, found[1])
			}
		}
		for _, found := range target.FindAllStringSubmatch(string(text), -1) {
			if !bytes.Contains(makefile, []byte("\n"+found[1]+":")) {
				t.Errorf("%s speaks of `make %s`, which the Makefile does not have", file, found[1])
			}
		}
	}
}

// A line of docs/requirements.md and of the attacks in docs/security.md names the tests that show it, "later" or
// "missing".
func TestRequirementsAreShown(t *testing.T) {
	testsAreThere(t, "docs/requirements.md", "")
	testsAreThere(t, "docs/security.md", "## Attacks that are tested\n")
}

// TestRequirementsHaveMutations: a row of docs/requirements.md without a mutation may name a test that cannot fail, and
// a mutation whose old text is gone breaks nothing. `make mutate` runs the mutations.
func TestRequirementsHaveMutations(t *testing.T) {
	if _, err := os.ReadFile("tools/mutate/requirements.txt"); err != nil {
		// a result of go test is reused while it is the same
		t.Fatal(err)
	}
	// the files that it reads belong to another module: no cached result
	check := exec.Command("go", "test", "-count=1", "./mutate")
	check.Dir = "tools"
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// testsAreThere fails where the last cell of a table's line, below a heading of a page, names a test that does not
// exist.
func testsAreThere(t *testing.T, page, heading string) {
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

// testsOf answers the tests of a package, as they are written.
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

// isPart says whether a test has a case: in a table, or as a file of its own.
func isPart(tests, pkg, name string) bool {
	if name == "" || strings.Contains(tests, `"`+name+`"`) {
		return true
	}
	for _, folder := range []string{"testdata", "testdata/stories"} {
		if _, err := os.Stat(path.Join(pkg, folder, name+".txtar")); err == nil {
			return true
		}
	}
	return false
}

// listedPackage is what `go list` says of a package.
type listedPackage struct {
	ImportPath string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string // of the package itself, not of its tests
}

// path is relative to the root.
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

// explain adds what a program said to the error of having run it.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return err
}

// roomOf finds the room of a package: the longest path that contains it.
func roomOf(pkg string) (found room, ok bool) {
	for _, r := range rooms {
		if within(pkg, []string{r.path}) && len(r.path) > len(found.path) {
			found, ok = r, true
		}
	}
	return found, ok
}

// within says whether a package is one of the folders, or below one.
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

func (s goSource) imports(pkg string) bool {
	return slices.ContainsFunc(s.tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+pkg+`"` })
}

// goFiles answers the Go files of the repository, by path.
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
		tree, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found[file] = goSource{text, tree, files}
	}
	return found
}

// listed answers the files that are, or would be, in the repository.
func listed(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}
