package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	internalupstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/proxy"
	"weft/internal/xds"
)

// A guarded TCP connection passes two listeners. The first one terminates TLS, decides, and hands every connection to
// the second, internal one, with the decision in its filter state. The second has a filter chain for allowed
// connections and closes all others, so that no server is dialed for them. Its name is that of the cluster that leads
// to it.

// guardedName returns the name of the internal listener of a guard, and of the cluster that leads to it.
func guardedName(g proxy.Guard) string { return "self_guarded_" + g.Place }

// guardedConnections returns the filters that decide on the TCP connections of a guard, and pass them on with the
// decision after the handshake.
func guardedConnections(g proxy.Guard) []*listenerv3.Filter {
	return []*listenerv3.Filter{
		connectionSlot(g.Place),
		discoveredNetworkFilter(decisionName(g.Place), filterStateType),
		discoveredNetworkFilter(evictedTCPName(g.Mesh), filterStateType),
		tcpProxySlot(guardedName(g)),
	}
}

// toGuarded returns the TCP proxy that passes connections on with the decision.
func toGuarded(g proxy.Guard, confs proxy.Confs) *xds.Resource {
	return tcpProxy(guardedName(g), &tcpproxyv3.TcpProxy{
		StatPrefix:          guardedName(g),
		ClusterSpecifier:    &tcpproxyv3.TcpProxy_Cluster{Cluster: guardedName(g)},
		IdleTimeout:         servedIdleTimeout(confs),
		UpstreamConnectMode: tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE,
		MaxEarlyDataBytes:   uint32Value(0),
		AccessLog:           []*accesslogv3.AccessLog{countDecisions(g)},
	})
}

// countDecisions counts the connections of a guard by decision when they end. The number of counters is the number of
// rules, since a caller chooses none of the tags.
func countDecisions(g proxy.Guard) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.stats",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: toAny(&statsv3.Config{
			StatsScope: &typev3.Scope{Prefix: "weft"},
			Counters: []*statsv3.Config_Counter{{
				Stat: &statsv3.Config_Stat{Name: "tcp_connections", Tags: []*statsv3.Config_Tag{
					{Name: "place", ValueFormat: g.Place},
					{Name: "decision", ValueFormat: "%FILTER_STATE(" + decisionKey + ":PLAIN)%"},
					{Name: "shadow_deny", ValueFormat: "%FILTER_STATE(" + ShadowKey + ":PLAIN)%"},
				}},
				ValueFixed: wrapperspb.UInt64(1),
			}},
		})},
	}
}

// allowedConnections returns the internal listener of a guard, with the slot of the TCP proxy for allowed connections,
// and the cluster and the TCP proxy that lead to it.
func allowedConnections(g proxy.Guard, confs proxy.Confs) []*xds.Resource {
	name := guardedName(g)
	listener := &listenerv3.Listener{
		Name: name,
		ListenerSpecifier: &listenerv3.Listener_InternalListener{
			InternalListener: &listenerv3.Listener_InternalListenerConfig{},
		},
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: uint32Value(guardedBuffer),
		FilterChainMatcher:            onlyAllowed(name),
		FilterChains: []*listenerv3.FilterChain{{Name: name,
			Filters: []*listenerv3.Filter{tcpProxySlot(tcpProxySlotName(g.Place))}}},
	}
	return []*xds.Resource{
		internalCluster(name),
		xds.NewResource(xds.Listener, name, listener),
		toGuarded(g, confs),
	}
}

// internalCluster returns the cluster that leads to the internal listener of its name.
func internalCluster(name string) *xds.Resource {
	return xds.NewResource(xds.Cluster, name, &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                duration(localConnectTimeout),
		PerConnectionBufferLimitBytes: uint32Value(guardedBuffer),
		CircuitBreakers:               noBreakers(),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
					Address: &corev3.Address_EnvoyInternalAddress{EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
						AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: name},
					}},
				}}},
			}}}},
		},
		TransportSocket: &corev3.TransportSocket{
			Name: "envoy.transport_sockets.internal_upstream",
			ConfigType: &corev3.TransportSocket_TypedConfig{
				TypedConfig: toAny(&internalupstreamv3.InternalUpstreamTransport{
					TransportSocket: &corev3.TransportSocket{
						Name:       "envoy.transport_sockets.raw_buffer",
						ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: toAny(&rawbufferv3.RawBuffer{})},
					},
				})},
		},
	})
}
