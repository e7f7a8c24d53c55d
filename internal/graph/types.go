// Package graph computes the meaning of a mesh, independent of Envoy: the listeners and identities of proxies, the
// destinations of proxy groups, the endpoints of destinations. Its functions are pure: every result depends on the
// table only.
package graph

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// ProxyGroup identifies the proxies with the same configuration except for what binds a port. It has every input of
// outbound generation that comes from a proxy, and nothing else.
type ProxyGroup struct {
	Mesh string
	// Secured proxies have an identity: they present it, and validate the servers'.
	Secured bool
	// Source is the source of their certificates and roots.
	Source identity.Source
	// Transparent proxies reach every destination of Reach at its virtual IP.
	Transparent bool
	// IPFamilies is DualStack, IPv4 or IPv6; empty where not Transparent.
	IPFamilies string
	// Reach is "*" for every service of the mesh, or the sorted selection in its canonical form.
	Reach string
	// Policies are the policies with to items that apply to the proxies.
	Policies PolicySet
}

// ShortName returns a short name that distinguishes the proxy groups of a mesh: the FNV-1a hash (32 bits) of all
// fields.
func (c ProxyGroup) ShortName() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", c)
	return fmt.Sprintf("%08x", h.Sum32())
}

// Proxy is the configuration of one proxy.
type Proxy struct {
	Key   state.ProxyKey
	Zone  string
	Group ProxyGroup
	// NotAdmitted is why its mesh does not admit it; empty: it does. A proxy that is not admitted gets no further
	// configuration.
	NotAdmitted string
	Identity    *identity.Identity        // nil: plaintext
	Certificate *identity.NextCertificate // nil: the control plane signs none
	// Sections are the facts of its zone proxy sections (see [kind.SectionFacts]), by who vouches for them. A token
	// must claim a section without a voucher itself, so such a section is in Sections.Token.
	Sections resource.Vouched
	// Further are the other identities that a ZoneEgress presents.
	Further   []identity.Presentation
	Listeners []InboundListener
	Outbounds []ExplicitOutbound
	Capture   *Capture // nil: no transparent proxying
	// Ingresses are the listeners for connections of remote zones. Passes are the meshes, sorted, to whose services
	// they forward.
	Ingresses []IngressListener
	Passes    []string
	// Egresses are the listeners for connections to external services, Chains their filter chains in the order of their
	// keys, and IsEgress the meshes, sorted, of these services. A proxy without an identity has none: its clients could
	// not authenticate it.
	Egresses []EgressListener
	Chains   []EgressChain
	IsEgress []string
	// Forwards are the meshes, sorted, of whose SNIs a zone egress forwards connections to other zones. One whose
	// section was removed does so while it drains.
	Forwards []string
}

// InboundListener is one (address, port) with the union of the inbounds that share it, including draining ones.
type InboundListener struct {
	Mesh    string
	Address string
	Port    uint32
	// Name is "8080", or "10.0.0.1_8080" where the proxy has that port at several addresses. It does not depend on the
	// inbounds that share the listener.
	Name string
	// Section is the inbounds' names, sorted and joined with "+".
	Section        string
	Protocol       kind.Protocol // of the first current inbound
	ServiceAddress string
	ServicePort    uint32
	// Bind is false where connections arrive through the capture listener.
	Bind bool
	// AlsoPlaintext is true where the listener accepts plaintext connections beside mutual TLS: some clients do not
	// know yet that the proxy has an identity, or the mtls of its mesh is permissive.
	AlsoPlaintext bool
	// ModeMayChange is true where the mtls of its mesh decides whether the listener accepts plaintext connections. Its
	// configuration then has a form in which a change of the mode affects no TLS connection.
	ModeMayChange bool
	// Permissions are nil where the proxy is plaintext.
	Permissions *match.Permissions
	// Source is the source of the proxy's certificate.
	Source identity.Source
	// Probe configures the agent's probe of the application; nil: the agent's default.
	Probe *kind.ServiceProbe
	// TrustDomains are the domains that the proxy trusts, sorted. It denies a caller with SPIFFE IDs of two of them.
	TrustDomains []string
}

// Guard is the set of allowed callers at one place of a proxy.
type Guard struct {
	Mesh         string // the mesh of the callers
	Place        string // its name, unique in the proxy
	Protocol     kind.Protocol
	Permissions  *match.Permissions
	TrustDomains []string
}

// Guard returns the allowed callers of the listener.
func (l *InboundListener) Guard() Guard {
	return Guard{l.Mesh, l.Name, l.Protocol, l.Permissions, l.TrustDomains}
}

// deliverySource is an address of every Linux machine's loopback interface that no other program uses.
const deliverySource = "127.0.0.6"

// ServiceSource returns the address from which the proxy dials the application; empty: any. With redirection, a
// connection of the proxy to its own machine is either a call of one of its services, to be captured as any other call,
// or the delivery of a captured one. The redirect rules recognize the latter by its source. IPv6 has a single loopback
// address, so it has no such source.
func (l *InboundListener) ServiceSource() string {
	if l.Bind || l.ServiceAddress != l.Address || strings.Contains(l.Address, ":") {
		return ""
	}
	return deliverySource
}

// ExplicitOutbound is one address of the proxy's machine at which a destination is reached.
type ExplicitOutbound struct {
	Address     string
	Port        uint32
	Destination DestinationKey
	Protocol    kind.Protocol
}

// HasFamily returns whether DualStack, IPv4 or IPv6 includes IPv6, or IPv4.
func HasFamily(families string, six bool) bool {
	if six {
		return families != "IPv4"
	}
	return families != "IPv6"
}

// Reachable returns whether proxies of these IP families reach a virtual IP.
func Reachable(vip, families string) bool {
	address, err := netip.ParseAddr(vip)
	return err == nil && HasFamily(families, address.Is6())
}

// Capture is the address at which redirected connections arrive.
type Capture struct {
	InboundPort  uint32
	OutboundPort uint32
	IPFamilies   string // DualStack, IPv4 or IPv6
}
