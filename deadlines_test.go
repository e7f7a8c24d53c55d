package weft_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestTestsHaveNoDeadlinesOfTheirOwn: a deadline that a fast machine keeps and a slow one misses fails correct
// code. So a test takes deadlines from package testwait, and asserts no upper bound of a duration. In a bubble time is
// simulated, so a test may do both.
func TestTestsHaveNoDeadlinesOfTheirOwn(t *testing.T) {
	for file, source := range goFiles(t) {
		if !isTestCode(file, source) || source.imports("weft/internal/bubble") {
			continue
		}
		for _, found := range guesses(source.tree) {
			t.Errorf("%s:%d %s", file, source.files.Position(found.pos).Line, found.says)
		}
	}
}

// isTestCode reports whether a file belongs to tests, or to a package that tests alone use.
func isTestCode(file string, source goSource) bool {
	dir := path.Dir(file)
	if dir == "internal/testwait" {
		return false
	}
	return strings.HasSuffix(file, "_test.go") || source.tree.Name.Name != "main" && isTestPackage(dir)
}

// guess is a place where a test assumes how fast a machine is.
type guess struct {
	pos  token.Pos
	says string
}

// deadlines are the functions and methods that take a time or duration at which a wait ends.
var deadlines = []string{"time.After", "time.NewTimer", "time.AfterFunc", "context.WithTimeout", "context.WithDeadline",
	"context.WithTimeoutCause", "net.DialTimeout", ".SetDeadline", ".SetReadDeadline", ".SetWriteDeadline"}

func guesses(file *ast.File) (found []guess) {
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, guess{n.Pos(), fmt.Sprintf(format, args...)})
	}
	measured := measurements(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := calledName(n)
			_, method, _ := strings.Cut(name, ".")
			if (slices.Contains(deadlines, name) || slices.Contains(deadlines, "."+method)) && !isFromTestwait(n) {
				report(n, "calls %s with a duration of its own: take the deadline from package testwait, or "+
					"testwait.Pass where the duration is the input of the test", name)
			}
			if isNowCompared(n) && !isFromTestwait(n) {
				report(n, "waits until a time of its own: call testwait.Until")
			}
			if name == "time.Sleep" {
				report(n, "sleeps: wait for the event, or call testwait.Pass with the reason")
			}
		case *ast.KeyValueExpr:
			key, isName := n.Key.(*ast.Ident)
			if isName && key.Name == "Timeout" && isDuration(n.Value) && !isFromTestwait(n) {
				report(n, "sets a Timeout of its own: take it from package testwait")
			}
		case *ast.ForStmt:
			if calls(n.Init, "time.Now") && !isFromTestwait(n.Init) {
				report(n, "repeats until a time of its own: call testwait.Until")
			}
		case *ast.BinaryExpr:
			if bound, value := upperBound(n); bound != nil && measured(value) && !isFromTestwait(bound) {
				report(n, "asserts how long something took: that is a measurement; compare with testwait.Timeout "+
					"where the alternative is for ever")
			}
		}
		return true
	})
	return found
}

// calledName returns the name of a called function with its package or receiver, as it is written.
func calledName(call *ast.CallExpr) string {
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	of, ok := called.X.(*ast.Ident)
	if !ok {
		return "." + called.Sel.Name
	}
	return of.Name + "." + called.Sel.Name
}

// calls reports whether a node has a call of a function.
func calls(n ast.Node, name string) (is bool) {
	return n != nil && contains(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		return ok && calledName(call) == name
	})
}

// isFromTestwait reports whether a node uses package testwait, or sets no time at all.
func isFromTestwait(n ast.Node) bool {
	return contains(n, func(n ast.Node) bool {
		used, ok := n.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		of, ok := used.X.(*ast.Ident)
		return ok && (of.Name == "testwait" || of.Name == "time" && used.Sel.Name == "Time")
	})
}

// isDuration reports whether an expression is a time.Duration by its form: a unit of time, or a multiple of one.
func isDuration(n ast.Expr) bool {
	units := []string{"Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return isDuration(n.X) || isDuration(n.Y)
	case *ast.SelectorExpr:
		return slices.Contains(units, n.Sel.Name)
	}
	return false
}

// isNowCompared reports whether a call compares the current time with another.
func isNowCompared(call *ast.CallExpr) bool {
	called, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (called.Sel.Name == "After" || called.Sel.Name == "Before") && calls(called.X, "time.Now")
}

// upperBound returns the sides of a comparison that is true where the value is above the bound.
func upperBound(n *ast.BinaryExpr) (bound, value ast.Expr) {
	switch n.Op {
	case token.GTR, token.GEQ:
		return n.Y, n.X
	case token.LSS, token.LEQ:
		return n.X, n.Y
	}
	return nil, nil
}

// measurements returns a function that reports whether an expression is a measured duration: a call of time.Since, or a
// variable of such a value.
func measurements(file *ast.File) func(ast.Expr) bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		assigned, ok := n.(*ast.AssignStmt)
		if !ok || len(assigned.Lhs) != len(assigned.Rhs) {
			return true
		}
		for i, value := range assigned.Rhs {
			name, ok := assigned.Lhs[i].(*ast.Ident)
			if call, isCall := value.(*ast.CallExpr); ok && isCall && calledName(call) == "time.Since" {
				names[name.Name] = true
			}
		}
		return true
	})
	return func(value ast.Expr) bool {
		if name, ok := value.(*ast.Ident); ok {
			return names[name.Name]
		}
		call, ok := value.(*ast.CallExpr)
		return ok && calledName(call) == "time.Since"
	}
}

// contains reports whether a node, or one below it, has a property.
func contains(n ast.Node, has func(ast.Node) bool) (is bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		is = is || n != nil && has(n)
		return !is
	})
	return is
}
