package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	directresponsev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// CapturePrefix is the prefix of the names of the resources for redirected connections.
const CapturePrefix = "self_capture_"

const (
	captureOutboundName = CapturePrefix + "outbound"
	captureInboundName  = CapturePrefix + "inbound"
	passthroughName     = CapturePrefix + "passthrough"
)

// Capture returns the listeners that receive a machine's redirected connections. Each connection is handed to the
// listener of its original destination. Without such a listener, an outgoing connection is forwarded as the policies
// about passthrough say, and an incoming one is closed, since no permission covers it.
//
// With IPv6, each direction has a second listener, whose name ends with "_ipv6".
func Capture(c *proxy.Capture) []*xds.Resource {
	conf := proxy.PassthroughOf(c.Passthrough)
	resources := append(inspectedConnections(conf), passthroughCluster())
	for _, ip := range []struct {
		six               bool
		wildcard, postfix string
	}{{false, "0.0.0.0", ""}, {true, "::", "_ipv6"}} {
		if !c.IPFamilies.Has(ip.six) {
			continue
		}
		resources = append(resources,
			captureOutbound(captureOutboundName+ip.postfix, ip.wildcard, c.OutboundPort, conf),
			captureInbound(captureInboundName+ip.postfix, ip.wildcard, c.InboundPort),
		)
	}
	return resources
}

// captureOutbound selects the filter chain of a connection by a matcher, so a change of the policies changes the
// matcher and no chain.
func captureOutbound(name, wildcard string, port uint32, conf *kind.PassthroughConf) *xds.Resource {
	listener := capture(name, wildcard, port, corev3.TrafficDirection_OUTBOUND, passthrough())
	listener.FilterChainMatcher = outgoing(port, conf)
	listener.FilterChains = []*listenerv3.FilterChain{
		{Name: unredirectedChain, Filters: []*listenerv3.Filter{closeConnection()}},
		{Name: inspectedChain, Filters: toInspection()},
		{Name: requestsChain, Filters: passedRequests()},
	}
	return xds.NewResource(xds.Listener, name, listener)
}

func captureInbound(name, wildcard string, port uint32) *xds.Resource {
	listener := capture(name, wildcard, port, corev3.TrafficDirection_INBOUND, closeConnection())
	listener.FilterChains = []*listenerv3.FilterChain{{
		Name:             unredirectedChain,
		FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: uint32Value(port)},
		Filters:          []*listenerv3.Filter{closeConnection()},
	}}
	return xds.NewResource(xds.Listener, name, listener)
}

// unredirectedChain closes connections to the listener's own port: they were not redirected, so forwarding them to
// their original destination would be an endless loop.
const unredirectedChain = "unredirected"

// capture returns a listener of redirected connections. Those that no filter chain matches pass a filter.
func capture(name, wildcard string, port uint32, direction corev3.TrafficDirection,
	otherwise *listenerv3.Filter) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(wildcard, port),
		UseOriginalDst:   boolTrue(),
		TrafficDirection: direction,
		DefaultFilterChain: &listenerv3.FilterChain{
			Name:    "unknown",
			Filters: []*listenerv3.Filter{otherwise},
		},
	}
}

func passthrough() *listenerv3.Filter {
	return networkFilter(&tcpproxyv3.TcpProxy{
		StatPrefix:       passthroughName,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: passthroughName},
		IdleTimeout:      duration(idleTimeout),
	})
}

// closeConnection closes a connection without a response.
func closeConnection() *listenerv3.Filter { return networkFilter(&directresponsev3.Config{}) }
