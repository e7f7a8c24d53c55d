package envoy

import (
	"cmp"

	clusters "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoints "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreams "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

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
	return xds.NewResource(xds.Cluster, name, &clusters.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusters.Cluster_Type{Type: clusters.Cluster_STATIC},
		ConnectTimeout:                duration(from.Timeout),
		TypedExtensionProtocolOptions: packedOptions(&upstreams.HttpProtocolOptions{UpstreamProtocolOptions: httpVersion(false, &core.Http2ProtocolOptions{})}),
		LoadAssignment: &endpoints.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpoints.LocalityLbEndpoints{{LbEndpoints: []*endpoints.LbEndpoint{{
				HostIdentifier: &endpoints.LbEndpoint_Endpoint{Endpoint: &endpoints.Endpoint{Address: &core.Address{
					Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: from.Socket}},
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
func askAgain() *core.RetryPolicy {
	return &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
		BaseInterval: duration(spireBackoff), MaxInterval: duration(spireLongestBackoff),
	}}
}

// leafFrom is the proxy's leaf.
func leafFrom(from graph.Source) *tls.SdsSecretConfig {
	name := cmp.Or(from.Certificate, graph.IdentitySecret)
	if from.FromSPIRE() {
		name = spireLeaf
	}
	return &tls.SdsSecretConfig{Name: name, SdsConfig: secretsOf(from)}
}

// rootsFrom is the roots in a secret. From a SPIRE agent they are those of its own trust domain, whichever are meant:
// the validator looks at the first SPIFFE ID of a certificate alone, so that a server that believed others too could
// be shown a name of its own domain that they have signed.
func rootsFrom(from graph.Source, secret string) *tls.SdsSecretConfig {
	if from.FromSPIRE() {
		return &tls.SdsSecretConfig{Name: "spiffe://" + from.TrustDomain, SdsConfig: secretsOf(from)}
	}
	return &tls.SdsSecretConfig{Name: secret, SdsConfig: adsOrWait()}
}
