package envoy

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"weft/internal/graph"
	"weft/internal/xds"
)

// spireLeaf is what a SPIRE agent calls the first identity that it has for who asks. The exact SPIFFE ID
// would be a name too, but another one for each workload, so that nothing could be shared by a class; that
// it is the right one is for the agent beside the proxy to see.
const spireLeaf = "default"

// SPIREAgent is the cluster of the SPIRE agent from which a proxy has its identity. Envoy itself must ask
// there: whoever asked for it would be taken for the workload.
func SPIREAgent(from graph.Source) *xds.Resource {
	name := secretsCluster(from)
	return xds.NewResource(xds.Cluster, name, &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                duration(from.Timeout),
		TypedExtensionProtocolOptions: packedOptions(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: httpVersion(false, &corev3.Http2ProtocolOptions{})}),
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

// secretsCluster is where a proxy's leaf comes from.
func secretsCluster(from graph.Source) string {
	if from.FromSPIRE() {
		return "system_spire_" + from.Socket
	}
	return identityCluster
}

// askAgain is how soon Envoy asks a SPIRE agent again that was away or knew nothing of it. Envoy's default grows to
// half a minute, in which a workload that was just registered serves nobody.
func askAgain() *corev3.RetryPolicy {
	return &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: duration(spireBackoff), MaxInterval: duration(spireLongestBackoff),
	}}
}

// leafFrom is the proxy's leaf.
func leafFrom(from graph.Source) *tlsv3.SdsSecretConfig {
	name := cmp.Or(from.Certificate, graph.IdentitySecret)
	if from.FromSPIRE() {
		name = spireLeaf
	}
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: secretsOf(from)}
}

// rootsFrom is the roots in a secret. From a SPIRE agent they are those of its own trust domain, whichever are meant:
// the validator looks at the first SPIFFE ID of a certificate alone, so that a server that believed others too could
// be shown a name of its own domain that they have signed.
func rootsFrom(from graph.Source, secret string) *tlsv3.SdsSecretConfig {
	if from.FromSPIRE() {
		return &tlsv3.SdsSecretConfig{Name: "spiffe://" + from.TrustDomain, SdsConfig: secretsOf(from)}
	}
	return &tlsv3.SdsSecretConfig{Name: secret, SdsConfig: adsOrWait()}
}
