package kind

import (
	"fmt"
	"regexp"
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
	if len(name) > 256 || !headerName.MatchString(name) {
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
	switch existence := m.Type == HeaderPresent || m.Type == HeaderAbsent; {
	case !c.valid(at + ".type"):
	case existence && m.Value != "":
		c.add(at+".value", "has no meaning with the type %s; leave it out", m.Type)
	case !existence && m.Value == "":
		c.add(at+".value", "is required; the type Present matches every value")
	case m.Type == HeaderRegex:
		c.regex(at+".value", m.Value)
	}
}
