package weft_test

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocComments: a doc comment begins with the name of its declaration, so that declarations can be searched by name.
// The comment of a test states its promise instead. Every [Link] in a comment resolves.
func TestDocComments(t *testing.T) {
	sources := goFiles(t)
	declared, imports := declaredNames(sources), importedPackages(sources)
	links := 0
	for file, source := range sources {
		if bytes.Contains(source.text, []byte("// Code generated ")) {
			continue
		}
		for name, doc := range docComments(source.tree) {
			if testName.MatchString(name) && strings.HasSuffix(file, "_test.go") {
				continue
			}
			if first := firstWord(doc.Text()); first != name {
				t.Errorf("%s: the doc comment of %s begins with %q", source.files.Position(doc.Pos()), name, first)
			}
		}
		own, imported := declared[path.Dir(file)], imports[path.Dir(file)]
		for _, group := range source.tree.Comments {
			for _, link := range docLink.FindAllStringSubmatch(group.Text(), -1) {
				links++
				if !resolves(link[1], own, imported, declared) {
					t.Errorf("%s: the link [%s] names nothing", source.files.Position(group.Pos()), link[1])
				}
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links: the pattern finds nothing", links)
	}
}

// testName matches the names of functions that go test runs.
var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)([A-Z]|$)`)

// docLink matches a link of a comment to a declaration: a name that begins with a capital, after a package and a type.
// Brackets that follow a letter are indexes or type parameters.
var docLink = regexp.MustCompile(`(?:^|[\s(])\[\*?((?:[a-z]\w*\.)?[A-Z]\w*(?:\.[A-Z]\w*)?)\](?:[^\w(\[:]|$)`)

// docComments returns the doc comments of the declarations of a file by their name. A declaration of several names has
// a comment about all of them, which need not begin with one.
func docComments(tree *ast.File) map[string]*ast.CommentGroup {
	docs := map[string]*ast.CommentGroup{}
	add := func(doc *ast.CommentGroup, names ...*ast.Ident) {
		if doc != nil && len(names) == 1 && doc.Text() != "" {
			docs[names[0].Name] = doc
		}
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Doc, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if !d.Lparen.IsValid() {
						add(d.Doc, spec.Name)
					}
					add(spec.Doc, spec.Name)
				case *ast.ValueSpec:
					if !d.Lparen.IsValid() {
						add(d.Doc, spec.Names...)
					}
				}
			}
		}
	}
	return docs
}

// firstWord returns the first word of a doc comment, after an article.
func firstWord(doc string) string {
	words := strings.FieldsFunc(doc, func(r rune) bool { return strings.ContainsRune(" \n\t,:;'’()[", r) })
	for len(words) > 1 && (words[0] == "A" || words[0] == "An" || words[0] == "The") {
		words = words[1:]
	}
	if len(words) == 0 {
		return ""
	}
	return strings.TrimSuffix(words[0], ".")
}

// declaredNames returns the names that each folder declares: X, and X.Y for the methods and fields of X.
func declaredNames(sources map[string]goSource) map[string]map[string]bool {
	declared := map[string]map[string]bool{}
	for file, source := range sources {
		names := declared[path.Dir(file)]
		if names == nil {
			names = map[string]bool{}
			declared[path.Dir(file)] = names
		}
		for _, d := range source.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
				} else {
					names[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					addSpec(names, spec)
				}
			}
		}
	}
	return declared
}

// addSpec adds the names of a declaration, with the fields of a struct and the methods of an interface.
func addSpec(names map[string]bool, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names[name.Name] = true
		}
	case *ast.TypeSpec:
		names[spec.Name.Name] = true
		var members *ast.FieldList
		switch t := spec.Type.(type) {
		case *ast.StructType:
			members = t.Fields
		case *ast.InterfaceType:
			members = t.Methods
		default:
			return
		}
		for _, member := range members.List {
			for _, name := range member.Names {
				names[spec.Name.Name+"."+name.Name] = true
			}
			if len(member.Names) == 0 { // embedded
				names[spec.Name.Name+"."+typeName(member.Type)] = true
			}
		}
	}
}

// typeName returns the name of a type without its pointer, package and type parameters.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// importedPackages returns the folders of this module that the files of each folder import, by the name in the file.
// Packages of other modules have an empty folder.
func importedPackages(sources map[string]goSource) map[string]map[string]string {
	imported := map[string]map[string]string{}
	for file, source := range sources {
		of := imported[path.Dir(file)]
		if of == nil {
			of = map[string]string{}
			imported[path.Dir(file)] = of
		}
		for _, i := range source.tree.Imports {
			target := strings.Trim(i.Path.Value, `"`)
			name := path.Base(target)
			if i.Name != nil {
				name = i.Name.Name
			}
			folder, isOurs := strings.CutPrefix(target, "weft/")
			if !isOurs {
				folder = ""
			}
			of[name] = folder
		}
	}
	return imported
}

// resolves reports whether a link names a declaration of the own package or of an imported one of this module.
// Declarations of other modules are not read.
func resolves(link string, own map[string]bool, imported map[string]string,
	declared map[string]map[string]bool) bool {
	if own[link] {
		return true
	}
	name, rest, _ := strings.Cut(link, ".")
	folder, found := imported[name]
	return found && (folder == "" || declared[folder][rest])
}

// TestDecisionRecords: docs/adr/README.md lists each decision record once, by its title, and beside it the records that
// supersede a part of it.
func TestDecisionRecords(t *testing.T) {
	index, err := os.ReadFile("docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(records) == 0 {
		t.Fatal(records, err)
	}
	changedBy := map[string][]string{} // by number
	titles := map[string]string{}
	for _, record := range records {
		text, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		heading, body, _ := strings.Cut(string(text), "\n")
		number := strings.TrimLeft(path.Base(record)[:3], "0")
		if titles[record] = strings.TrimPrefix(heading, "# "); !strings.HasPrefix(titles[record], number+". ") {
			t.Errorf("%s has the title %q, want the number %s", record, titles[record], number)
		}
		for paragraph := range strings.SplitSeq(body, "\n\n") {
			if strings.HasPrefix(strings.TrimSpace(paragraph), "It supersedes ") {
				for _, link := range recordLink.FindAllStringSubmatch(paragraph, -1) {
					changedBy[link[1]] = append(changedBy[link[1]], number)
				}
			}
		}
	}
	for record, title := range titles {
		want := "- [" + title + "](" + path.Base(record) + ")"
		number, _, _ := strings.Cut(title, ".")
		if by := changedBy[number]; len(by) > 0 {
			want += ", changed by " + strings.Join(by, ", ")
		}
		if n := strings.Count(string(index), want+"\n"); n != 1 {
			t.Errorf("docs/adr/README.md has %d times the line, want once:\n%s", n, want)
		}
	}
}

// recordLink matches a link to a decision record.
var recordLink = regexp.MustCompile(`\[ADR\s(\d+)\]`)
