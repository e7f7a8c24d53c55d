package kind

import "net/netip"

// IPFamilies are the IP families of a machine or of a redirection. The zero value has both.
type IPFamilies string

// Sets of IP families.
const (
	DualStack  IPFamilies = "DualStack"
	IPv4       IPFamilies = "IPv4"
	IPv6       IPFamilies = "IPv6"
	NoIPFamily IPFamilies = "None"
)

// IPFamiliesOf returns the set with the given families.
func IPFamiliesOf(four, six bool) IPFamilies {
	switch {
	case four && six:
		return DualStack
	case four:
		return IPv4
	case six:
		return IPv6
	}
	return NoIPFamily
}

// Has reports whether the set has IPv6, or IPv4.
func (f IPFamilies) Has(six bool) bool {
	if six {
		return f != IPv4 && f != NoIPFamily
	}
	return f != IPv6 && f != NoIPFamily
}

// And returns the families that both sets have.
func (f IPFamilies) And(other IPFamilies) IPFamilies {
	return IPFamiliesOf(f.Has(false) && other.Has(false), f.Has(true) && other.Has(true))
}

// Lacks reports whether an address is of a family that a machine does not have. Each machine has the loopback addresses
// of IPv4. A host name is not lacking.
func (f IPFamilies) Lacks(address string) bool {
	if f.Has(false) && f.Has(true) {
		return false // the usual case, in which no address is parsed
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return !f.Has(ip.Is6()) && !(ip.Is4() && ip.IsLoopback())
}
