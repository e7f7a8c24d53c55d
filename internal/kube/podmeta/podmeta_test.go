package podmeta

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAnnotationsAreComplete: each name of this package is one of the known annotations, and is documented.
func TestAnnotationsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "podmeta.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names, listed []string
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			switch {
			case ok && decl.Tok == token.CONST:
				names = append(names, spec.Names[0].Name)
			case ok:
				for _, of := range spec.Values[0].(*ast.CompositeLit).Elts {
					listed = append(listed, of.(*ast.Ident).Name)
				}
			}
		}
	}
	if !slices.Equal(names, listed) {
		t.Errorf("the annotations are %v, and the list has %v", names, listed)
	}
	var pages strings.Builder
	for _, page := range []string{"kubernetes-injection.md", "kubernetes.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	for _, name := range Annotations {
		if !strings.Contains(pages.String(), "`"+name) {
			t.Errorf("no page has the annotation %s", name)
		}
	}
}
