package kind

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
)

// HeaderMatch matches a header of a request or of a response.
type HeaderMatch struct {
	// the type of the match: the whole value, its beginning, the whole value by a regular expression (RE2), or whether
	// there is such a header
	Type  string `json:"type,omitempty" schema:"enum=Exact|Prefix|RegularExpression|Present|Absent default=Exact"`
	Name  string `json:"name" schema:"required maxLength=256"`    // the name, in lower case
	Value string `json:"value,omitempty" schema:"maxLength=1024"` // the value; none with Present and Absent
}

// Types of a [HeaderMatch]. An empty one is HeaderExact.
const (
	HeaderExact   = "Exact"
	HeaderPrefix  = "Prefix"
	HeaderRegex   = "RegularExpression"
	HeaderPresent = "Present"
	HeaderAbsent  = "Absent"
)

var headerName = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+$")

// headerName checks the name of a header (RFC 9110, 5.1), which is in lower case as in HTTP/2.
func (c *checks) headerName(at, name string) bool {
	switch {
	case name == "":
		return c.add(at, "is required")
	case len(name) > 256 || !headerName.MatchString(name):
		return c.add(at, "%s is not the name of a header in lower case", quote(name))
	}
	return true
}

func (c *checks) headerMatches(at string, matches []HeaderMatch) {
	for i, m := range matches {
		c.headerMatch(fmt.Sprintf("%s[%d]", at, i), m)
	}
}

func (c *checks) headerMatch(at string, m HeaderMatch) {
	c.headerName(at+".name", m.Name)
	if !c.optionalOneOf(at+".type", m.Type, HeaderExact, HeaderPrefix, HeaderRegex, HeaderPresent, HeaderAbsent) {
		return
	}
	switch existence := m.Type == HeaderPresent || m.Type == HeaderAbsent; {
	case existence && m.Value != "":
		c.add(at+".value", "has no meaning with the type %s; leave it out", m.Type)
	case !existence && m.Value == "":
		c.add(at+".value", "is required; the type Present matches every value")
	case m.Type == HeaderRegex:
		c.regex(at+".value", m.Value)
	}
}

// maxRegexSize bounds the size of a regular expression as a program. weft-dp has Envoy accept twice as much.
const maxRegexSize = 5000

// regex checks a regular expression of the syntax of RE2. Go reads the same syntax.
func (c *checks) regex(at, expression string) bool {
	if _, err := regexp.Compile(expression); err != nil {
		return c.add(at, "%s is not a regular expression of RE2: %v", quote(expression), err)
	}
	if size := regexSize(expression); size > maxRegexSize {
		return c.add(at, "is too large: a program of %d instructions, want %d at most; repeat less, or match less "+
			"than all letters of Unicode", size, maxRegexSize)
	}
	return true
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

const (
	// regexUnit is the unit of [regexCost].
	regexUnit = "instructions of regular expressions"
	// maxRegexCost bounds what the policies of operators cost a proxy: 10 MB of programs, and what they read.
	maxRegexCost = 1_000_000
	// regexBase is what an expression costs beside its instructions, of 10 bytes each.
	regexBase = 400
)

// regexCost returns what a valid regular expression costs a proxy, in instructions.
func regexCost(expression string) int64 { return int64(regexBase + regexSize(expression)) }

func headerRegexCost(matches []HeaderMatch) int64 {
	cost := int64(0)
	for _, m := range matches {
		if m.Type == HeaderRegex {
			cost += regexCost(m.Value)
		}
	}
	return cost
}
