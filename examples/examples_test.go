package examples_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

//go:generate go test -run TestWorkloadsAreDocumented . -update

var update = flag.Bool("update", false, "rewrite the table of workloads in docs")

// TestWorkloadsAreDocumented: the page of workloads has the head of each of their files.
func TestWorkloadsAreDocumented(t *testing.T) {
	const page, begin = "../docs/kubernetes-workloads.md", "| file | what happens |\n|---|---|\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s has no table of workloads", page)
	}
	want := before + begin
	each(t, "kubernetes/workloads", ".yaml", func(file string, content []byte) {
		want += fmt.Sprintf("| `%s` | %s |\n", file, head(content))
	})
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s is not current: go generate ./examples", page)
	}
}

// head returns the comment at the beginning of a file as one line.
func head(content []byte) string {
	var words []string
	for line := range strings.Lines(string(content)) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		words = append(words, strings.TrimSpace(comment))
	}
	return strings.Join(words, " ")
}

// TestEveryFileIsAccepted: every example is valid.
func TestEveryFileIsAccepted(t *testing.T) {
	documents := 0
	each(t, ".", ".yaml", func(file string, content []byte) { documents += accepted(t, file, content) })
	if documents == 0 {
		t.Error("no example was found")
	}
}

var (
	blocks   = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$")
	commands = regexp.MustCompile(`(?ms)<<'YAML'\n(.*?)^YAML$`)
)

// TestEveryPageIsAccepted: every YAML block of the documentation is valid and complete, so that it can be copied.
func TestEveryPageIsAccepted(t *testing.T) {
	documents := 0
	page := func(file string, text []byte) {
		for _, form := range []*regexp.Regexp{blocks, commands} {
			for _, found := range form.FindAllSubmatchIndex(text, -1) {
				line := 1 + bytes.Count(text[:found[2]], []byte("\n"))
				documents += accepted(t, fmt.Sprintf("%s:%d", file, line), text[found[2]:found[3]])
			}
		}
	}
	each(t, "../docs", ".md", page)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	page("README.md", readme)
	if documents == 0 {
		t.Error("no YAML was found")
	}
}

// each calls visit for every file below a folder that has the extension.
func each(t *testing.T, folder, extension string, visit func(file string, content []byte)) {
	t.Helper()
	files := os.DirFS(folder)
	err := fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != extension {
			return err
		}
		content, err := fs.ReadFile(files, file)
		if err == nil {
			visit(file, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	// namespaces are those of manifests, which only a control plane on Kubernetes has.
	namespaces = regexp.MustCompile(`(?m)^apiVersion: kuma\.io/[\s\S]*?(^  namespace: .*\n)`)
	comments   = regexp.MustCompile(`(?m)^ *#.*$`)
	kubernetes = regexp.MustCompile(`(?m)^apiVersion: (v1|apps/v1|batch/v1|[a-z0-9.]+\.k8s\.io/.*)$`)
)

// accepted parses, defaults and validates each document of a text as a write would. It returns the number of documents
// with content other than comments. Objects of Kubernetes itself are for a real API server to accept.
func accepted(t *testing.T, file string, text []byte) (documents int) {
	t.Helper()
	for i, document := range bytes.Split(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(comments.ReplaceAll(document, nil))) == 0 || kubernetes.Match(document) {
			continue
		}
		documents++
		if found := namespaces.FindSubmatchIndex(document); found != nil {
			document = slices.Concat(document[:found[2]], document[found[3]:])
		}
		object, err := resource.Parse(document, kind.ByName)
		if err != nil {
			t.Errorf("%s, document %d: %s", file, i+1, err)
			continue
		}
		for _, p := range kind.ByName(object.Key().Kind).Prepare(object) {
			t.Errorf("%s, document %d: %s %s", file, i+1, p.Field, p.Reason)
		}
	}
	return documents
}
