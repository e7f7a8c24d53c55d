package agent

import (
	"net/netip"
	"strings"
	"testing"

	"weft/kind"
)

func TestFamiliesOfAMachine(t *testing.T) {
	for addresses, want := range map[string]kind.IPFamilies{
		"127.0.0.1 ::1 10.0.0.1 fe80::1 2001:db8::1": kind.DualStack,
		"127.0.0.1 ::1 10.0.0.1 fe80::1":             kind.DualStack,
		"127.0.0.1 ::1":                              kind.DualStack,
		"127.0.0.1 ::1 fe80::1":                      kind.DualStack,
		"127.0.0.1 10.0.0.1":                         kind.IPv4,
		"127.0.0.1":                                  kind.IPv4,
		"127.0.0.1 ::1 fe80::1 2001:db8::1":          kind.IPv6,
		"127.0.0.1 ::1 169.254.1.1 fd00::1":          kind.IPv6,
	} {
		var all []netip.Addr
		for address := range strings.FieldsSeq(addresses) {
			all = append(all, netip.MustParseAddr(address))
		}
		if got := familiesOf(all); got != want {
			t.Errorf("%s: %s, want %s", addresses, got, want)
		}
	}
}

// TestReportsHaveTheFamiliesOfTheMachine: a network that comes up later is in the next report.
func TestReportsHaveTheFamiliesOfTheMachine(t *testing.T) {
	o := newStatusReporter("run", "1.40.0")
	for _, families := range []kind.IPFamilies{kind.IPv6, kind.DualStack} {
		o.setFamilies(families)
		if report, _ := o.report.load(); report.IpFamilies != string(families) {
			t.Errorf("the report has %q, want %s", report.IpFamilies, families)
		}
	}
}
