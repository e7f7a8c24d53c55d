package envoy

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

const (
	// rootsSecret is what a machine believes of the servers of the world; the agent serves it, beside the leaf.
	rootsSecret = "system_roots"

	// outsideCA and outsideCertificate, with the service behind them, are what an egress believes and presents.
	outsideCA          = "system_external_ca_"
	outsideCertificate = "system_external_cert_"
)

// originate has a cluster speak TLS to its servers. Where these are asked for by several names, each has a transport
// of its own, that of the first being for whoever is none of them.
func originate(c *clusterv3.Cluster, o *graph.ExternalUpstream) {
	if o.TLS == nil || len(o.Endpoints) == 0 {
		return
	}
	c.TransportSocket = outsideTLS(o, o.Endpoints[0].Address)
	if !asksByAddress(o) {
		return
	}
	seen := map[string]bool{}
	for _, e := range o.Endpoints {
		if seen[e.Address] {
			continue
		}
		seen[e.Address] = true
		c.TransportSocketMatches = append(c.TransportSocketMatches, &clusterv3.Cluster_TransportSocketMatch{
			Name: e.Address, Match: serverAt(e.Address), TransportSocket: outsideTLS(o, e.Address),
		})
	}
}

// asksByAddress says whether servers are asked for by names of their own, and there are several.
func asksByAddress(o *graph.ExternalUpstream) bool {
	return o.TLS != nil && verificationOf(o).ServerName == "" &&
		slices.ContainsFunc(o.Endpoints, func(e kind.ExternalEndpoint) bool { return e.Address != o.Endpoints[0].Address })
}

func verificationOf(o *graph.ExternalUpstream) kind.ExternalVerification {
	if o.TLS.Verification == nil {
		return kind.ExternalVerification{}
	}
	return *o.TLS.Verification
}

// outsideTLS speaks to the servers of one address.
func outsideTLS(o *graph.ExternalUpstream, address string) *corev3.TransportSocket {
	verification := verificationOf(o)
	server := verification.ServerName
	if server == "" {
		server = address
	}
	common := &tlsv3.CommonTlsContext{
		TlsParams:     versionsOf(o.TLS.Version),
		AlpnProtocols: clientProtocols(o.Protocol),
	}
	believe(common, o, &verification, server)
	if len(o.ClientCert) > 0 {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: outsideCertificate + o.Key.String(), SdsConfig: adsOrWait()}}
	}
	context := &tlsv3.UpstreamTlsContext{CommonTlsContext: common, AllowRenegotiation: o.TLS.AllowRenegotiation}
	if isName(server) {
		context.Sni = server
	}
	return transportSocket(context)
}

// believe says which servers are taken for the service. Where no authority is asked for, names prove nothing either:
// anybody can write them into a certificate, and Envoy compares none then.
func believe(common *tlsv3.CommonTlsContext, o *graph.ExternalUpstream, v *kind.ExternalVerification, server string) {
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
	roots := &tlsv3.SdsSecretConfig{Name: outsideCA + o.Key.String(), SdsConfig: adsOrWait()}
	if len(o.CACert) == 0 {
		roots = &tlsv3.SdsSecretConfig{Name: rootsSecret, SdsConfig: machineRoots()}
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: expected, ValidationContextSdsSecretConfig: roots,
		},
	}
}

// machineRoots answers "from the agent", which always has them. An older one does not, and is not waited for without
// end: the cluster would hold up all others.
func machineRoots() *corev3.ConfigSource {
	source := secretsOf(graph.Source{})
	source.InitialFetchTimeout = nil
	return source
}

// subjectNames are the names of which a server's certificate must have one: those that are written, or its own.
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

// subjectName tells by a name's form which kind of name is meant.
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

// versionsOf are TLS 1.2 and 1.3 where nothing else is written.
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

// outsideSecrets are what the service names beside itself.
func outsideSecrets(o *graph.ExternalUpstream) []*xds.Resource {
	var secrets []*xds.Resource
	if len(o.CACert) > 0 {
		name := outsideCA + o.Key.String()
		secrets = append(secrets, xds.NewResource(xds.Secret, name, &tlsv3.Secret{
			Name: name,
			Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inlined(o.CACert)}},
		}))
	}
	if len(o.ClientCert) > 0 {
		name := outsideCertificate + o.Key.String()
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

// WithoutKey is a resource as it may be shown: a private key in it is left out. It keeps its version.
func WithoutKey(r *xds.Resource) *xds.Resource {
	if r.Type != xds.Secret {
		return r
	}
	message, err := r.Message()
	secret, ok := message.(*tlsv3.Secret)
	switch {
	case err != nil || !ok:
		secret = &tlsv3.Secret{Name: r.Name} // nobody knows what it holds
	case secret.GetTlsCertificate() == nil:
		return r
	default:
		secret.GetTlsCertificate().PrivateKey = nil
	}
	shown := xds.NewResource(r.Type, r.Name, secret)
	shown.Version = r.Version
	return shown
}
