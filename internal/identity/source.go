package identity

import (
	"fmt"
	"slices"
	"time"

	"weft/kind"
)

// Source is the source of an Envoy's certificate and of the roots that it trusts. The zero value is the agent of the
// proxy for the certificate, and the control plane for the roots.
type Source struct {
	// Socket is the path of a SPIRE agent's socket on the proxy's machine, which serves both.
	Socket string
	// Timeout is the connect timeout of the socket.
	Timeout time.Duration
	// TrustDomain is the only trusted domain, with a Socket.
	TrustDomain string
	// Certificate is the SDS secret of the certificate; empty: [IdentitySecret]. RootsOf is the mesh whose roots alone
	// the proxy of a ZoneEgress trusts; empty: all roots of the proxy.
	Certificate, RootsOf string
	// TLS has the versions and ciphers of the mesh.
	TLS TLS
}

// TLS bounds the versions and ciphers of the connections between the proxies of a mesh. The zero value has the defaults
// of docs/defaults.md.
type TLS struct {
	Versions kind.TLSVersions
	Ciphers  string // cipher suites of TLS 1.2 and older, joined with ","; empty: those of Envoy
}

// FromSPIRE returns whether the source is a SPIRE agent.
func (s Source) FromSPIRE() bool { return s.Socket != "" }

// UntrustedReason returns why a proxy trusts none of these servers; empty: it does, or its roots are from the control
// plane.
func (s Source) UntrustedReason(servers []string) string {
	own := func(id string) bool { return DomainOf(id) == s.TrustDomain }
	if !s.FromSPIRE() || len(servers) == 0 || slices.ContainsFunc(servers, own) {
		return ""
	}
	return fmt.Sprintf(
		"its servers are of the trust domain %s, and the proxy trusts only the roots from SPIRE, which are of %s",
		DomainOf(servers[0]), s.TrustDomain)
}
