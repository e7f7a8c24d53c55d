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

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// split makes documents of a file, numbered.
func split(file string, text string) []Document {
	var documents []Document
	for i, part := range strings.Split("\n"+text, "\n---\n") {
		if strings.TrimSpace(part) != "" {
			documents = append(documents, Document{fmt.Sprintf("%s[%d]", file, i), []byte(part)})
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
// you commit it: what a permission allows is read by it.
func TestTranslate(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no testdata")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			resources, notes := translated(t, string(archive.Files[0].Data))
			got := []txtar.File{archive.Files[0], {Name: "weft.yaml", Data: []byte(resources)},
				{Name: "notes", Data: []byte(notes)}}
			if *update {
				archive.Files = got
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want, is := string(txtar.Format(archive)),
				string(txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: got})); want != is {
				t.Errorf("%s differs; understand why, then run with -update\n%s", file, is)
			}
		})
	}
}

func translated(t *testing.T, export string) (resources, notes string) {
	t.Helper()
	result, err := Translate(split("export", export), time.Time{})
	if err != nil {
		return "", "error: " + err.Error() + "\n"
	}
	return show(t, result)
}

// FuzzTranslate: whatever an export has, the translation ends, gives the same result again, and gives resources that
// are read as they are written.
// A translated mesh keeps the members that tokens of Kuma do not vouch for, until the end that it states.
func TestMembersOfATranslatedMesh(t *testing.T) {
	until := time.Date(2030, 7, 1, 0, 0, 0, 0, time.UTC)
	result, err := Translate(split("export", "type: Mesh\nname: shop\n"), until)
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

func FuzzTranslate(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[0].Data))
	}
	f.Fuzz(func(t *testing.T, export string) {
		first, err := Translate(split("export", export), time.Time{})
		if err != nil {
			return
		}
		again, err := Translate(split("export", export), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		resources, notes := show(t, first)
		if same, sameNotes := show(t, again); same != resources || sameNotes != notes {
			t.Errorf("the second translation differs:\n%s\n%s", same, sameNotes)
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
