package envoy

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

const (
	// identityCluster is where the agent serves it; the bootstrap has it.
	identityCluster = "weft_sds"
	// trustSecret is what the proxies of a mesh believe; it comes by ADS.
	trustSecret = "system_trust_bundle"
	// egressSecret is what they believe of the zone's egresses.
	egressSecret = trustSecret + "_egress"
	ofDomain     = "_of_"

	// maxServerName is the longest name that Envoy takes for an SNI.
	maxServerName = 255
)

// TrustBundle is the roots that the proxies of a mesh believe, each for the SPIFFE IDs of its own trust
// domain and for no other. A mesh that trusts nobody has none: what asks for it then serves nobody.
func TrustBundle(t *graph.Trust) *xds.Resource {
	if len(t.Domains) == 0 {
		return nil
	}
	return bundle(trustSecret, t.Domains)
}

// MeshBundle is what a ZoneEgress believes of the proxies of one mesh. (Zone Egress Identity.)
func MeshBundle(t *graph.Trust) *xds.Resource {
	if len(t.Domains) == 0 {
		return nil
	}
	return bundle(meshSecret(t.Mesh), t.Domains)
}

func meshSecret(mesh string) string { return trustSecret + "_" + mesh }

// EgressBundle is what the proxies of a mesh believe of the zone's egresses, whichever authority signs these. (Zone
// Egress Identity.)
func EgressBundle(t *graph.Trust) *xds.Resource {
	if len(t.Domains) == 0 {
		return nil
	}
	return bundle(egressSecret, t.Domains)
}

// DomainBundles are the roots of each trust domain alone, where a mesh believes several. The validator
// looks at the first SPIFFE ID of a certificate and a name may match any, so that a client that believed
// all domains could be answered by one domain's CA under another's name.
func DomainBundles(t *graph.Trust) []*xds.Resource {
	if len(t.Domains) < 2 {
		return nil
	}
	var bundles []*xds.Resource
	for i := range t.Domains {
		bundles = append(bundles, bundle(domainSecret(t.Domains[i].Name), t.Domains[i:i+1]))
	}
	return bundles
}

// domainSecret names the roots of one trust domain; all of a mesh where there is none.
func domainSecret(domain string) string {
	if domain == "" {
		return trustSecret
	}
	return trustSecret + ofDomain + domain
}

func bundle(name string, domains []graph.TrustDomain) *xds.Resource {
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
				TypedConfig: pack(config),
			},
		}},
	})
}

// clientTLS presents the proxy's leaf and takes a server only under one of its names.
func clientTLS(key graph.DestinationKey, h hop, servers *graph.Servers, from graph.Source) *corev3.TransportSocket {
	roots := domainSecret(servers.TrustDomain)
	if servers.External() {
		roots = egressSecret
	}
	common := mutualTLS(from, roots, servers.Identities)
	common.AlpnProtocols = h.alpn()
	return transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: serverName(key, servers)})
}

// demandTLS makes a filter chain terminate mutual TLS. A client that does not complete the handshake in time is closed:
// nothing is known about it, and the idle timeouts are for clients that are.
func demandTLS(chain *listenerv3.FilterChain, protocol kind.Protocol, from graph.Source) {
	chain.TransportSocket = serverTLS(protocol, from)
	chain.TransportSocketConnectTimeout = duration(handshakeTimeout)
}

// serverTLS demands a certificate that the proxy trusts; the permissions decide on its owner. No session is
// resumed, so that every connection proves the identity of the caller anew.
func serverTLS(protocol kind.Protocol, from graph.Source) *corev3.TransportSocket {
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
		RequireClientCertificate: yes(),
		SessionTicketKeysType: &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{
			DisableStatelessSessionResumption: true,
		},
		DisableStatefulSessionResumption: true,
	})
}

// mutualTLS presents the proxy's leaf and checks the other side's against the roots in a secret and, where there are
// any, the names.
func mutualTLS(from graph.Source, roots string, names []string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{leafFrom(from)},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tlsv3.CertificateValidationContext{
					MatchTypedSubjectAltNames: exactly(names),
				},
				ValidationContextSdsSecretConfig: rootsFrom(from, roots),
			},
		},
	}
}

func exactly(names []string) []*tlsv3.SubjectAltNameMatcher {
	var matching []*tlsv3.SubjectAltNameMatcher
	for _, name := range names {
		matching = append(matching, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	return matching
}

// secretsOf answers "from who has the proxy's leaf", and waits for it like adsOrWait.
func secretsOf(from graph.Source) *corev3.ConfigSource {
	server := &corev3.GrpcService_EnvoyGrpc{ClusterName: secretsCluster(from)}
	if from.FromSPIRE() {
		server.RetryPolicy = askAgain()
	}
	return &corev3.ConfigSource{
		ResourceApiVersion:  corev3.ApiVersion_V3,
		InitialFetchTimeout: duration(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices:        []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: server}}},
		}},
	}
}

// clientProtocols is what a client asks for: the version that its cluster speaks, and nothing for bytes.
func clientProtocols(protocol kind.Protocol) []string {
	switch {
	case protocol == kind.HTTP:
		return []string{"http/1.1"}
	case protocol.IsHTTP():
		return []string{"h2"}
	}
	return nil
}

// serverName is what zone proxies know the port by; where none is on the way, and nobody decides by it, the
// destination's name, cut to what fits.
func serverName(key graph.DestinationKey, servers *graph.Servers) string {
	if servers.Way != graph.Direct {
		return servers.SNI
	}
	name := key.String()
	return name[:min(len(name), maxServerName)]
}

func transportSocket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(context)},
	}
}
