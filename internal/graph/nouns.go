// Package graph says what the mesh means, in our own nouns: what a proxy serves and under which name,
// what a class of proxies reaches, which endpoints a destination has. It is pure: everything is a
// function of the table, and it knows nothing of Envoy.
package graph

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"weft/internal/match"
	"weft/kind"
	"weft/resource"
)

// ProxyKey names the proxy of a Dataplane or, without a mesh, that of a ZoneIngress or a ZoneEgress.
type ProxyKey struct {
	Type kind.ProxyType
	Mesh string
	Name string
}

// ZoneIngressProxy is the proxy of a ZoneIngress.
func ZoneIngressProxy(name string) ProxyKey { return ProxyKey{Type: kind.IngressProxy, Name: name} }

// ZoneEgressProxy is the proxy of a ZoneEgress.
func ZoneEgressProxy(name string) ProxyKey { return ProxyKey{Type: kind.EgressProxy, Name: name} }

// ParseProxyKey reads what a proxy says of itself. Its type is "dataplane", "ingress" or "egress"; without one it
// is a Dataplane or, without a mesh, a ZoneIngress.
func ParseProxyKey(proxyType, mesh, name string) (ProxyKey, error) {
	key := ProxyKey{Type: kind.ProxyType(proxyType), Mesh: mesh, Name: name}
	switch proxyType {
	case "":
		if mesh == "" {
			key.Type = kind.IngressProxy
		}
		return key, nil
	case DataplaneType:
		key.Type = kind.DataplaneProxy
		if mesh == "" {
			return ProxyKey{}, errors.New("a proxy of the type dataplane belongs to a mesh, and this one names none")
		}
		return key, nil
	case string(kind.IngressProxy), string(kind.EgressProxy):
		if mesh != "" {
			return ProxyKey{}, fmt.Errorf("a proxy of the type %s belongs to no mesh, and this one names the mesh %.64q; a zone proxy of one mesh is a Dataplane", proxyType, mesh)
		}
		return key, nil
	}
	return ProxyKey{}, fmt.Errorf("the type of a proxy is %.64q, want %s, %s or %s", proxyType, DataplaneType, kind.IngressProxy, kind.EgressProxy)
}

// DataplaneType is how a Dataplane's proxy says what it is written as.
const DataplaneType = "dataplane"

// String is the proxy's node id, "default.web-1"; ".zi" of one that belongs to no mesh.
func (k ProxyKey) String() string { return k.Mesh + "." + k.Name }

// proxyKinds are the kinds of what users write of a proxy, of what it serves and of its connections.
var proxyKinds = map[kind.ProxyType]struct {
	resource resource.Descriptor
	serving  *resource.Kind[kind.DataplaneListenerStatus]
	insight  *resource.Kind[kind.DataplaneInsight]
}{
	kind.DataplaneProxy: {kind.Dataplanes, kind.DataplaneListenerStatuses, kind.DataplaneInsights},
	kind.IngressProxy:   {kind.ZoneIngresses, kind.ZoneIngressListenerStatuses, kind.ZoneIngressInsights},
	kind.EgressProxy:    {kind.ZoneEgresses, kind.ZoneEgressListenerStatuses, kind.ZoneEgressInsights},
}

// ProxyOf is the proxy of which a resource of a user, a serving row or an insight is; false: of none.
func ProxyOf(key resource.Key) (ProxyKey, bool) {
	for proxyType, kinds := range proxyKinds {
		if key.Kind == kinds.resource.Describe().Name || key.Kind == kinds.serving.Name || key.Kind == kinds.insight.Name {
			return ProxyKey{proxyType, key.Mesh, key.Name}, true
		}
	}
	return ProxyKey{}, false
}

// Resource names what users write of the proxy.
func (k ProxyKey) Resource() resource.Key {
	return resource.Key{Kind: proxyKinds[k.Type].resource.Describe().Name, Mesh: k.Mesh, Name: k.Name}
}

// ListenerStatusKind is the kind of the row of what the proxy serves.
func (k ProxyKey) ListenerStatusKind() *resource.Kind[kind.DataplaneListenerStatus] {
	return proxyKinds[k.Type].serving
}

// InsightKind is the kind of the row of what is known of the proxy's connections.
func (k ProxyKey) InsightKind() *resource.Kind[kind.DataplaneInsight] {
	return proxyKinds[k.Type].insight
}

// ListenerStatusRow names the row of what the proxy serves.
func (k ProxyKey) ListenerStatusRow() resource.Key { return k.ListenerStatusKind().Key(k.Mesh, k.Name) }

// ServiceKey names the row of a MeshService. One that another zone owns has another name there than its
// owner gave it.
type ServiceKey struct{ Mesh, Name string }

// IdentityKey names a MeshIdentity or, with [kind.MTLSIdentity], the mtls of a mesh.
type IdentityKey struct{ Mesh, Name string }

// ProxyGroup is the set of proxies for which everything that does not bind a port is the same. It holds
// every input that outbound generation reads of a proxy, and nothing else.
type ProxyGroup struct {
	Mesh string
	// Secured proxies have an identity: they present it, and ask for the servers'.
	Secured bool
	// Source is where they have it from.
	Source Source
	// Transparent proxies reach every destination of Reach at its virtual IP.
	Transparent bool
	// IPFamilies is DualStack, IPv4 or IPv6; empty where not Transparent.
	IPFamilies string
	// Reach is "*" for every service of the mesh, or the sorted selection in its canonical form.
	Reach string
}

// ShortName tells classes of a mesh apart where the whole of one would be too long to read: the sum of
// everything in it (FNV-1a, 32 bits).
func (c ProxyGroup) ShortName() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", c)
	return fmt.Sprintf("%08x", h.Sum32())
}

// Proxy is one proxy, with all that is its own.
type Proxy struct {
	Key   ProxyKey
	Zone  string
	Group ProxyGroup
	// NotAdmitted is why its mesh does not admit it; empty: it does. Its Envoy is told nothing more.
	NotAdmitted string
	Identity    *Identity        // nil: plain
	Certificate *NextCertificate // nil: it is to have none
	// Sections are the facts of its zone proxy sections (see [kind.SectionFacts]), by who vouches for them. A token must
	// claim a section without a voucher itself, so such a section is in Sections.Token.
	Sections resource.Vouched
	// Further are what a ZoneEgress presents beside its identity.
	Further   []Presentation
	Listeners []InboundListener
	Outbounds []ExplicitOutbound
	Capture   *Capture // nil: no transparent proxying
	// Ingresses are where it takes connections of other zones, and Passes the meshes, sorted, to whose
	// services it passes them on.
	Ingresses []IngressListener
	Passes    []string
	// Egresses are where it takes connections to external services as a zone egress, Chains what it takes them for,
	// in the order of their keys, and IsEgress the meshes, sorted, whose external services these are. One without
	// an identity takes none: nobody could know who it is.
	Egresses []EgressListener
	Chains   []EgressChain
	IsEgress []string
	// Forwards are the meshes, sorted, of whose SNIs a zone egress forwards connections to other zones. One whose section
	// was removed does so while it drains.
	Forwards []string
}

// Identity is what a MeshIdentity, or the mtls of its mesh, gives a proxy.
type Identity struct {
	// Mesh is whose it is; empty: the proxy's own.
	Mesh         string
	MeshIdentity string // its name, or [kind.MTLSIdentity]
	kind.SpiffeIDs
	TrustDomain string
	Source      Source
	// Rests are the facts of the Dataplane (see [kind.Facts]) that the SPIFFE IDs rest on, by who vouches for them.
	// Unvouched are those for which nobody does: then there is a Problem.
	Rests     resource.Vouched
	Unvouched []string
	// Problem is why there is no SPIFFE ID, though the proxy is to have one. Such a proxy gets no
	// certificate, and it does not become plain.
	Problem string
}

// Authority is a CA that signs; without a fingerprint none does yet.
type Authority struct {
	Fingerprint string
	TrustDomain string
}

// NextCertificate is what a proxy's next certificate says.
type NextCertificate struct {
	// Mesh is whose identity it proves; empty: the proxy's own.
	Mesh         string
	MeshIdentity string // or [kind.MTLSIdentity]
	kind.SpiffeIDs
	// Authority is the fingerprint of the CA that signs it; empty: none does yet.
	Authority string
	// Rests are the facts of the Dataplane that its names rest on, by who vouches for them.
	Rests resource.Vouched
}

// InboundListener is one (address, port) with the union of the inbounds that share it, those that are
// being withdrawn too.
type InboundListener struct {
	Mesh    string
	Address string
	Port    uint32
	// Name is "8080", or "10.0.0.1_8080" where the proxy has that port at several addresses. It stays
	// as inbounds that share the listener come and go.
	Name string
	// Section is the inbounds' names, sorted and joined with "+".
	Section        string
	Protocol       kind.Protocol // of the first current inbound
	ServiceAddress string
	ServicePort    uint32
	// Bind is false where connections arrive through the capture listener.
	Bind bool
	// AlsoPlaintext says that it takes connections without TLS beside mutual TLS: its clients have not all
	// heard that its proxy has an identity, or the mtls of its mesh is permissive.
	AlsoPlaintext bool
	// ModeMayChange says that users decide by the mtls of its mesh whether it takes connections without TLS. It
	// has a form then in which a change of that touches no connection with TLS.
	ModeMayChange bool
	// Permissions are nil where the proxy is plain.
	Permissions *match.Permissions
	// Source is where its proxy has its leaf from.
	Source Source
	// Probe says how the agent finds out whether the application lives; nil: as the agent does by default.
	Probe *kind.ServiceProbe
	// TrustDomains that the proxy believes, sorted; a caller with names in two of them is refused.
	TrustDomains []string
}

// Guard is who may come in at one place of a proxy.
type Guard struct {
	Mesh         string // whose callers these are
	Place        string // its name, which the proxy has once
	Protocol     kind.Protocol
	Permissions  *match.Permissions
	TrustDomains []string
}

// Guard answers who may come in.
func (l *InboundListener) Guard() Guard {
	return Guard{l.Mesh, l.Name, l.Protocol, l.Permissions, l.TrustDomains}
}

// deliverySource is an address of every Linux machine's loopback interface that nobody else uses.
const deliverySource = "127.0.0.6"

// ServiceSource is the address from which the application is dialled; empty: any. Where connections are
// redirected, the proxy's own to an address of its machine can be two things: a call of one of its
// services that is to come in as any other does, or the delivery of one that has come in. The redirect
// rules tell the second by its source. IPv6 has a single loopback address and so nothing to tell it by.
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

// HasFamily says whether DualStack, IPv4 or IPv6 has IPv6, or IPv4.
func HasFamily(families string, six bool) bool {
	if six {
		return families != "IPv4"
	}
	return families != "IPv6"
}

// Reachable says whether proxies of these IP families reach a virtual IP.
func Reachable(vip, families string) bool {
	address, err := netip.ParseAddr(vip)
	return err == nil && HasFamily(families, address.Is6())
}

// Capture is where redirected connections arrive.
type Capture struct {
	InboundPort  uint32
	OutboundPort uint32
	IPFamilies   string // DualStack, IPv4 or IPv6
}

// Trust is what the proxies of a mesh believe, sorted by domain.
type Trust struct {
	Mesh    string
	Domains []TrustDomain
}

// TrustDomain is the roots of one trust domain, in PEM, sorted and without doubles.
type TrustDomain struct {
	Name  string
	Roots []string
}
