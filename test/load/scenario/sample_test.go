package scenario

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
)

// sample is a response with a cluster with TLS and an HTTP listener. Its parts refer to other resources in every way
// that makes an Envoy subscribe to them.
func sample(t *testing.T) []byte {
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	otherSource := &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{}},
	}
	secrets := &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "identity", SdsConfig: otherSource}},
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
			ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: "system_trust_bundle", SdsConfig: ads}},
	}}
	cluster := edsCluster("backend")
	cluster.TransportSocket = &corev3.TransportSocket{Name: "tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t, secrets)}}
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "backend-routes",
			ConfigSource: ads}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "rbac",
			ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
				ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}}, {Name: "slot",
			ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
				ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads,
					ApplyDefaultConfigWithoutWarming: true}}}},
	}
	listener := &listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(t, manager)}}}}}}
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: xds.Cluster.URL(), Nonce: "1",
		Resources: []*discoveryv3.Resource{
			{Name: "backend", Resource: pack(t, cluster)},
			{Name: "l", Resource: pack(t, listener)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
