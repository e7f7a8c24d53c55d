package kind

import (
	"net/netip"
	"slices"
)

// ipv4Bytes is the length of an IPv4 address, the end of an IPv6 address that embeds it.
const ipv4Bytes = 4

// EmbedIPv4 returns the address of an IPv6 network of 96 bits or less that embeds an IPv4 address as its last 32 bits
// (RFC 6052, 2.2).
func EmbedIPv4(network netip.Prefix, address netip.Addr) netip.Addr {
	embedding, four := network.Masked().Addr().As16(), address.As4()
	copy(embedding[len(embedding)-ipv4Bytes:], four[:])
	return netip.AddrFrom16(embedding)
}

// embeds reports whether an IPv6 address embeds an IPv4 address.
func embeds(six, four netip.Addr) bool {
	if !six.Is6() || !four.Is4() {
		return false
	}
	embedding, embedded := six.As16(), four.As4()
	return [ipv4Bytes]byte(embedding[len(embedding)-ipv4Bytes:]) == embedded
}

// DialedVIPs returns the virtual IPs of a service, in their order, that the programs of a machine dial whose redirected
// connections are of the given IP families. An IPv6 virtual IP that embeds another one of the service is dialed only
// where connections over IPv4 are not redirected. The cluster IPs of a Service of Kubernetes embed none of each other.
func DialedVIPs(vips []netip.Addr, families IPFamilies) []netip.Addr {
	four := families.Has(false)
	skipped := func(vip netip.Addr) bool {
		return !families.Has(vip.Is6()) ||
			four && slices.ContainsFunc(vips, func(other netip.Addr) bool { return embeds(vip, other) })
	}
	first := slices.IndexFunc(vips, func(vip netip.Addr) bool { return !skipped(vip) })
	if first < 0 {
		return nil
	}
	end := first + 1
	for end < len(vips) && !skipped(vips[end]) {
		end++
	}
	dialed := vips[first:end:end] // usually all: a service has one or two
	for _, vip := range vips[end:] {
		if !skipped(vip) {
			dialed = append(dialed, vip)
		}
	}
	return dialed
}
