package envoy

import (
	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusters "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoints "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	stats "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	internalupstream "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	raw "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	scopes "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/graph"
	"weft/internal/xds"
)

// A guarded TCP connection passes two listeners. The first one terminates TLS, decides, and hands every connection to
// the second, internal one with the decision in its filter state. The second has a filter chain for connections that
// were allowed and closes all others, so that no server is dialled for them. Its name is that of the cluster that
// leads to it.

// guardedName names the internal listener of a place and the cluster that leads to it.
func guardedName(g graph.Guard) string { return "self_guarded_" + g.Place }

// guardedConnections are the filters that decide on the connections of a place, and hand them on with the decision
// once the handshake is complete.
func guardedConnections(g graph.Guard) []*listeners.Filter {
	return []*listeners.Filter{
		discoveredDecision(decisionName(g.Place)),
		discoveredDecision(evictedTCPName(g.Mesh)),
		networkFilter(&tcpproxy.TcpProxy{
			StatPrefix:          guardedName(g),
			ClusterSpecifier:    &tcpproxy.TcpProxy_Cluster{Cluster: guardedName(g)},
			IdleTimeout:         duration(inboundIdleTimeout),
			UpstreamConnectMode: tcpproxy.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE,
			MaxEarlyDataBytes:   number(0),
			AccessLog:           []*accesslog.AccessLog{countDecisions(g)},
		}),
	}
}

// countDecisions counts the connections of a place by what was decided, when they end. There are as many counters as
// rules, since a caller chooses none of the tags.
func countDecisions(g graph.Guard) *accesslog.AccessLog {
	return &accesslog.AccessLog{
		Name: "envoy.access_loggers.stats",
		ConfigType: &accesslog.AccessLog_TypedConfig{TypedConfig: pack(&stats.Config{
			StatsScope: &scopes.Scope{Prefix: "weft"},
			Counters: []*stats.Config_Counter{{
				Stat: &stats.Config_Stat{Name: "tcp_connections", Tags: []*stats.Config_Tag{
					{Name: "place", ValueFormat: g.Place},
					{Name: "decision", ValueFormat: "%FILTER_STATE(" + decisionKey + ":PLAIN)%"},
					{Name: "shadow_deny", ValueFormat: "%FILTER_STATE(" + ShadowKey + ":PLAIN)%"},
				}},
				ValueFixed: wrapperspb.UInt64(1),
			}},
		})},
	}
}

// allowedConnections are the internal listener of a place, with the filter that takes what was allowed, and the
// cluster that leads to the listener.
func allowedConnections(g graph.Guard, to *tcpproxy.TcpProxy) []*xds.Resource {
	name := guardedName(g)
	listener := &listeners.Listener{
		Name: name,
		ListenerSpecifier: &listeners.Listener_InternalListener{
			InternalListener: &listeners.Listener_InternalListenerConfig{},
		},
		TrafficDirection:              core.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: number(guardedBuffer),
		FilterChainMatcher:            onlyAllowed(name),
		FilterChains:                  []*listeners.FilterChain{{Name: name, Filters: []*listeners.Filter{networkFilter(to)}}},
	}
	cluster := &clusters.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusters.Cluster_Type{Type: clusters.Cluster_STATIC},
		ConnectTimeout:                duration(localConnectTimeout),
		PerConnectionBufferLimitBytes: number(guardedBuffer),
		CircuitBreakers:               noBreakers(),
		LoadAssignment: &endpoints.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpoints.LocalityLbEndpoints{{LbEndpoints: []*endpoints.LbEndpoint{{
				HostIdentifier: &endpoints.LbEndpoint_Endpoint{Endpoint: &endpoints.Endpoint{Address: &core.Address{
					Address: &core.Address_EnvoyInternalAddress{EnvoyInternalAddress: &core.EnvoyInternalAddress{
						AddressNameSpecifier: &core.EnvoyInternalAddress_ServerListenerName{ServerListenerName: name},
					}},
				}}},
			}}}},
		},
		TransportSocket: &core.TransportSocket{
			Name: "envoy.transport_sockets.internal_upstream",
			ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(&internalupstream.InternalUpstreamTransport{
				TransportSocket: &core.TransportSocket{
					Name:       "envoy.transport_sockets.raw_buffer",
					ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(&raw.RawBuffer{})},
				},
			})},
		},
	}
	return []*xds.Resource{
		xds.NewResource(xds.Cluster, name, cluster),
		xds.NewResource(xds.Listener, name, listener),
	}
}
