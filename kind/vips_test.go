package kind

import (
	"fmt"
	"net/netip"
	"testing"
)

// The IPv6 virtual IP of a range is for machines without redirected IPv4; both cluster IPs of a Service are for all.
func TestDialedVIPs(t *testing.T) {
	parse := func(texts ...string) (vips []netip.Addr) {
		for _, text := range texts {
			vips = append(vips, netip.MustParseAddr(text))
		}
		return vips
	}
	four, six := "241.0.0.1", "fd00:fd00::f100:1"
	for _, c := range []struct {
		families IPFamilies
		vips     []netip.Addr
		want     []netip.Addr
	}{
		{DualStack, parse(four), parse(four)},
		{DualStack, parse(four, six), parse(four)},
		{DualStack, parse(six, four), parse(four)},
		{IPv4, parse(four, six), parse(four)},
		{IPv6, parse(four, six), parse(six)},
		{IPv6, parse(four), nil},
		{NoIPFamily, parse(four, six), nil},
		{DualStack, parse(six), parse(six)},
		{DualStack, parse("10.96.0.10", "fd00:10:96::a"), parse("10.96.0.10", "fd00:10:96::a")},
		{IPv6, parse("10.96.0.10", "fd00:10:96::a"), parse("fd00:10:96::a")},
		{IPv4, parse("10.96.0.10", "fd00:10:96::a"), parse("10.96.0.10")},
		{DualStack, parse(four, six, "10.0.0.1"), parse(four, "10.0.0.1")},
	} {
		before := fmt.Sprint(c.vips)
		if got := DialedVIPs(c.vips, c.families); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: of %v, %v are dialed, want %v", c.families, c.vips, got, c.want)
		}
		if after := fmt.Sprint(c.vips); after != before {
			t.Errorf("%s: %s became %s", c.families, before, after)
		}
	}
	if got := EmbedIPv4(netip.MustParsePrefix("fd00:fd00::/32"), netip.MustParseAddr(four)).String(); got != six {
		t.Errorf("%s is embedded as %s, want %s", four, got, six)
	}
}
