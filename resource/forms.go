package resource

import (
	"fmt"
	"net/netip"
	"regexp"
)

// Lengths of the names of DNS (RFC 1035, section 2.3.4), which bound names of resources too.
const (
	MaxName  = 253 // of a name of several labels
	MaxLabel = 63  // of a label, and of a name and a value of a label of Kubernetes
)

// Patterns of names: a label of RFC 1035, which begins with a letter, a label of RFC 1123, and a name of several ones.
var (
	Label1035 = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	Label1123 = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	Subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// QuoteShort returns a value of a user in quotes, a long one without its end.
func QuoteShort(value string) string {
	const most = 80
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return fmt.Sprintf("%q", value)
}

// NameProblem returns the problem of the name of a resource other than a Mesh (RFC 1123, subdomain), or "".
func NameProblem(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > MaxName || !Subdomain.MatchString(name):
		return fmt.Sprintf("%s is not a name: lower case letters, digits, '-' and '.', at most %d, beginning and "+
			"ending with a letter or digit", QuoteShort(name), MaxName)
	}
	return ""
}

// MeshNameProblem returns the problem of the name of a mesh or a zone (RFC 1035, label), or "". Such a name has no
// dots, so a proxy's node id splits at the first one.
func MeshNameProblem(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > MaxLabel || !Label1035.MatchString(name):
		return fmt.Sprintf("%s is not a name of a mesh or zone: lower case letters, digits and '-', at most %d, "+
			"beginning with a letter, without a dot", QuoteShort(name), MaxLabel)
	}
	return ""
}

// SectionProblem returns the problem of the name or number of an inbound or of a service's port (RFC 1123, label).
func SectionProblem(name string) string {
	if len(name) > MaxLabel || !Label1123.MatchString(name) {
		return fmt.Sprintf("%s is not a name: lower case letters, digits and '-', at most %d", QuoteShort(name),
			MaxLabel)
	}
	return ""
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// AddressProblem returns the problem of a unicast IP address in its canonical form, by which listeners and endpoints
// are identified, or "".
func AddressProblem(address string) string {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil || ip.Zone() != "":
		return QuoteShort(address) + " is not an IP address"
	case ip.IsUnspecified():
		return address + " means every address; name one"
	case ip.IsMulticast():
		return address + " is a multicast address; name one of a machine"
	case ip.Unmap().IsLinkLocalUnicast() || ip.Unmap() == broadcast:
		return address + " is a link-local or broadcast address, which is another machine on each link; name one of " +
			"a machine"
	case ip.Unmap().String() != address:
		return fmt.Sprintf("write %s as %s", address, ip.Unmap())
	}
	return ""
}

// PortProblem returns the problem of a port, or "".
func PortProblem(port uint32) string {
	if port < 1 || port > 65535 {
		return fmt.Sprintf("is %d, want a port from 1 to 65535", port)
	}
	return ""
}
