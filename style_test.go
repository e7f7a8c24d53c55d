package weft_test

import (
	"bytes"
	"go/ast"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the maximum length of a line. A tab has four columns.
const maxColumns = 120

// TestLineLength: lines have at most 120 columns. Lines with a part of a raw string, and imports, are exempt: a line
// break would change a raw string, and an import cannot have one.
func TestLineLength(t *testing.T) {
	for file, source := range goFiles(t) {
		if bytes.Contains(source.text, []byte("// Code generated ")) {
			continue
		}
		exempt := rawStringLines(source.text)
		for _, imported := range source.tree.Imports {
			exempt[source.files.Position(imported.Pos()).Line] = true
		}
		line := 0
		for text := range bytes.Lines(source.text) {
			line++
			columns := utf8.RuneCount(bytes.ReplaceAll(bytes.TrimRight(text, "\n"), []byte("\t"), []byte("    ")))
			if columns > maxColumns && !exempt[line] {
				t.Errorf("%s:%d has %d columns, want at most %d", file, line, columns, maxColumns)
			}
		}
	}
}

// rawStringLines returns the numbers of the lines that have a part of a raw string.
func rawStringLines(source []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && text[0] == '`' {
			first := file.Line(pos)
			for n := range strings.Count(text, "\n") + 1 {
				lines[first+n] = true
			}
		}
	}
}

// TestEnvoyImportNames: a package of Envoy's API has the same name in every file, so that a search for corev3.Address
// finds all of its uses. The name is the package's own or, where that is long or not unique, another one. It ends with
// the version of the API and has no underscore.
func TestEnvoyImportNames(t *testing.T) {
	type use struct{ text, file string }
	names, paths := map[string]use{}, map[string]use{} // by path, by name
	for file, source := range goFiles(t) {
		for _, imported := range source.tree.Imports {
			path, name := strings.Trim(imported.Path.Value, `"`), ""
			if !strings.HasPrefix(path, "github.com/envoyproxy/go-control-plane/") &&
				!strings.HasPrefix(path, "github.com/cncf/xds/") {
				continue
			}
			if imported.Name != nil {
				name = imported.Name.Name
			}
			if name == "_" { // for its types alone
				continue
			}
			if !strings.HasSuffix(name, "v3") || strings.Contains(name, "_") {
				t.Errorf("%s imports %s as %q, want the package's name with the suffix v3, and no underscore", file,
					path, name)
			}
			if first, ok := names[path]; ok && first.text != name {
				t.Errorf("%s imports %s as %q, %s as %q", file, path, name, first.file, first.text)
			}
			if first, ok := paths[name]; ok && first.text != path {
				t.Errorf("%s imports %s as %q, the name of %s in %s", file, path, name, first.text, first.file)
			}
			names[path], paths[name] = use{name, file}, use{path, file}
		}
	}
	if len(names) == 0 {
		t.Error("no file imports a package of Envoy's API")
	}
}

// TestNamesOfFunctions: an exported function or method is named by a verb or a noun. A preposition, an adverb or a
// participle alone does not say what it returns or does.
func TestNamesOfFunctions(t *testing.T) {
	for file, source := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || bytes.Contains(source.text, []byte("// Code generated ")) {
			continue
		}
		for _, d := range source.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || slices.Contains(nounNames, f.Name.Name) {
				continue
			}
			if particleName.MatchString(f.Name.Name) {
				t.Errorf("%s: %s is a preposition, an adverb or a participle: name what it returns or does",
					source.files.Position(f.Name.Pos()), f.Name.Name)
			}
		}
	}
}

// particleName matches the names of one word that say nothing alone.
var particleName = regexp.MustCompile(`^([A-Z][a-z]+(ed|ing)|Of|With|Without|For|By|In|On|At|From|To|Into|Beside|Between|` +
	`Behind|Through|Over|Under|After|Before|Since|Until|Like|As|Also|Alone|Late|Near|Apart)$`)

// nounNames are nouns with the end of a participle, and methods of interfaces of other modules.
var nounNames = []string{"String", "Networking", "Overprovisioning", "Until"}
