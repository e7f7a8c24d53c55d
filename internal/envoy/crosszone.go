package envoy

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filterstatevaluev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/xds"
	"weft/internal/zoneproxy"
)

// crossZoneSuffix ends the names of the clusters by which zone egresses forward to remote zones. A MeshMultiZoneService
// has the same SNI at an ingress and at an egress, and one proxy may be both. No connection to an ingress reaches such
// a cluster, since ingresses forward no SNI with this suffix.
const crossZoneSuffix = ".cross-zone"

// SNIRouteCluster returns the name of the cluster of an SNI route: the SNI, with a suffix for a cross-zone route of an
// egress.
func SNIRouteCluster(p zoneproxy.SNIRoute) string {
	if p.CrossZone {
		return p.SNI + crossZoneSuffix
	}
	return p.SNI
}

// SNIOfCluster returns the SNI of the name of an SNI route's cluster, and whether the route is cross-zone.
func SNIOfCluster(cluster string) (sni string, isCrossZone bool) {
	return strings.CutSuffix(cluster, crossZoneSuffix)
}

// crossZoneChain returns the filter chain by which a zone egress forwards connections to the ingresses of remote zones
// by SNI, without decrypting them, as [Ingress] does. It does not depend on the set of services.
func crossZoneChain(egress string) *listenerv3.FilterChain {
	place := egress + crossZoneSuffix
	return &listenerv3.FilterChain{
		Name:             "self_" + place,
		FilterChainMatch: sniMatch(forwardableSNIs...),
		Filters: []*listenerv3.Filter{
			connectionSlot(place),
			networkFilter(&filterstatev3.Config{OnNewConnection: []*filterstatevaluev3.FilterStateValue{{
				Key: &filterstatevaluev3.FilterStateValue_ObjectKey{ObjectKey: "envoy.tcp_proxy.cluster"},
				Value: &filterstatevaluev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
					Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
						Specifier: &corev3.DataSource_InlineString{InlineString: "%REQUESTED_SERVER_NAME%" +
							crossZoneSuffix},
					}},
				}},
			}}}),
			tcpProxySlot(tcpProxySlotName(place)),
		},
	}
}

// crossZoneContents returns the contents of the slots of [crossZoneChain].
func crossZoneContents(egress string) []*xds.Resource {
	place := egress + crossZoneSuffix
	return []*xds.Resource{
		noConnectionLimit(place),
		tcpProxy(tcpProxySlotName(place), &tcpproxyv3.TcpProxy{
			StatPrefix: "self_" + place,
			// The filter before this one names the cluster; no cluster has this name.
			ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: "self_" + egress},
			IdleTimeout:        duration(inboundIdleTimeout),
			MaxConnectAttempts: uint32Value(zonesConnectAttempts),
			BackoffOptions:     zonesRetryBackoff(),
		}),
	}
}
