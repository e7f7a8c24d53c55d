package kind

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"weft/resource"
)

// maxRegexSize bounds the size of a regular expression as a program. weft-dp has Envoy accept twice as much.
const maxRegexSize = 5000

// regex checks that a regular expression is one of RE2's syntax, which Go reads too, and not too large. A user's write
// passes [CheckRegexes] too.
func (c *checks) regex(at, expression string) bool {
	if reason := regexProblem(expression); reason != "" {
		return c.add(at, "%s", reason)
	}
	return true
}

func regexProblem(expression string) string {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Sprintf("%s is not a regular expression of RE2: %v", quote(expression), err)
	}
	if size := regexSize(expression); size > maxRegexSize {
		return fmt.Sprintf("is too large: a program of %d instructions, want %d at most; repeat less, or match less "+
			"than all letters of Unicode", size, maxRegexSize)
	}
	return ""
}

// RegexProblem returns why a user may not write a regular expression; empty: Envoy accepts it.
func RegexProblem(expression string) string {
	return cmp.Or(regexProblem(expression), envoyRegexProblem(expression))
}

// regexSize returns the number of instructions of a valid expression in RE2 at most. RE2 matches bytes, so that a range
// of characters beyond ASCII is several instructions.
func regexSize(expression string) int {
	const instructionsOfRange = 6
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	size := 0
	for i := range program.Inst {
		switch inst := &program.Inst[i]; inst.Op {
		case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			size += instructionsOfRange
		case syntax.InstRune:
			for _, last := range inst.Rune {
				if size++; last > unicode.MaxASCII {
					size += instructionsOfRange
				}
			}
		default:
			size++
		}
	}
	return size
}

// CheckRegexes returns the problems of the regular expressions of a resource that a user writes: those which Go reads
// and Envoy rejects. An expression that the stored resource has stays, with a warning.
func CheckRegexes(before, after resource.Any) (problems resource.Problems, warnings []string) {
	var stored []string
	if before != nil {
		eachRegex(resource.SpecOf(before), func(_, expression string) { stored = append(stored, expression) })
	}
	eachRegex(resource.SpecOf(after), func(field, expression string) {
		switch reason := envoyRegexProblem(expression); {
		case reason == "":
		case slices.Contains(stored, expression):
			warnings = append(warnings, fmt.Sprintf("%s: %s; it stays as it is stored, and proxies run without the "+
				"policy", field, reason))
		default:
			problems.Add(field, "%s", reason)
		}
	})
	return problems, warnings
}

// regexField is a field of a spec that may be a regular expression.
type regexField interface {
	// regex returns the expression, and its field below the value; empty: it is none.
	regex() (field, expression string)
}

func (m HeaderMatch) regex() (field, expression string) {
	return regexOf(m.Type == HeaderRegex, m.Value)
}
func (m PathMatch) regex() (field, expression string)  { return regexOf(m.Type == PathRegex, m.Value) }
func (m QueryMatch) regex() (field, expression string) { return regexOf(m.Type == PathRegex, m.Value) }

func regexOf(is bool, value string) (field, expression string) {
	if !is {
		return "", ""
	}
	return "value", value
}

// eachRegex calls visit with each regular expression of a spec and its field.
func eachRegex(spec any, visit func(field, expression string)) {
	visitRegexes(reflect.ValueOf(spec), "spec", visit)
}

func visitRegexes(v reflect.Value, at string, visit func(field, expression string)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			visitRegexes(v.Elem(), at, visit)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			visitRegexes(v.Index(i), fmt.Sprintf("%s[%d]", at, i), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			visitRegexes(v.MapIndex(key), fmt.Sprintf("%s[%v]", at, key), visit)
		}
	case reflect.Struct:
		if f, ok := v.Interface().(regexField); ok {
			if field, expression := f.regex(); expression != "" {
				visit(at+"."+field, expression)
			}
			return
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || name == "-" {
				continue
			}
			below := at
			if name != "" {
				below += "." + name
			}
			visitRegexes(v.Field(i), below, visit)
		}
	}
}

// envoyRegexProblem returns why Envoy rejects a regular expression that Go reads; empty: it accepts it. Envoy's RE2
// reads Latin-1: a character beyond U+00FF has no number there, and an expression has it as the bytes of its UTF-8. Of
// Unicode, RE2 has the scripts, and the general categories by their short names.
func envoyRegexProblem(expression string) string {
	if _, err := regexp.Compile(latin1(expression)); err != nil {
		return fmt.Sprintf("%s is not a regular expression of Envoy, which reads each byte of a character beyond "+
			"ASCII as a character: %v; write such characters outside of ranges", quote(expression), err)
	}
	for rest := expression; rest != ""; {
		at := strings.IndexByte(rest, '\\')
		if at < 0 || at+1 == len(rest) {
			return ""
		}
		escape := rest[at+1:]
		rest = escape[1:]
		switch c := escape[0]; {
		case c == 'Q':
			_, rest, _ = strings.Cut(rest, `\E`)
		case c == 'x' && strings.HasPrefix(rest, "{"):
			digits, _, _ := strings.Cut(rest[1:], "}")
			if n, err := strconv.ParseUint(digits, 16, 32); err != nil || n > unicode.MaxLatin1 {
				return fmt.Sprintf(`has \x{%s}, which Envoy does not read: it matches bytes; write the character itself`,
					digits)
			}
		case c >= '0' && c <= '7':
			digits := escape[:min(3, len(escape))]
			if n, err := strconv.ParseUint(digits, 8, 32); err == nil && n > unicode.MaxLatin1 {
				return fmt.Sprintf(`has \%s, which Envoy does not read: it matches bytes; write the character itself`, digits)
			}
		case c == 'p' || c == 'P':
			if name := unicodeScript(rest); !envoyScripts[name] {
				return fmt.Sprintf(`has \%c{%s}, which Envoy does not know; want a script such as \p{Greek}, or the `+
					`short name of a category such as \p{Lu}`, c, name)
			}
		}
	}
	return ""
}

// latin1 returns a text with a character for each byte.
func latin1(text string) string {
	characters := make([]rune, len(text))
	for i := range len(text) {
		characters[i] = rune(text[i])
	}
	return string(characters)
}

// unicodeScript returns the name of a script or a category of Unicode after \p.
func unicodeScript(text string) string {
	name := text[:min(1, len(text))]
	if name == "{" {
		name, _, _ = strings.Cut(text[1:], "}")
	}
	return strings.TrimPrefix(name, "^")
}

// envoyScripts are the scripts and categories of Unicode that Envoy's RE2 has.
var envoyScripts = func() map[string]bool {
	scripts := map[string]bool{"Any": true}
	for name := range unicode.Categories {
		scripts[name] = name != "LC" && name != "Cn"
	}
	for name := range unicode.Scripts {
		scripts[name] = true
	}
	return scripts
}()

const (
	// regexUnit is the unit of [regexCost].
	regexUnit = "units of 10 bytes of regular expressions and headers"
	// maxRegexCost bounds what the policies of operators cost a proxy: 40 MB, and what the expressions read.
	maxRegexCost = 4_000_000
	// regexBase is what an expression costs beside its instructions, of 10 bytes each.
	regexBase = 100
)

// regexCost returns what the regular expressions of a conf cost a proxy, in instructions.
func regexCost[C any](conf *C) int64 {
	cost := int64(0)
	eachRegex(conf, func(_, expression string) { cost += int64(regexBase + regexSize(expression)) })
	return cost
}
