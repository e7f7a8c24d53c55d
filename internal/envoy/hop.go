package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/graph"
	"weft/kind"
)

// hop is how one proxy of the mesh speaks to the next one. The zero value is TCP, as zone proxies forward it. Two proxies
// that both read requests speak HTTP/2 to each other, whatever the applications speak: PINGs notice a proxy that has
// stopped, and HTTP/2's flow control keeps TCP's window open, so that unacknowledged data means a silent machine.
type hop struct {
	version version
	// byZoneProxy says whether zone proxies lie between the two.
	byZoneProxy bool
	// byTwo says whether an egress and an ingress do.
	byTwo bool
}

type version int

const (
	tcp        version = iota
	http1              // an inbound of the destination does not read requests, and its application speaks HTTP/1.1
	negotiated         // HTTP/2, or HTTP/1.1 where the inbound does not read requests
	http2Only
)

// hopTo returns the hop to servers. Whether an inbound of another zone reads requests is known to its zone alone: there the
// TLS handshake negotiates the version.
func hopTo(protocol kind.Protocol, servers *graph.Servers) hop {
	byEgress := servers.Way == graph.ByEgress || servers.Way == graph.NoEgress
	h := hop{byZoneProxy: servers.Way != graph.Direct, byTwo: byEgress && !servers.External()}
	switch {
	case !protocol.IsHTTP():
	case protocol == kind.HTTP && servers.TCPInbound:
		h.version = http1
	case protocol == kind.HTTP && servers.Zone != "":
		h.version = negotiated
	default:
		h.version = http2Only
	}
	return h
}

func (h hop) connectTimeout() time.Duration {
	if h.byZoneProxy {
		return zonesConnectTimeout
	}
	return connectTimeout
}

// connectionLife is how long a connection takes further requests. No client hears that an ingress behind an egress drains,
// so such a connection ends within the bound of a drain.
func (h hop) connectionLife() time.Duration {
	if h.byTwo {
		return forwardedConnectionLife
	}
	return connectionLife
}

// alpn is what the TLS handshake offers, nothing for TCP.
func (h hop) alpn() []string {
	return [...][]string{tcp: nil, http1: {"http/1.1"}, negotiated: {"h2", "http/1.1"}, http2Only: {"h2"}}[h.version]
}

func (h hop) protocolOptions() map[string]*anypb.Any {
	options := &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxConnectionDuration: duration(h.connectionLife())},
	}
	if h.byZoneProxy {
		options.CommonHttpProtocolOptions.MaxRequestsPerConnection = number(zonesConnectionRequests)
	}
	switch h.version {
	case tcp:
		return nil
	case negotiated:
		options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_AutoConfig{AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: pinged(),
		}}
	default:
		options.UpstreamProtocolOptions = httpVersion(h.version == http1, pinged())
	}
	return packedOptions(options)
}

// http2 is HTTP/2 as proxies speak it to each other. WebSockets pass. The side that takes connections takes more streams
// than its clients open, since it may hear later than they do that a stream has ended.
func http2() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		AllowConnect:                true,
		MaxConcurrentStreams:        number(2 * maxStreams),
		InitialStreamWindowSize:     number(streamWindow),
		InitialConnectionWindowSize: number(connectionWindow),
		StreamResetBurst:            wrapperspb.UInt64(resetBurst),
		StreamResetRate:             wrapperspb.UInt64(resetRate),
	}
}

// pinged is http2 on the side that makes the connection, which notices whether the other side is there.
func pinged() *corev3.Http2ProtocolOptions {
	options := http2()
	options.StreamResetBurst, options.StreamResetRate = nil, nil
	options.MaxConcurrentStreams = number(maxStreams)
	options.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: duration(pingInterval), Timeout: duration(pingTimeout)}
	return options
}

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, at the level IPPROTO_TCP: how many milliseconds sent data may stay
// unacknowledged, or unsent because the receiver takes nothing, before the connection is closed.
const ipprotoTCP, tcpUserTimeout = 6, 18

// noticeSilence has a cluster close connections whose peer is silent: some time after data was sent that is not
// acknowledged, and on TCP after some probes of an idle connection.
func (h hop) noticeSilence(c *clusterv3.Cluster) {
	after := tcpSilentAfter
	if h.version == negotiated || h.version == http2Only {
		after = silentAfter
	}
	c.UpstreamBindConfig = &corev3.BindConfig{SocketOptions: []*corev3.SocketOption{{
		Description: "TCP_USER_TIMEOUT",
		Level:       ipprotoTCP,
		Name:        tcpUserTimeout,
		Value:       &corev3.SocketOption_IntValue{IntValue: after.Milliseconds()},
	}}}
	if after == tcpSilentAfter {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime:     number(uint32(tcpKeepaliveTime.Seconds())),
			KeepaliveInterval: number(uint32(tcpKeepaliveInterval.Seconds())),
		}}
	}
}
