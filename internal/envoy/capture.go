package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	directresponsev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/proxy"
	"weft/internal/xds"
)

const (
	captureOutboundName = "self_capture_outbound"
	captureInboundName  = "self_capture_inbound"
	passthroughName     = "self_capture_passthrough"
)

// Capture returns the listeners that receive a machine's redirected connections. Each connection is handed to the
// listener of its original destination. Without such a listener, an outgoing connection is forwarded unchanged and an
// incoming one is closed, since no permission covers it.
//
// With IPv6, each direction has a second listener, whose name ends with "_ipv6".
func Capture(c *proxy.Capture) []*xds.Resource {
	resources := []*xds.Resource{passthroughCluster()}
	for _, ip := range []struct {
		six               bool
		wildcard, postfix string
	}{{false, "0.0.0.0", ""}, {true, "::", "_ipv6"}} {
		if !proxy.HasFamily(c.IPFamilies, ip.six) {
			continue
		}
		resources = append(resources,
			capture(captureOutboundName+ip.postfix, ip.wildcard, c.OutboundPort, corev3.TrafficDirection_OUTBOUND,
				passthrough()),
			capture(captureInboundName+ip.postfix, ip.wildcard, c.InboundPort, corev3.TrafficDirection_INBOUND,
				closeConnection()),
		)
	}
	return resources
}

// capture closes connections to its own port: they were not redirected, so forwarding them to their original
// destination would be an endless loop.
func capture(name, wildcard string, port uint32, direction corev3.TrafficDirection,
	otherwise *listenerv3.Filter) *xds.Resource {
	return xds.NewResource(xds.Listener, name, &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(wildcard, port),
		UseOriginalDst:   boolTrue(),
		TrafficDirection: direction,
		FilterChains: []*listenerv3.FilterChain{{
			Name:             "unredirected",
			FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: uint32Value(port)},
			Filters:          []*listenerv3.Filter{closeConnection()},
		}},
		DefaultFilterChain: &listenerv3.FilterChain{
			Name:    "unknown",
			Filters: []*listenerv3.Filter{otherwise},
		},
	})
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
