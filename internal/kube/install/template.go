package install

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	syntax "text/template/parse"
)

// templates executes templates of Go as package text/template does, as far as the chart uses them, on mappings, lists
// and scalars. That package can call every exported method, so a program that links it has all of them. (ADR 261)
type templates struct {
	trees     map[string]*syntax.Tree
	functions map[string]any // by name
}

func newTemplates() *templates {
	t := &templates{trees: map[string]*syntax.Tree{}, functions: map[string]any{
		"and": shortCircuit{}, "or": shortCircuit{decides: true},
		"eq": eq, "index": index, "ne": ne, "not": not, "printf": fmt.Sprintf,
	}}
	maps.Copy(t.functions, functions(t))
	return t
}

// parse adds the template of a file, and those that the file defines.
func (t *templates) parse(file, text string) error {
	trees, err := syntax.Parse(file, text, "", "", t.functions)
	maps.Copy(t.trees, trees)
	return err
}

// execute writes a template with its data.
func (t *templates) execute(out io.Writer, name string, data any) error {
	tree, ok := t.trees[name]
	if !ok {
		return fmt.Errorf("no template %q", name)
	}
	s := &scope{templates: t, out: out, tree: tree, variables: []variable{{"$", data}}}
	return s.walk(data, tree.Root)
}

// scope is the execution of one template.
type scope struct {
	*templates
	out       io.Writer
	tree      *syntax.Tree
	variables []variable // those of outer scopes first
}

type variable struct {
	name  string
	value any
}

// truncate ends the variables that were declared since there were n.
func (s *scope) truncate(n int) { s.variables = s.variables[:n] }

// fail adds the place of a node to an error.
func (s *scope) fail(at syntax.Node, err error) error {
	place, context := s.tree.ErrorContext(at)
	return fmt.Errorf("%s: at <%s>: %w", place, context, err)
}

func (s *scope) walk(dot any, node syntax.Node) error {
	switch n := node.(type) {
	case *syntax.ListNode:
		for _, one := range n.Nodes {
			if err := s.walk(dot, one); err != nil {
				return err
			}
		}
		return nil
	case *syntax.TextNode:
		_, err := s.out.Write(n.Text)
		return err
	case *syntax.ActionNode:
		v, err := s.pipe(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		_, err = io.WriteString(s.out, printed(v))
		return err
	case *syntax.IfNode:
		return s.branch(dot, &n.BranchNode, func(any) any { return dot })
	case *syntax.WithNode:
		return s.branch(dot, &n.BranchNode, func(v any) any { return v })
	case *syntax.RangeNode:
		return s.loop(dot, n)
	}
	return s.fail(node, errors.New("the chart has no such action"))
}

// printed is the text of a value. Nothing has the one that helm removes.
func printed(v any) string {
	if v == nil {
		return noValue
	}
	return fmt.Sprint(v)
}

const noValue = "<no value>"

// branch executes the list of a condition or its else; inside is what dot is in the list.
func (s *scope) branch(dot any, n *syntax.BranchNode, inside func(any) any) error {
	defer s.truncate(len(s.variables))
	v, err := s.pipe(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case isTrue(v):
		return s.walk(inside(v), n.List)
	case n.ElseList != nil:
		return s.walk(dot, n.ElseList)
	}
	return nil
}

// loop executes the list of a range for each item, or its else without an item. Keys of a mapping are in their order.
func (s *scope) loop(dot any, n *syntax.RangeNode) error {
	defer s.truncate(len(s.variables))
	over, err := s.expression(dot, n.Pipe)
	if err != nil {
		return err
	}
	var keys, items []any
	switch v := over.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			keys, items = append(keys, key), append(items, v[key])
		}
	case []any:
		for i, item := range v {
			keys, items = append(keys, i), append(items, item)
		}
	case []string:
		for i, item := range v {
			keys, items = append(keys, i), append(items, item)
		}
	default:
		return s.fail(n, fmt.Errorf("range can't iterate over %v", over))
	}
	if len(items) == 0 && n.ElseList != nil {
		return s.walk(dot, n.ElseList)
	}
	for i, item := range items {
		outside := len(s.variables)
		switch d := n.Pipe.Decl; len(d) {
		case 2:
			s.variables = append(s.variables, variable{d[0].Ident[0], keys[i]}, variable{d[1].Ident[0], item})
		case 1:
			s.variables = append(s.variables, variable{d[0].Ident[0], item})
		}
		if err := s.walk(item, n.List); err != nil {
			return err
		}
		s.truncate(outside)
	}
	return nil
}

// pipe returns the value of a pipeline, and declares or sets its variables.
func (s *scope) pipe(dot any, p *syntax.PipeNode) (any, error) {
	v, err := s.expression(dot, p)
	if err != nil {
		return nil, err
	}
	for _, d := range p.Decl {
		if !p.IsAssign {
			s.variables = append(s.variables, variable{d.Ident[0], v})
			continue
		}
		if of := s.lookUp(d.Ident[0]); of != nil {
			of.value = v
		}
	}
	return v, nil
}

// lookUp returns the innermost variable of a name, which the parser has found declared.
func (s *scope) lookUp(name string) *variable {
	for i := range slices.Backward(s.variables) {
		if s.variables[i].name == name {
			return &s.variables[i]
		}
	}
	return nil
}

// expression returns the value of a pipeline. The value of each command is the last argument of the next one.
func (s *scope) expression(dot any, p *syntax.PipeNode) (v any, err error) {
	for i, command := range p.Cmds {
		var last []any
		if i > 0 {
			last = []any{v}
		}
		if v, err = s.command(dot, command, last); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// command returns the value of a command: of a function with its arguments, or of an operand.
func (s *scope) command(dot any, n *syntax.CommandNode, last []any) (any, error) {
	var f any
	switch first := n.Args[0].(type) {
	case *syntax.IdentifierNode:
		f = s.functions[first.Ident]
		if of, ok := f.(shortCircuit); ok {
			return s.shortCircuit(dot, n, of.decides, last)
		}
	case *syntax.NilNode:
		return nil, s.fail(n, errors.New("nil is no command"))
	default:
		v, err := s.operand(dot, first)
		if err != nil || len(n.Args) == 1 && len(last) == 0 {
			return v, err
		}
		f = v
	}
	var arguments []any
	for _, arg := range n.Args[1:] {
		v, err := s.operand(dot, arg)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, v)
	}
	v, err := call(f, append(arguments, last...))
	if err != nil {
		return nil, s.fail(n, err)
	}
	return v, nil
}

// shortCircuit is a logical operation, whose arguments after the one that decides are not evaluated.
type shortCircuit struct{ decides bool }

// shortCircuit returns the first argument that decides a logical operation, else the last one.
func (s *scope) shortCircuit(dot any, n *syntax.CommandNode, decides bool, last []any) (v any, err error) {
	for _, arg := range n.Args[1:] {
		if v, err = s.operand(dot, arg); err != nil || isTrue(v) == decides {
			return v, err
		}
	}
	if len(last) > 0 {
		return last[0], nil
	}
	return v, nil
}

// operand returns the value of an argument.
func (s *scope) operand(dot any, node syntax.Node) (any, error) {
	switch n := node.(type) {
	case *syntax.DotNode:
		return dot, nil
	case *syntax.NilNode:
		return nil, nil
	case *syntax.BoolNode:
		return n.True, nil
	case *syntax.StringNode:
		return n.Text, nil
	case *syntax.NumberNode:
		if n.IsInt {
			return int(n.Int64), nil
		}
		return n.Float64, nil
	case *syntax.PipeNode:
		return s.pipe(dot, n)
	case *syntax.FieldNode:
		return s.fields(n, dot, n.Ident)
	case *syntax.ChainNode:
		of, err := s.operand(dot, n.Node)
		if err != nil {
			return nil, err
		}
		return s.fields(n, of, n.Field)
	case *syntax.VariableNode:
		return s.fields(n, s.lookUp(n.Ident[0]).value, n.Ident[1:])
	case *syntax.IdentifierNode:
		v, err := call(s.functions[n.Ident], nil)
		if err != nil {
			return nil, s.fail(n, err)
		}
		return v, nil
	}
	return nil, s.fail(node, errors.New("the chart has no such operand"))
}

// fields returns the value at a path of keys. A missing key is nil, which has no keys itself.
func (s *scope) fields(at syntax.Node, v any, path []string) (any, error) {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, s.fail(at, fmt.Errorf("%s is read of %s, which is no mapping", key, printed(v)))
		}
		v = m[key]
	}
	return v, nil
}

// call calls a function with arguments of the types of its parameters.
func call(f any, arguments []any) (any, error) {
	function := reflect.ValueOf(f)
	if function.Kind() != reflect.Func {
		return nil, fmt.Errorf("%s has arguments and is no function", printed(f))
	}
	of := function.Type()
	fixed := of.NumIn()
	if of.IsVariadic() {
		fixed--
	}
	if n := len(arguments); n < fixed || n > fixed && !of.IsVariadic() {
		return nil, fmt.Errorf("wrong number of arguments: %d, want %d", n, fixed)
	}
	var in []reflect.Value
	for i, argument := range arguments {
		parameter := of.In(min(i, of.NumIn()-1))
		if i >= fixed {
			parameter = parameter.Elem()
		}
		v := reflect.ValueOf(argument)
		switch kind := parameter.Kind(); {
		case !v.IsValid() && (kind == reflect.Interface || kind == reflect.Map || kind == reflect.Slice):
			v = reflect.Zero(parameter)
		case !v.IsValid() || !v.Type().AssignableTo(parameter):
			return nil, fmt.Errorf("wrong argument %s; expected %s", printed(argument), parameter)
		}
		in = append(in, v)
	}
	results := function.Call(in)
	if len(results) == 2 && !results[1].IsNil() {
		return nil, results[1].Interface().(error)
	}
	return results[0].Interface(), nil
}

// isTrue is whether a value is not empty.
func isTrue(v any) bool {
	switch of := reflect.ValueOf(v); of.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Map, reflect.Slice, reflect.String:
		return of.Len() > 0
	default:
		return !of.IsZero()
	}
}

func not(v any) bool { return !isTrue(v) }

// eq is whether a value is equal to one of others. Values of different types can't be compared.
func eq(v any, others ...any) (bool, error) {
	for _, other := range others {
		if v != nil && other != nil && reflect.TypeOf(v) != reflect.TypeOf(other) {
			return false, fmt.Errorf("incompatible types for comparison: %T and %T", v, other)
		}
		if of := reflect.TypeOf(v); of != nil && !of.Comparable() {
			return false, fmt.Errorf("%T can't be compared", v)
		}
		if v == other {
			return true, nil
		}
	}
	return false, nil
}

func ne(v, other any) (bool, error) {
	same, err := eq(v, other)
	return !same, err
}

// index is the item of a mapping or of a list at each key in turn; nil: a mapping has none.
func index(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch of := v.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("the key %s of a mapping is no text", printed(key))
			}
			v = of[name]
		case []any:
			i, ok := key.(int)
			if !ok || i < 0 || i >= len(of) {
				return nil, fmt.Errorf("a list of %d has no item %s", len(of), printed(key))
			}
			v = of[i]
		default:
			return nil, fmt.Errorf("%s has no items", printed(v))
		}
	}
	return v, nil
}
