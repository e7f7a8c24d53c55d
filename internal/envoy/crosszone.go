package envoy

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filterstatevaluev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
)

// crossZoneSuffix ends the names of the clusters by which zone egresses pass on to other zones. A MeshMultiZoneService has
// the same server name at an ingress and at an egress, which may be one proxy; and no connection that an ingress
// takes names such a cluster, since it takes none for server names that end so.
const crossZoneSuffix = ".cross-zone"

// SNIRouteCluster is the name of the cluster of a passage: the server name, but abroad another.
func SNIRouteCluster(p graph.SNIRoute) string {
	if p.CrossZone {
		return p.SNI + crossZoneSuffix
	}
	return p.SNI
}

// ServerName is what a name of a passage's cluster was made of.
func ServerName(cluster string) (sni string, isAbroad bool) {
	return strings.CutSuffix(cluster, crossZoneSuffix)
}

// abroadChain is the part of a zone egress that passes connections on to the ingresses of other zones, by the server
// name and unopened, as [Ingress] does: it stays as it is whatever services there are.
func abroadChain(statPrefix string) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name:             statPrefix + crossZoneSuffix,
		FilterChainMatch: whoNames(passable...),
		Filters: []*listenerv3.Filter{
			networkFilter(&filterstatev3.Config{OnNewConnection: []*filterstatevaluev3.FilterStateValue{{
				Key: &filterstatevaluev3.FilterStateValue_ObjectKey{ObjectKey: "envoy.tcp_proxy.cluster"},
				Value: &filterstatevaluev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
					Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
						Specifier: &corev3.DataSource_InlineString{InlineString: "%REQUESTED_SERVER_NAME%" + crossZoneSuffix},
					}},
				}},
			}}}),
			networkFilter(&tcpproxyv3.TcpProxy{
				StatPrefix: statPrefix + crossZoneSuffix,
				// It takes the cluster that the filter before has named; there is none of this name.
				ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: statPrefix},
				IdleTimeout:        duration(inboundIdleTimeout),
				MaxConnectAttempts: number(connectAttempts),
				BackoffOptions:     untilSetAside(),
			}),
		},
	}
}
