package migrate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/kind"
	"weft/resource"
)

func documentOf(source string, text []byte) Document {
	return Document{YAMLDocument: resource.YAMLDocument{Text: text}, Source: source}
}

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// split makes documents of a file, numbered.
func split(file string, text string) []Document {
	var documents []Document
	for i, part := range strings.Split("\n"+text, "\n---\n") {
		if strings.TrimSpace(part) != "" {
			documents = append(documents, documentOf(fmt.Sprintf("%s[%d]", file, i), []byte(part)))
		}
	}
	return documents
}

type failer interface {
	Helper()
	Fatal(...any)
}

// show is a result as goldens have it.
func show(t failer, r Result) (resources, notes string) {
	t.Helper()
	var documents []string
	for _, o := range r.Resources {
		raw, err := resource.MarshalJSON(o, nil, kind.ByName(o.Key().Kind), resource.Universal)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	var lines strings.Builder
	for _, n := range r.Notes {
		fmt.Fprintln(&lines, n)
	}
	return strings.Join(documents, "---\n"), lines.String()
}

// TestTranslate translates each export in testdata; -update rewrites what is expected. Understand a difference before
// you commit it: what a permission allows is read by it. The second file of an export with the comment "for Kubernetes"
// is for a control plane there.
func TestTranslate(t *testing.T) {
	for _, file := range exports(t) {
		t.Run(file.name, func(t *testing.T) {
			resources, notes := translated(t, file)
			archive := *file.archive
			got := []txtar.File{archive.Files[0], {Name: "weft.yaml", Data: []byte(resources)},
				{Name: "notes", Data: []byte(notes)}}
			if *update {
				archive.Files = got
				if err := os.WriteFile(file.path, txtar.Format(&archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want, is := string(txtar.Format(file.archive)),
				string(txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: got})); want != is {
				t.Errorf("%s differs; understand why, then run with -update\n%s", file.path, is)
			}
		})
	}
}

// export is one file of testdata.
type export struct {
	path, name string
	archive    *txtar.Archive
}

// exports are the files of testdata, and of its folders.
func exports(t failer) []export {
	t.Helper()
	files, _ := filepath.Glob("testdata/*.txtar")
	documents, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 || len(documents) == 0 {
		t.Fatal(err, "no testdata")
	}
	var all []export
	for _, file := range append(files, documents...) {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txtar")
		all = append(all, export{file, name, archive})
	}
	return all
}

// options are those of the comment of an export.
func (e export) options() Options {
	return Options{Kubernetes: strings.Contains(string(e.archive.Comment), "for Kubernetes"),
		Whole: !strings.Contains(string(e.archive.Comment), "a part of an export")}
}

func (e export) translate() (Result, error) {
	return Translate(split("export", string(e.archive.Files[0].Data)), e.options())
}

func translated(t *testing.T, e export) (resources, notes string) {
	t.Helper()
	result, err := e.translate()
	if err != nil {
		return "", "exit code 2\nerror: " + err.Error() + "\n"
	}
	resources, notes = show(t, result)
	if e.options().Kubernetes {
		var manifests []string
		for _, o := range result.Resources {
			text, err := yaml.Marshal(result.Manifest(o))
			if err != nil {
				t.Fatal(err)
			}
			manifests = append(manifests, string(text))
		}
		resources = strings.Join(manifests, "---\n")
	}
	if !result.Complete() {
		return resources, "exit code 1\n" + notes
	}
	return resources, "exit code 0\n" + notes
}

// A translated mesh keeps the members that tokens of Kuma do not vouch for, until the end that it states.
func TestMembersOfATranslatedMesh(t *testing.T) {
	until := time.Date(2030, 7, 1, 0, 0, 0, 0, time.UTC)
	result, err := Translate(split("export", "type: Mesh\nname: shop\n"), Options{UnvouchedUntil: until})
	if err != nil || len(result.Resources) != 1 {
		t.Fatalf("%v, %v", result, err)
	}
	mesh := resource.SpecOf(result.Resources[0]).(*kind.Mesh)
	if u := mesh.UnvouchedMembers; u == nil || !u.Tags || !u.Addresses || !u.Until.Equal(until) {
		t.Errorf("unvouchedMembers is %v, want tags and addresses until %s", u, until)
	}
	if !result.Complete() || !strings.Contains(fmt.Sprint(result.Notes), "unvouchedMembers is adapted") {
		t.Errorf("the notes are %v", result.Notes)
	}
}

// FuzzTranslate: whatever an export has, the translation ends, gives the same result again, and gives resources that
// are read as they are written, and that a control plane takes.
func FuzzTranslate(f *testing.F) {
	for _, e := range exports(f) {
		f.Add(string(e.archive.Files[0].Data), e.options().Kubernetes)
	}
	f.Fuzz(func(t *testing.T, export string, kubernetes bool) {
		first, err := Translate(split("export", export), Options{Kubernetes: kubernetes, Whole: true})
		if err != nil {
			return
		}
		again, err := Translate(split("export", export), Options{Kubernetes: kubernetes, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		resources, notes := show(t, first)
		if same, sameNotes := show(t, again); same != resources || sameNotes != notes {
			t.Errorf("the second translation differs:\n%s\n%s", same, sameNotes)
		}
		for key, err := range admitted(t, first, kubernetes) {
			if err != nil {
				t.Errorf("%s is not applied: %v", key, err)
			}
		}
		for _, o := range first.Resources {
			raw, err := resource.MarshalJSON(o, nil, kind.ByName(o.Key().Kind), resource.Universal)
			if err == nil {
				_, err = resource.Parse(raw, kind.ByName)
			}
			if err != nil {
				t.Errorf("%s: %v", o.Key(), err)
			}
		}
	})
}
