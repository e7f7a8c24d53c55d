package envoysim

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// celScope is the input of a decision's expressions: filter state, and attributes of the connection.
type celScope struct {
	filterState, attributes map[string]string
}

// evaluateCEL returns the string value of an expression. It supports the part of CEL that package envoy writes, and
// returns an error for any other.
func evaluateCEL(expression string, scope celScope) (string, error) {
	p := &celParser{rest: expression, scope: scope}
	value, err := p.conditional()
	if err != nil {
		return "", fmt.Errorf("at %q: %w", p.rest, err)
	}
	text, ok := value.(string)
	if p.peek() != "" || !ok {
		return "", fmt.Errorf("at %q: the end of a string was expected", p.rest)
	}
	return text, nil
}

// celParser evaluates while it parses. Values are strings and booleans.
type celParser struct {
	rest  string
	scope celScope
}

// peek returns the next character or operator, or an empty string at the end.
func (p *celParser) peek() string {
	p.rest = strings.TrimLeft(p.rest, " ")
	for _, operator := range []string{"&&", "||"} {
		if strings.HasPrefix(p.rest, operator) {
			return operator
		}
	}
	return p.rest[:min(1, len(p.rest))]
}

func (p *celParser) accept(token string) bool {
	if token == "" || p.peek() != token {
		return false
	}
	p.rest = p.rest[len(token):]
	return true
}

func (p *celParser) expect(token string) error {
	if !p.accept(token) {
		return fmt.Errorf("%s was expected", token)
	}
	return nil
}

// conditional parses "condition ? value : value".
func (p *celParser) conditional() (any, error) {
	condition, err := p.logical("||", func() (any, error) { return p.logical("&&", p.operand) })
	if err != nil || !p.accept("?") {
		return condition, err
	}
	then, err := p.conditional()
	if err != nil {
		return nil, err
	}
	if err := p.expect(":"); err != nil {
		return nil, err
	}
	otherwise, err := p.conditional()
	if err != nil {
		return nil, err
	}
	holds, ok := condition.(bool)
	switch {
	case !ok:
		return nil, fmt.Errorf("%v is no condition", condition)
	case holds:
		return then, nil
	}
	return otherwise, nil
}

// logical parses operands that one operator joins.
func (p *celParser) logical(operator string, operand func() (any, error)) (any, error) {
	value, err := operand()
	for err == nil && p.accept(operator) {
		var right any
		if right, err = operand(); err != nil {
			return nil, err
		}
		a, ok := value.(bool)
		b, also := right.(bool)
		if !ok || !also {
			return nil, fmt.Errorf("%v %s %v are no conditions", value, operator, right)
		}
		value = a && b
		if operator == "||" {
			value = a || b
		}
	}
	return value, err
}

// operand parses a value with its method calls.
func (p *celParser) operand() (any, error) {
	value, err := p.primary()
	for err == nil && p.accept(".") {
		value, err = p.method(value)
	}
	return value, err
}

func (p *celParser) primary() (any, error) {
	switch {
	case p.peek() == "'":
		return p.literal()
	case p.accept("("):
		return p.closed(p.conditional)
	}
	switch name := p.identifier(); name {
	case "string":
		if err := p.expect("("); err != nil {
			return nil, err
		}
		return p.closed(p.conditional)
	case "filter_state":
		return p.index(p.scope.filterState)
	case "connection":
		if err := p.expect("."); err != nil {
			return nil, err
		}
		attribute := name + "." + p.identifier()
		value, ok := p.scope.attributes[attribute]
		if !ok {
			return nil, fmt.Errorf("the connection has no %s", attribute)
		}
		return value, nil
	default:
		return nil, fmt.Errorf("%q is not understood", name)
	}
}

// closed parses an inner expression and the closing parenthesis.
func (p *celParser) closed(inner func() (any, error)) (any, error) {
	value, err := inner()
	if err != nil {
		return nil, err
	}
	return value, p.expect(")")
}

func (p *celParser) index(of map[string]string) (any, error) {
	if err := p.expect("["); err != nil {
		return nil, err
	}
	key, err := p.literal()
	if err != nil {
		return nil, err
	}
	value, ok := of[key]
	if !ok {
		return nil, fmt.Errorf("there is no filter state %s", key)
	}
	return value, p.expect("]")
}

func (p *celParser) method(of any) (any, error) {
	name := p.identifier()
	if err := p.expect("("); err != nil {
		return nil, err
	}
	argument, err := p.closed(p.conditional)
	if err != nil {
		return nil, err
	}
	text, ok := of.(string)
	part, also := argument.(string)
	if name != "contains" || !ok || !also {
		return nil, fmt.Errorf("%s of %v is not understood", name, of)
	}
	return strings.Contains(text, part), nil
}

func (p *celParser) identifier() string {
	p.rest = strings.TrimLeft(p.rest, " ")
	end := strings.IndexFunc(p.rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) })
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	return name
}

// literal parses a string, in which a backslash begins \U and eight hexadecimal digits.
func (p *celParser) literal() (string, error) {
	if err := p.expect("'"); err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		plain, after, found := cutAny(p.rest, `'\`)
		if !found {
			return "", fmt.Errorf("the string does not end")
		}
		text.WriteString(plain)
		if p.rest = after; after[0] == '\'' {
			p.rest = after[1:]
			return text.String(), nil
		}
		if len(after) < 10 || after[1] != 'U' {
			return "", fmt.Errorf("the escape is not understood")
		}
		code, err := strconv.ParseUint(after[2:10], 16, 32)
		if err != nil {
			return "", err
		}
		text.WriteRune(rune(code))
		p.rest = after[10:]
	}
}

// cutAny cuts a text before the first of some characters.
func cutAny(text, characters string) (before, after string, found bool) {
	i := strings.IndexAny(text, characters)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i:], true
}
