package envoy

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/identity"
	"weft/internal/xds"
	"weft/internal/zoneproxy"
	"weft/kind"
)

const (
	// rootsSecret is the secret with the machine's root certificates. The agent serves it, beside the certificate.
	rootsSecret = "system_roots"

	// externalCA and externalCertificate, followed by the service, are the secrets with the roots that an egress trusts
	// and the certificate that it presents.
	externalCA          = "system_external_ca_"
	externalCertificate = "system_external_cert_"
)

// originate sets the TLS of a cluster of external servers. Where servers have different SNIs, each has a transport
// socket of its own, and the first is the default.
func originate(c *clusterv3.Cluster, o *zoneproxy.ExternalUpstream) {
	if o.TLS == nil || len(o.Endpoints) == 0 {
		return
	}
	c.TransportSocket = externalTLS(o, o.Endpoints[0].Address)
	if !hasServerNames(o) {
		return
	}
	seen := map[string]bool{}
	for _, e := range o.Endpoints {
		if seen[e.Address] {
			continue
		}
		seen[e.Address] = true
		c.TransportSocketMatches = append(c.TransportSocketMatches, &clusterv3.Cluster_TransportSocketMatch{
			Name: e.Address, Match: serverAt(e.Address), TransportSocket: externalTLS(o, e.Address),
		})
	}
}

// hasServerNames reports whether several servers have SNIs of their own.
func hasServerNames(o *zoneproxy.ExternalUpstream) bool {
	return o.TLS != nil && verificationOf(o).ServerName == "" &&
		slices.ContainsFunc(o.Endpoints, func(e kind.ExternalEndpoint) bool {
			return e.Address != o.Endpoints[0].Address
		})
}

func verificationOf(o *zoneproxy.ExternalUpstream) kind.ExternalVerification {
	if o.TLS.Verification == nil {
		return kind.ExternalVerification{}
	}
	return *o.TLS.Verification
}

// externalTLS returns the transport socket for the servers of one address.
func externalTLS(o *zoneproxy.ExternalUpstream, address string) *corev3.TransportSocket {
	verification := verificationOf(o)
	server := verification.ServerName
	if server == "" {
		server = address
	}
	common := &tlsv3.CommonTlsContext{
		TlsParams:     versionsOf(o.TLS.Version),
		AlpnProtocols: clientProtocols(o.Protocol),
	}
	verifyServer(common, o, &verification, server)
	if len(o.ClientCert) > 0 {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: externalCertificate + o.Key.String(),
			SdsConfig: adsOrWait()}}
	}
	context := &tlsv3.UpstreamTlsContext{CommonTlsContext: common, AllowRenegotiation: o.TLS.AllowRenegotiation}
	if isName(server) {
		context.Sni = server
	}
	return transportSocket(context)
}

// verifyServer sets the verification of a server. Without a CA, names prove nothing, since every server can write any
// name into a certificate; Envoy then compares none.
func verifyServer(common *tlsv3.CommonTlsContext, o *zoneproxy.ExternalUpstream, v *kind.ExternalVerification,
	server string) {
	expected := &tlsv3.CertificateValidationContext{}
	switch v.Mode {
	case "SkipCA", "SkipAll":
		expected.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: expected}
		return
	case "SkipSAN":
	default:
		expected.MatchTypedSubjectAltNames = subjectNames(v.SubjectAltNames, server)
	}
	roots := &tlsv3.SdsSecretConfig{Name: externalCA + o.Key.String(), SdsConfig: adsOrWait()}
	if len(o.CACert) == 0 {
		roots = &tlsv3.SdsSecretConfig{Name: rootsSecret, SdsConfig: machineRoots()}
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: expected, ValidationContextSdsSecretConfig: roots,
		},
	}
}

// machineRoots refers to the agent, which always has them. An agent of an older release has none, and is not waited for
// without end: the cluster would hold up all others.
func machineRoots() *corev3.ConfigSource {
	source := secretsSource(identity.Source{})
	source.InitialFetchTimeout = nil
	return source
}

// subjectNames returns the matchers of which a server's certificate must satisfy one: those of the verification, or the
// server's own name.
func subjectNames(written []kind.SANMatch, server string) []*tlsv3.SubjectAltNameMatcher {
	if len(written) == 0 {
		written = []kind.SANMatch{{Type: "Exact", Value: server}}
	}
	var matching []*tlsv3.SubjectAltNameMatcher
	for _, name := range written {
		matching = append(matching, subjectName(name))
	}
	return matching
}

// subjectName derives the type of a SAN from its form.
func subjectName(name kind.SANMatch) *tlsv3.SubjectAltNameMatcher {
	m := &tlsv3.SubjectAltNameMatcher{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name.Value}},
	}
	switch {
	case strings.Contains(name.Value, "://"):
		m.SanType = tlsv3.SubjectAltNameMatcher_URI
	case !isName(name.Value):
		m.SanType = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	if name.Type == "Prefix" {
		m.Matcher.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: name.Value}
	}
	return m
}

var versions = map[string]tlsv3.TlsParameters_TlsProtocol{
	"TLS10": tlsv3.TlsParameters_TLSv1_0, "TLS11": tlsv3.TlsParameters_TLSv1_1,
	"TLS12": tlsv3.TlsParameters_TLSv1_2, "TLS13": tlsv3.TlsParameters_TLSv1_3,
}

// versionsOf returns the TLS versions, 1.2 and 1.3 by default.
func versionsOf(v *kind.TLSVersions) *tlsv3.TlsParameters {
	params := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	}
	if v == nil {
		return params
	}
	if oldest, ok := versions[v.Min]; ok {
		params.TlsMinimumProtocolVersion = oldest
	}
	if newest, ok := versions[v.Max]; ok {
		params.TlsMaximumProtocolVersion = newest
		params.TlsMinimumProtocolVersion = min(params.TlsMinimumProtocolVersion, newest)
	}
	return params
}

// externalSecrets returns the secrets that an external service refers to.
func externalSecrets(o *zoneproxy.ExternalUpstream) []*xds.Resource {
	var secrets []*xds.Resource
	if len(o.CACert) > 0 {
		name := externalCA + o.Key.String()
		secrets = append(secrets, xds.NewResource(xds.Secret, name, &tlsv3.Secret{
			Name: name,
			Type: &tlsv3.Secret_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inlined(o.CACert)}},
		}))
	}
	if len(o.ClientCert) > 0 {
		name := externalCertificate + o.Key.String()
		secrets = append(secrets, xds.NewResource(xds.Secret, name, &tlsv3.Secret{
			Name: name,
			Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: inlined(o.ClientCert), PrivateKey: inlined(o.ClientKey),
			}},
		}))
	}
	return secrets
}

func inlined(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

// WithoutKey returns a resource without its private key, for display. It keeps its version.
func WithoutKey(r *xds.Resource) *xds.Resource {
	if r.Type != xds.Secret {
		return r
	}
	message, err := r.Message()
	secret, ok := message.(*tlsv3.Secret)
	switch {
	case err != nil || !ok:
		secret = &tlsv3.Secret{Name: r.Name} // the content is unknown
	case secret.GetTlsCertificate() == nil:
		return r
	default:
		secret.GetTlsCertificate().PrivateKey = nil
	}
	shown := xds.NewResource(r.Type, r.Name, secret)
	shown.Version = r.Version
	return shown
}
