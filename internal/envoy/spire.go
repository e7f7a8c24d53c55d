package envoy

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"weft/internal/identity"
	"weft/internal/xds"
)

// spireCertificate is the name of the first identity that a SPIRE agent has for the caller. The exact SPIFFE ID would
// work too, but differs between workloads, so that a proxy group could share nothing. The agent beside the proxy
// verifies that it is the right one.
const spireCertificate = "default"

// SPIREAgent returns the cluster of the SPIRE agent that issues a proxy's certificate. Envoy itself must connect: SPIRE
// attests the connecting process as the workload.
func SPIREAgent(from identity.Source) *xds.Resource {
	name := secretsCluster(from)
	return xds.NewResource(xds.Cluster, name, &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       duration(from.Timeout),
		TypedExtensionProtocolOptions: packedOptions(
			&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: httpVersion(false, &corev3.Http2ProtocolOptions{})}),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
					Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: from.Socket}},
				}}},
			}}}},
		},
	})
}

// secretsCluster returns the cluster that serves a proxy's certificate.
func secretsCluster(from identity.Source) string {
	if from.FromSPIRE() {
		return "system_spire_" + from.Socket
	}
	return identityCluster
}

// spireRetryPolicy sets the time until Envoy connects to a SPIRE agent again that was down or did not know the
// workload. Envoy's default grows to half a minute, in which a newly registered workload serves no request.
func spireRetryPolicy() *corev3.RetryPolicy {
	return &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: duration(spireBackoff), MaxInterval: duration(spireLongestBackoff),
	}}
}

// certificateFrom refers to the proxy's certificate.
func certificateFrom(from identity.Source) *tlsv3.SdsSecretConfig {
	name := cmp.Or(from.Certificate, identity.IdentitySecret)
	if from.FromSPIRE() {
		name = spireCertificate
	}
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: secretsSource(from)}
}

// rootsFrom refers to the roots in a secret. With a SPIRE agent, they are always the roots of its own trust domain. The
// validator looks only at the first SPIFFE ID of a certificate: a server that trusted further domains could be shown an
// ID of its own domain that they have signed.
func rootsFrom(from identity.Source, secret string) *tlsv3.SdsSecretConfig {
	if from.FromSPIRE() {
		return &tlsv3.SdsSecretConfig{Name: "spiffe://" + from.TrustDomain, SdsConfig: secretsSource(from)}
	}
	return &tlsv3.SdsSecretConfig{Name: secret, SdsConfig: adsOrWait()}
}
