package weft_test

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// simulated returns the names of the functions and types of a package that are for bubbles alone. These are, in
// _test.go files:
//
//   - a function that calls bubble.Test, or a function that is one of these,
//   - a function, or a type with its methods, whose name stands in declarations of this list only.
//
// Objects of the same name are not distinguished: a name that also stands in another declaration is not in the list.
func simulated(sources []goSource) map[string]bool {
	var all []declaration
	for _, source := range sources {
		all = append(all, source.declarations()...)
	}
	callers := bubbleCallers(all)
	users := map[string][]string{} // of a name: the declarations that have it
	for _, d := range all {
		for n := range ast.Preorder(d.node) {
			if name, ok := n.(*ast.Ident); ok && name.Name != d.name {
				users[name.Name] = append(users[name.Name], d.name)
			}
		}
	}
	found := map[string]bool{}
	for _, d := range all {
		found[d.name] = d.name != "" && d.isOfTests() && (callers[d.name] || len(users[d.name]) > 0)
	}
	isReal := func(name string) bool { return !found[name] }
	for before := -1; before != len(found); {
		before = len(found)
		maps.DeleteFunc(found, func(name string, is bool) bool {
			return !is || !callers[name] && slices.ContainsFunc(users[name], isReal)
		})
	}
	return found
}

// bubbleCallers returns the names of the functions that call bubble.Test, or a function that is one of these.
func bubbleCallers(all []declaration) map[string]bool {
	callers := map[string]bool{"weft/internal/bubble.Test": true}
	for before := 0; before < len(callers); {
		before = len(callers)
		for _, d := range all {
			function, ok := d.node.(*ast.FuncDecl)
			if ok && function.Recv == nil && contains(function, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				return ok && callers[d.fullName(call.Fun)]
			}) {
				callers[d.name] = true
			}
		}
	}
	return callers
}

// declaration is a function, or a part of another declaration.
type declaration struct {
	goSource
	node ast.Node
	name string // of the function or type, or of the type of a method, or ""
}

func (s goSource) declarations() (all []declaration) {
	for _, d := range s.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d)
			}
			all = append(all, declaration{s, d, name})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				name := ""
				if declared, ok := spec.(*ast.TypeSpec); ok {
					name = declared.Name.Name
				}
				all = append(all, declaration{s, spec, name})
			}
		}
	}
	return all
}

// receiver returns the name of a method's type.
func receiver(method *ast.FuncDecl) (name string) {
	for n := range ast.Preorder(method.Recv.List[0].Type) {
		if n, ok := n.(*ast.Ident); ok && name == "" {
			name = n.Name
		}
	}
	return name
}

// isOfTests reports whether a file is compiled for the tests of its package alone.
func (s goSource) isOfTests() bool {
	return strings.HasSuffix(s.files.Position(s.tree.Pos()).Filename, "_test.go")
}

// fullName returns the name of an object with the path of its package, ".name" for a field or method, or "" for another
// expression.
func (s goSource) fullName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok {
			for _, imported := range s.tree.Imports {
				pkg := strings.Trim(imported.Path.Value, `"`)
				if imported.Name == nil && path.Base(pkg) == of.Name ||
					imported.Name != nil && imported.Name.Name == of.Name {
					return pkg + "." + e.Sel.Name
				}
			}
		}
		return "." + e.Sel.Name
	}
	return ""
}
