package weft_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// TestTestsHaveNoDeadlinesOfTheirOwn: a deadline that a fast machine keeps and a slow one misses fails correct
// code. So a test takes deadlines from package testwait, and asserts no upper bound of a duration. In a bubble time is
// simulated, so code for bubbles alone may do both ([simulated]).
//
// The check reads the syntax of one function at a time. A name has the values that the function gives to it or, if it
// gives none, those of the package. testdata/deadlines.txtar has the forms that are found, and those that are not.
func TestTestsHaveNoDeadlinesOfTheirOwn(t *testing.T) {
	folders := map[string][]goSource{}
	for file, source := range goFiles(t) {
		if isTestCode(file, source) {
			folders[path.Dir(file)] = append(folders[path.Dir(file)], source)
		}
	}
	for _, sources := range folders {
		for at, says := range guesses(sources) {
			t.Errorf("%s:%d %s", at.Filename, at.Line, says)
		}
	}
}

// TestFormsOfDeadlines compares the lines that are found with those that testdata/deadlines.txtar says are found.
func TestFormsOfDeadlines(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/deadlines.txtar")
	if err != nil {
		t.Fatal(err)
	}
	folders, want, got := map[string][]goSource{}, []string{}, []string{}
	for _, file := range archive.Files {
		positions := token.NewFileSet()
		tree, err := parser.ParseFile(positions, file.Name, file.Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(file.Name)
		folders[dir] = append(folders[dir], goSource{file.Data, tree, positions})
		for i, line := range strings.Split(string(file.Data), "\n") {
			if strings.HasSuffix(line, "// found") {
				want = append(want, fmt.Sprintf("%s:%d", file.Name, i+1))
			}
		}
	}
	for _, sources := range folders {
		for at := range guesses(sources) {
			got = append(got, fmt.Sprintf("%s:%d", at.Filename, at.Line))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines that are found (-want +got):\n%s", diff)
	}
}

// isTestCode reports whether a file belongs to tests, or to a package that tests alone use.
func isTestCode(file string, source goSource) bool {
	dir := path.Dir(file)
	if dir == "internal/testwait" {
		return false
	}
	measures := dir == "test/load/scenario" // how fast a machine is, and tests nothing
	return strings.HasSuffix(file, "_test.go") || source.tree.Name.Name != "main" && isTestPackage(dir) && !measures
}

// guesses returns the lines of a package where a test assumes how fast a machine is, and what is wrong there.
func guesses(sources []goSource) map[token.Position]string {
	found, shared, exempt := map[token.Position]string{}, values{}, simulated(sources)
	for _, source := range sources {
		for _, d := range source.tree.Decls {
			if _, ok := d.(*ast.GenDecl); ok {
				shared.add(d)
			}
		}
	}
	for _, source := range sources {
		for _, d := range source.declarations() {
			if exempt[d.name] {
				continue
			}
			c := checker{goSource: source, values: maps.Clone(shared), called: map[ast.Expr]bool{}}
			if function, ok := d.node.(*ast.FuncDecl); ok {
				own := values{}
				own.add(function)
				maps.Copy(c.values, own)
				c.function = function.Name.Name
			}
			for n := range ast.Preorder(d.node) {
				if says := c.check(n); says != "" {
					at := source.files.Position(n.Pos())
					found[token.Position{Filename: at.Filename, Line: at.Line}] = says
				}
			}
		}
	}
	return found
}

// values are the expressions that a function, or the declarations of a package, give to names.
type values map[string][]ast.Expr

func (v values) add(n ast.Node) {
	give := func(name ast.Expr, all []ast.Expr, i int) {
		if name, ok := name.(*ast.Ident); ok && len(all) > 0 {
			v[name.Name] = append(v[name.Name], all[min(i, len(all)-1)])
		}
	}
	for n := range ast.Preorder(n) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, name := range n.Lhs {
				give(name, n.Rhs, i)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				give(name, n.Values, i)
			}
		}
	}
}

// some reports whether a value of a name has a property.
func (v values) some(name string, has func(ast.Expr) bool) bool {
	all := v[name]
	v[name] = nil // a name may be a part of its own value
	defer func() { v[name] = all }()
	return slices.ContainsFunc(all, has)
}

// checker looks for the deadlines of one declaration.
type checker struct {
	goSource
	values   values
	function string            // the name of the function that is checked
	called   map[ast.Expr]bool // the functions of the calls
}

// deadlines are the functions and methods that take a time or duration at which a wait ends, with the index of that
// argument.
var deadlines = map[string]int{
	"time.After": 0, "time.Tick": 0, "time.NewTimer": 0, "time.AfterFunc": 0, "time.Sleep": 0,
	"context.WithTimeout": 1, "context.WithDeadline": 1, "context.WithTimeoutCause": 1, "context.WithDeadlineCause": 1,
	"net.DialTimeout": 2, ".SetDeadline": 0, ".SetReadDeadline": 0, ".SetWriteDeadline": 0,
}

const (
	assertsDuration = "asserts how long something took: that is a measurement; compare with testwait.Timeout where " +
		"the alternative is for ever"
	waitsUntil = "waits until a time of its own: call testwait.Until or testwait.Receive"
)

// check returns what is wrong about a node, apart from the nodes below it.
func (c checker) check(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		c.called[n.Fun] = true
		return c.checkCall(n)
	case *ast.SelectorExpr:
		if _, waits := deadlines[c.fullName(n)]; waits && !c.called[n] {
			return "has a function that waits as a value: call it"
		}
	case *ast.KeyValueExpr:
		return c.checkField(n.Key, n.Value)
	case *ast.AssignStmt:
		if field, ok := n.Lhs[0].(*ast.SelectorExpr); ok {
			return c.checkField(field.Sel, n.Rhs[0])
		}
	case *ast.CommClause:
		if n.Comm != nil && c.mentions(n.Comm, ".C") &&
			c.mentions(&ast.BlockStmt{List: n.Body}, ".Error", ".Errorf", ".Fatal", ".Fatalf", "panic") {
			return waitsUntil
		}
	case *ast.ForStmt:
		if n.Cond != nil && contains(n.Cond, c.boundsLoop) {
			return waitsUntil
		}
	case *ast.UnaryExpr:
		not, ok := ast.Unparen(n.X).(*ast.BinaryExpr)
		if ok && n.Op == token.NOT && c.isAbove(not.Y, not.Op, not.X) {
			return assertsDuration
		}
	case *ast.BinaryExpr:
		if c.isAbove(n.X, n.Op, n.Y) {
			return assertsDuration
		}
	}
	return ""
}

func (c checker) checkCall(call *ast.CallExpr) string {
	name := c.fullName(call.Fun)
	switch name {
	case "time.Sleep":
		return "sleeps: wait for the event, or call testwait.Pass with the reason"
	case ".After", ".Before", ".Compare":
		x, y := call.Fun.(*ast.SelectorExpr).X, first(call)
		if c.isNow(x) && c.isOwnTime(y) || c.isNow(y) && c.isOwnTime(x) {
			return waitsUntil
		}
	}
	at, waits := deadlines[name]
	if !waits || len(call.Args) <= at || c.isAllowed(call.Args[at]) {
		return ""
	}
	if _, forwards := call.Args[at].(*ast.Ident); forwards && name == "."+c.function {
		return ""
	}
	return fmt.Sprintf("calls %s with a duration of its own: take the deadline from package testwait, or call "+
		"testwait.Pass or testwait.Input where the duration is the input of the test", name)
}

// checkField checks the value of a field that by its name bounds a wait.
func (c checker) checkField(field, value ast.Expr) string {
	name, ok := field.(*ast.Ident)
	if !ok || !name.IsExported() || !strings.HasSuffix(name.Name, "Timeout") && name.Name != "Deadline" ||
		c.isAllowed(value) || !c.isDuration(value) && !c.isOwnTime(value) {
		return ""
	}
	return "sets a " + name.Name + " of its own: take it from package testwait"
}

// boundsLoop reports whether a part of a loop's condition compares a measured duration, or the one until a time of the
// test.
func (c checker) boundsLoop(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return c.isAbove(n.X, n.Op, n.Y) || c.isAbove(n.Y, n.Op, n.X)
	case *ast.CallExpr:
		return c.fullName(n.Fun) == "time.Until" && !c.isAllowed(first(n))
	}
	return false
}

// isAbove reports whether a comparison is true where a measured duration is above a bound of the test.
func (c checker) isAbove(x ast.Expr, operator token.Token, y ast.Expr) bool {
	switch operator {
	case token.GTR, token.GEQ:
		return c.isMeasured(x) && !c.isAllowed(y)
	case token.LSS, token.LEQ:
		return c.isMeasured(y) && !c.isAllowed(x)
	}
	return false
}

// isMeasured reports whether an expression is a duration that was measured, or is computed from one.
func (c checker) isMeasured(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return c.values.some(e.Name, c.isMeasured)
	case *ast.BinaryExpr:
		return c.isMeasured(e.X) || c.isMeasured(e.Y)
	case *ast.CallExpr:
		switch c.fullName(e.Fun) {
		case "time.Since":
			return true
		case ".Sub":
			_, isName := first(e).(*ast.Ident) // NotAfter.Sub(time.Now()) is the rest of a life
			return c.isNow(e.Fun.(*ast.SelectorExpr).X) || isName && c.isNow(first(e))
		case ".Seconds", ".Milliseconds", ".Minutes", ".Round":
			return c.isMeasured(e.Fun.(*ast.SelectorExpr).X)
		case "time.Duration", "float64", "max":
			return slices.ContainsFunc(e.Args, c.isMeasured)
		}
	}
	return false
}

// isNow reports whether an expression is the current time, or a name for it.
func (c checker) isNow(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	call, isCall := e.(*ast.CallExpr)
	return ok && c.values.some(name.Name, c.isNow) || isCall && c.fullName(call.Fun) == "time.Now"
}

// isOwnTime reports whether an expression is a time that is a duration of the test after another, or a name for it.
func (c checker) isOwnTime(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	call, isCall := e.(*ast.CallExpr)
	return ok && c.values.some(name.Name, c.isOwnTime) ||
		isCall && c.fullName(call.Fun) == ".Add" && !c.isAllowed(first(call))
}

// isDuration reports whether an expression is a duration by its form: a number, a unit of time, one of these with other
// operands, or a name for such a value.
func (c checker) isDuration(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return e.Kind != token.STRING
	case *ast.Ident:
		return c.values.some(e.Name, c.isDuration)
	case *ast.BinaryExpr:
		return c.isDuration(e.X) || c.isDuration(e.Y)
	case *ast.SelectorExpr:
		return strings.HasPrefix(c.fullName(e), "time.")
	case *ast.CallExpr:
		return slices.Contains([]string{"time.Duration", "min"}, c.fullName(e.Fun)) &&
			slices.ContainsFunc(e.Args, c.isDuration)
	}
	return false
}

// isAllowed reports whether an expression is a time or duration of package testwait, or is computed from one and is no
// shorter, or sets no time: zero, a time that is fixed or over, or the deadline of a context.
func (c checker) isAllowed(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return e.Value == "0"
	case *ast.Ident:
		return len(c.values[e.Name]) > 0 && !c.values.some(e.Name, func(e ast.Expr) bool { return !c.isAllowed(e) })
	case *ast.SelectorExpr:
		return strings.HasPrefix(c.fullName(e), "weft/internal/testwait.")
	case *ast.CompositeLit:
		return c.fullName(e.Type) == "time.Time"
	case *ast.BinaryExpr:
		return (e.Op == token.MUL || e.Op == token.ADD) && (c.isAllowed(e.X) || c.isAllowed(e.Y))
	case *ast.CallExpr:
		switch c.fullName(e.Fun) {
		case "time.Now", "time.Unix", ".Deadline":
			return true
		case ".Add":
			return c.isAllowed(first(e))
		case ".Seconds", ".Milliseconds":
			return c.isAllowed(e.Fun.(*ast.SelectorExpr).X)
		}
		return c.isAllowed(e.Fun)
	}
	return false
}

// first returns the first argument of a call, or nil.
func first(call *ast.CallExpr) ast.Expr {
	if len(call.Args) == 0 {
		return nil
	}
	return call.Args[0]
}

// mentions reports whether a node has one of the names.
func (c checker) mentions(n ast.Node, names ...string) bool {
	return contains(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		return ok && slices.Contains(names, c.fullName(e))
	})
}

// contains reports whether a node, or one below it, has a property.
func contains(n ast.Node, has func(ast.Node) bool) bool {
	for n := range ast.Preorder(n) {
		if has(n) {
			return true
		}
	}
	return false
}
