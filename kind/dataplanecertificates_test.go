package kind_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/kind"
)

func namesOf(list string) kind.SpiffeIDs { return kind.SpiffeIDsOf(strings.Fields(list)...) }

// No client sees a SPIFFE ID that it does not accept yet. SPIFFE IDs may be added to those that a proxy presents; one
// is removed only in favor of accepted ones.
func TestWhichNamesMayBeSigned(t *testing.T) {
	for _, c := range []struct {
		used, accepted, wanted string
		may                    bool
	}{
		{"", "", "a", true},
		{"a", "", "a", true},
		{"a", "", "a b", true},
		{"b", "", "a b", true},
		{"a b", "", "a", false},
		{"a b", "a", "a", true},
		{"a", "", "b", false},
		{"a", "b", "b", true},
		{"a", "b c", "b", false},
		{"a b", "", "b c", false},
	} {
		row := kind.DataplaneCertificates{}
		if c.used != "" {
			row.Add(kind.WorkloadCertificate{SpiffeIDs: namesOf(c.used)})
		}
		if c.accepted != "" {
			row.Next = &kind.NextIdentity{SpiffeIDs: namesOf(c.accepted), Accepted: true}
		}
		if may := row.MaySign(namesOf(c.wanted)); may != c.may {
			t.Errorf("with [%s] in use and [%s] accepted, [%s] may be signed: %v, want %v", c.used, c.accepted,
				c.wanted, may, c.may)
		}
	}
}

// A rule for one service of a proxy does not apply to its other services. A rule for a SPIFFE ID that the proxy changes
// applies to the next one.
func TestNamesThatStandForEachOther(t *testing.T) {
	for _, c := range []struct {
		certificates []string
		next         string
		want         string
	}{
		{[]string{"a b"}, "", "[]"},
		{[]string{"a", "a b"}, "", "[]"},
		{[]string{"a b", "b c"}, "", "[]"},
		{[]string{"a"}, "x", "[[a x]]"},
		{[]string{"x"}, "a b", "[[a x] [b x]]"},
		{[]string{"x", "y"}, "z", "[[x y] [x z] [y z]]"},
	} {
		row := kind.DataplaneCertificates{}
		for _, leaf := range c.certificates {
			row.Add(kind.WorkloadCertificate{SpiffeIDs: namesOf(leaf)})
		}
		if c.next != "" {
			row.Next = &kind.NextIdentity{SpiffeIDs: namesOf(c.next)}
		}
		if got := fmt.Sprint(row.Aliases()); got != c.want {
			t.Errorf("leaves of %q and [%s] next: %s stand for each other, want %s", c.certificates, c.next, got,
				c.want)
		}
	}
}
