package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	directresponsev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
	"weft/internal/xds"
)

const (
	captureOutboundName = "self_capture_outbound"
	captureInboundName  = "self_capture_inbound"
	passthroughName     = "self_capture_passthrough"
)

// Capture is where the machine redirects connections to: each goes on to the listener of the address that
// it was going to. What leaves for an address that no listener has goes there unchanged; what comes in for
// one is closed, since nobody has said who may reach it.
//
// With IPv6 there is a listener more for each direction, named with "_ipv6" at the end.
func Capture(c *graph.Capture) []*xds.Resource {
	resources := []*xds.Resource{passthroughCluster()}
	for _, ip := range []struct {
		six               bool
		wildcard, postfix string
	}{{false, "0.0.0.0", ""}, {true, "::", "_ipv6"}} {
		if !graph.HasFamily(c.IPFamilies, ip.six) {
			continue
		}
		resources = append(resources,
			capture(captureOutboundName+ip.postfix, ip.wildcard, c.OutboundPort, corev3.TrafficDirection_OUTBOUND, passthrough()),
			capture(captureInboundName+ip.postfix, ip.wildcard, c.InboundPort, corev3.TrafficDirection_INBOUND, refusal()),
		)
	}
	return resources
}

// capture closes what was sent to its own port: nothing redirected it, so that passing it on to where it
// was going would bring it back for ever.
func capture(name, wildcard string, port uint32, direction corev3.TrafficDirection, otherwise *listenerv3.Filter) *xds.Resource {
	return xds.NewResource(xds.Listener, name, &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(wildcard, port),
		UseOriginalDst:   yes(),
		TrafficDirection: direction,
		FilterChains: []*listenerv3.FilterChain{{
			Name:             "unredirected",
			FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: number(port)},
			Filters:          []*listenerv3.Filter{refusal()},
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

// refusal closes a connection without a word.
func refusal() *listenerv3.Filter { return networkFilter(&directresponsev3.Config{}) }
