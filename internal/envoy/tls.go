package envoy

import (
	"crypto/sha256"
	_ "embed"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/identity"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/internal/zoneroute"
	"weft/kind"
)

const (
	// identityCluster is the bootstrap's cluster of the agent, which serves the proxy's certificate.
	identityCluster = "weft_sds"
	// trustSecret is the secret with the roots that the proxies of a mesh trust. It comes by ADS.
	trustSecret = "system_trust_bundle"
	// egressSecret is the secret with the roots of the zone's egresses.
	egressSecret = trustSecret + "_egress"
	ofDomain     = "_of_"

	// maxServerName is the longest SNI that Envoy accepts.
	maxServerName = 255
)

// TrustBundle returns the roots that the proxies of a mesh trust, each for the SPIFFE IDs of its own trust domain only.
// The bundle of a mesh that trusts no root accepts no certificate. It is never absent: Envoy ignores the removal of a
// secret, so a running proxy would go on trusting the last root.
func TrustBundle(t *identity.Trust) *xds.Resource {
	return bundle(trustSecret, t.Domains)
}

// MeshBundle returns the roots by which a ZoneEgress verifies the proxies of one mesh. (Zone Egress Identity.)
func MeshBundle(t *identity.Trust) *xds.Resource {
	return bundle(meshSecret(t.Mesh), t.Domains)
}

// noRoot is the root of a bundle without roots, since Envoy accepts no empty one: a CA that expired in the year 2000,
// and whose key was never stored.
//
//go:embed noroot.pem
var noRoot string

func meshSecret(mesh string) string { return trustSecret + "_" + mesh }

// EgressBundle returns the roots by which the proxies of a mesh verify the zone's egresses, whichever authority signs
// these. (Zone Egress Identity.)
func EgressBundle(t *identity.Trust) *xds.Resource {
	return bundle(egressSecret, t.Domains)
}

// DomainBundles returns the roots of each trust domain alone, for a mesh that trusts several. The validator looks at
// the first SPIFFE ID of a certificate, but a SAN matcher at any. With the roots of all domains, one domain's CA could
// sign a server's certificate for another domain's SPIFFE ID.
func DomainBundles(t *identity.Trust) []*xds.Resource {
	if len(t.Domains) < 2 {
		return nil
	}
	var bundles []*xds.Resource
	for i := range t.Domains {
		bundles = append(bundles, bundle(domainSecret(t.Domains[i].Name), t.Domains[i:i+1]))
	}
	return bundles
}

// domainSecret returns the name of the secret with the roots of one trust domain, or with all roots of the mesh for an
// empty domain.
func domainSecret(domain string) string {
	if domain == "" {
		return trustSecret
	}
	return trustSecret + ofDomain + domain
}

func bundle(name string, domains []identity.TrustDomain) *xds.Resource {
	if len(domains) == 0 {
		domains = []identity.TrustDomain{{Name: "invalid", Roots: []string{noRoot}}}
	}
	config := &tlsv3.SPIFFECertValidatorConfig{}
	for _, domain := range domains {
		config.TrustDomains = append(config.TrustDomains, &tlsv3.SPIFFECertValidatorConfig_TrustDomain{
			Name: domain.Name,
			TrustBundle: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
				InlineString: strings.Join(domain.Roots, "\n"),
			}},
		})
	}
	return xds.NewResource(xds.Secret, name, &tlsv3.Secret{
		Name: name,
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CustomValidatorConfig: &corev3.TypedExtensionConfig{
				Name:        "envoy.tls.cert_validator.spiffe",
				TypedConfig: toAny(config),
			},
		}},
	})
}

// clientTLS presents the proxy's certificate and accepts only a server with one of the servers' SPIFFE IDs, and none
// whose trust domain has no roots.
func clientTLS(
	key service.DestinationKey,
	h hop,
	servers *service.Servers,
	from identity.Source,
) *corev3.TransportSocket {
	roots := domainSecret(servers.TrustDomain)
	if servers.External() {
		roots = egressSecret
	}
	common := mutualTLS(from, roots, servers.Identities)
	common.AlpnProtocols = h.alpn()
	if servers.UntrustedReason() != "" && !from.FromSPIRE() {
		common.ValidationContextType = acceptNone()
	}
	return transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: serverName(key, servers)})
}

// acceptNone accepts no certificate: none has this hash.
func acceptNone() *tlsv3.CommonTlsContext_ValidationContext {
	return &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		VerifyCertificateHash: []string{strings.Repeat("00", sha256.Size)},
	}}
}

// requireTLS makes a filter chain terminate mutual TLS. A client that does not complete the handshake in time is
// closed: it is unauthenticated, and the idle timeouts apply to authenticated clients.
func requireTLS(chain *listenerv3.FilterChain, protocol kind.Protocol, from identity.Source) {
	chain.TransportSocket = serverTLS(protocol, from)
	chain.TransportSocketConnectTimeout = duration(handshakeTimeout)
}

// serverTLS requires a certificate that the proxy trusts; the permissions decide on its SPIFFE IDs. No session is
// resumed, so every connection proves the caller's identity anew.
func serverTLS(protocol kind.Protocol, from identity.Source) *corev3.TransportSocket {
	roots := trustSecret
	if from.RootsOf != "" {
		roots = meshSecret(from.RootsOf)
	}
	common := mutualTLS(from, roots, nil)
	if protocol.IsHTTP() {
		common.AlpnProtocols = []string{"h2", "http/1.1"}
	}
	return transportSocket(&tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: boolTrue(),
		SessionTicketKeysType: &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{
			DisableStatelessSessionResumption: true,
		},
		DisableStatefulSessionResumption: true,
	})
}

// mutualTLS presents the proxy's certificate, and verifies the peer's by the roots in a secret and, unless empty, by
// its SPIFFE IDs.
func mutualTLS(from identity.Source, roots string, names []string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams:                      tlsParameters(from.TLS),
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{certificateFrom(from)},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tlsv3.CertificateValidationContext{
					MatchTypedSubjectAltNames: exactURISANs(names),
				},
				ValidationContextSdsSecretConfig: rootsFrom(from, roots),
			},
		},
	}
}

// tlsParameters returns the versions and cipher suites of the connections between the proxies of a mesh.
func tlsParameters(t identity.TLS) *tlsv3.TlsParameters {
	params := versionsOf(&t.Versions)
	if t.Ciphers != "" {
		params.CipherSuites = strings.Split(t.Ciphers, ",")
	}
	return params
}

func exactURISANs(names []string) []*tlsv3.SubjectAltNameMatcher {
	var matching []*tlsv3.SubjectAltNameMatcher
	for _, name := range names {
		matching = append(matching, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	return matching
}

// secretsSource refers to the server of the proxy's certificate, and waits for it like adsOrWait.
func secretsSource(from identity.Source) *corev3.ConfigSource {
	server := &corev3.GrpcService_EnvoyGrpc{ClusterName: secretsCluster(from)}
	if from.FromSPIRE() {
		server.RetryPolicy = spireRetryPolicy()
	}
	return &corev3.ConfigSource{
		ResourceApiVersion:  corev3.ApiVersion_V3,
		InitialFetchTimeout: duration(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{
				{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: server}}},
		}},
	}
}

// clientProtocols returns the ALPN of a client: the version that its cluster uses, and none for TCP.
func clientProtocols(protocol kind.Protocol) []string {
	switch {
	case protocol == kind.HTTP:
		return []string{"http/1.1"}
	case protocol.IsHTTP():
		return []string{"h2"}
	}
	return nil
}

// serverName returns the SNI of the port for zone proxies. Without a zone proxy the SNI decides nothing, and it is the
// destination's name, cut to the maximum length.
func serverName(key service.DestinationKey, servers *service.Servers) string {
	if servers.Way != zoneroute.Direct {
		return servers.SNI
	}
	name := key.String()
	return name[:min(len(name), maxServerName)]
}

func transportSocket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: toAny(context)},
	}
}
