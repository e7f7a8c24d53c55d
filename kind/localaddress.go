package kind

import (
	"net/netip"
	"slices"
	"strings"
)

// localNetworks are the networks that have no external server, with their description. An address there means the
// dialing machine, its link, several machines, or the metadata of a cloud. (RFC 6890; the metadata addresses are those
// of AWS, Azure, Alibaba Cloud and Google Cloud.)
var localNetworks = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this machine"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved or broadcast address"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a metadata address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a metadata address"},
	{netip.MustParsePrefix("::/128"), "an address of this machine"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"}, // RFC 6890
	{netip.MustParsePrefix("fd00:ec2::/32"), "a metadata address"},
	{netip.MustParsePrefix("fd00:42::42/128"), "a metadata address"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a metadata address"},
}

// LocalAddress returns a description of an IP address that no external server has, such as "a loopback address". It
// returns "" for every other address and for those in the allowed networks. For an IPv6 address that contains an IPv4
// address (mapped, compatible, NAT64, 6to4), the IPv4 address is checked too. An address with a zone is link-local.
func LocalAddress(ip netip.Addr, allowed []netip.Prefix) string {
	if ip.Zone() != "" {
		return "a link-local address"
	}
	for _, ip := range append(contained(ip), ip.Unmap()) {
		if slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			continue
		}
		for _, network := range localNetworks {
			if network.prefix.Contains(ip) {
				return network.what
			}
		}
	}
	return ""
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	compatible = netip.MustParsePrefix("::/96")
)

// contained returns the IPv4 addresses to which the system or a translator forwards traffic for an IPv6 address. (RFC
// 6052, section 2.2; RFC 8215; RFC 3056; RFC 4291, section 2.5.5.)
func contained(ip netip.Addr) []netip.Addr {
	if !ip.Is6() || ip.Is4In6() {
		return nil
	}
	b := ip.As16()
	last, first := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[2:6]))
	switch {
	case compatible.Contains(ip) && ip != netip.IPv6Unspecified() && ip != netip.IPv6Loopback(), nat64.Contains(ip):
		return []netip.Addr{last}
	case localNAT64.Contains(ip): // the prefix length of the translator is unknown: 48, 56, 64 or 96 bits
		return []netip.Addr{
			last, netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}), netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),
			netip.AddrFrom4([4]byte(b[9:13])),
		}
	case sixToFour.Contains(ip):
		return []netip.Addr{first}
	}
	return nil
}

// ExternalSuffix ends the host names of external servers in Envoy's configuration. Only the agent of a zone egress
// resolves such a name, and omits the addresses of [LocalAddress]. The name does not exist for any other resolver or in
// a hosts file. (RFC 6761, section 6.4.)
const ExternalSuffix = ".weft.invalid."

// LocalEndpoint returns a description of an endpoint's address that no external server has, by [LocalAddress] for an IP
// address. For a host name it returns "" unless the name means the machine itself: the resolver checks the addresses of
// other names.
func LocalEndpoint(address string, allowed []netip.Prefix) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return LocalAddress(ip, allowed)
	}
	name := strings.TrimSuffix(strings.ToLower(address), ".")
	for _, local := range []string{"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"} {
		if name == local || strings.HasSuffix(name, "."+local) {
			return LocalAddress(netip.AddrFrom4([4]byte{127, 0, 0, 1}), allowed)
		}
	}
	return ""
}
