package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// VIPListeners are where redirected connections to a destination's virtual IPs arrive. They bind nothing,
// and are therefore the same for every proxy of a class: the capture listener hands them what was going to
// their address. families is which virtual IPs the class's machines can reach: DualStack, IPv4 or IPv6.
//
// The first one has the destination's name, each further one its address behind it.
func VIPListeners(d *graph.Destination, families string) []*xds.Resource {
	var resources []*xds.Resource
	for i, vip := range d.VIPs {
		if !graph.Reachable(vip, families) {
			continue
		}
		name := d.Key.String()
		if i > 0 {
			name += "_" + vip
		}
		listener := outbound(name, vip, d.Key.Port, d.Key, d.Protocol)
		listener.BindToPort = no()
		resources = append(resources, xds.NewResource(xds.Listener, name, listener))
	}
	return resources
}

// Explicit is one address of the proxy's own machine at which a destination is reached.
func Explicit(o *graph.ExplicitOutbound) *xds.Resource {
	name := fmt.Sprintf("self_outbound_%s_%d", o.Address, o.Port)
	return xds.NewResource(xds.Listener, name, outbound(name, o.Address, o.Port, o.Destination, o.Protocol))
}

func outbound(name, address string, port uint32, to graph.DestinationKey, protocol kind.Protocol) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(address, port),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{outboundFilter(to, protocol)},
		}},
	}
}

// outboundFilter leads to a destination: by its route where requests are read, else to its cluster.
func outboundFilter(to graph.DestinationKey, protocol kind.Protocol) *listenerv3.Filter {
	destination := to.String()
	if !protocol.IsHTTP() {
		proxy := &tcpproxyv3.TcpProxy{
			StatPrefix:         destination,
			ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: destination},
			IdleTimeout:        duration(idleTimeout),
			MaxConnectAttempts: number(connectAttempts),
		}
		if to.Kind == graph.MultiZoneService {
			proxy.BackoffOptions = untilSetAside()
		}
		return networkFilter(proxy)
	}
	manager := connectionManager(destination)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(idleTimeout)}
	manager.StreamIdleTimeout = duration(streamIdleTimeout)
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
		ConfigSource:    adsOrWait(),
		RouteConfigName: destination,
	}}
	return networkFilter(manager)
}

// connectionManager is what all that reads requests has in common: the application's own headers pass, and WebSockets
// do; no header of a caller decides what a proxy does.
func connectionManager(statPrefix string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:                    statPrefix,
		ServerHeaderTransformation:    hcmv3.HttpConnectionManager_PASS_THROUGH,
		UpgradeConfigs:                []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		Http2ProtocolOptions:          http2(),
		EarlyHeaderMutationExtensions: callersHeaders(),
		XffNumTrustedHops:             beyondForwardedFor,
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
		}},
	}
}

// inspectTLS looks at the first bytes of a connection: whether it is TLS, and the server name.
func inspectTLS() []*listenerv3.ListenerFilter {
	return []*listenerv3.ListenerFilter{{
		Name:       "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(&tlsinspectorv3.TlsInspector{})},
	}}
}

// filterName is the name that Envoy's documentation gives a network filter.
func filterName(filter proto.Message) string {
	switch filter.(type) {
	case *hcmv3.HttpConnectionManager:
		return "envoy.filters.network.http_connection_manager"
	case *tcpproxyv3.TcpProxy:
		return "envoy.filters.network.tcp_proxy"
	case *sniclusterv3.SniCluster:
		return "envoy.filters.network.sni_cluster"
	case *filterstatev3.Config:
		return "envoy.filters.network.set_filter_state"
	}
	return "envoy.filters.network.direct_response"
}

func networkFilter(filter proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{
		Name:       filterName(filter),
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(filter)},
	}
}

// discoveredDecision and discoveredHTTPFilter come as an extension config of their name. Without it no connection and
// no request gets through.
func discoveredDecision(name string) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: discovered(decisionType),
	}}
}

func discoveredHTTPFilter(name string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: discovered(httpRBACType),
	}}
}

func discovered(typeURL string) *corev3.ExtensionConfigSource {
	return &corev3.ExtensionConfigSource{ConfigSource: adsOrWait(), TypeUrls: []string{typeURL}}
}
