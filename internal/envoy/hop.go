package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/tcp/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/service"
	"weft/internal/zoneroute"
	"weft/kind"
)

// hop is a connection from one proxy of the mesh to the next. The zero value is TCP, as zone proxies forward it. Two
// proxies that both read requests use HTTP/2 with each other, whatever the applications use: PINGs detect a stopped
// proxy, and HTTP/2's flow control keeps TCP's window open, so unacknowledged data means a silent machine.
type hop struct {
	version version
	// byZoneProxy states that zone proxies forward the connection.
	byZoneProxy bool
	// byTwo states that an egress and an ingress forward it.
	byTwo bool
	// effective are the confs of policies.
	effective service.Effective
}

type version int

const (
	tcp        version = iota
	http1              // an inbound of the destination does not read requests, and its application uses HTTP/1.1
	negotiated         // HTTP/2, or HTTP/1.1 where the inbound does not read requests
	http2Only
)

// hopTo returns the hop to servers. Only the zone of an inbound knows whether it reads requests, so the TLS handshake
// of a cross-zone connection negotiates the version.
func hopTo(protocol kind.Protocol, servers *service.Servers, effective *service.Effective) hop {
	byEgress := servers.Way == zoneroute.ByEgress || servers.Way == zoneroute.NoEgress
	h := hop{byZoneProxy: servers.Way != zoneroute.Direct, byTwo: byEgress && !servers.External(),
		effective: *effective}
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

// attempt returns the timeout of one attempt to reach an endpoint.
func (h hop) attempt() *durationpb.Duration {
	otherwise := connectTimeout
	if h.byZoneProxy {
		otherwise = zonesConnectTimeout
	}
	return timeout(h.effective.Timeout.ConnectionTimeout, otherwise)
}

// connectionLife returns the age at which a connection accepts no further request. A client does not learn that an
// ingress drains where an egress forwards to it, so such a connection ends within the bound of a drain.
func (h hop) connectionLife() time.Duration {
	if h.byTwo {
		return forwardedConnectionLife
	}
	return connectionLife
}

// alpn returns the protocols that the TLS handshake offers, none for TCP.
func (h hop) alpn() []string {
	return [...][]string{tcp: nil, http1: {"http/1.1"}, negotiated: {"h2", "http/1.1"}, http2Only: {"h2"}}[h.version]
}

func (h hop) protocolOptions() map[string]*anypb.Any {
	options := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
		MaxHeadersCount:      uint32Value(forwardedHeaders),
		MaxResponseHeadersKb: uint32Value(forwardedHeadersKB),
	}}
	boundConnection(options.CommonHttpProtocolOptions, &h.effective.Timeout, h.connectionLife())
	if h.byZoneProxy {
		options.CommonHttpProtocolOptions.MaxRequestsPerConnection = uint32Value(zonesConnectionRequests)
	}
	switch h.version {
	case tcp:
		return tcpOptions(h.attempt())
	case negotiated:
		options.UpstreamProtocolOptions =
			&httpv3.HttpProtocolOptions_AutoConfig{AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: pinged(),
			}}
	default:
		options.UpstreamProtocolOptions = httpVersion(h.version == http1, pinged())
	}
	return packedOptions(options)
}

// tcpOptions returns the options of a TCP upstream, with the idle timeout that closes connections without a client.
// Where a connection attempt fails, Envoy fails all clients that wait for the endpoint and keeps the other attempts.
// The connection of a later success would wait 10 minutes for the next client, whose data would be lost if the endpoint
// stopped responding meanwhile. Envoy counts a connection attempt as idle time, so the timeout is longer than an
// attempt: an attempt that ended as idle would be no failure, and the endpoint would never be ejected.
func tcpOptions(attempt *durationpb.Duration) map[string]*anypb.Any {
	return map[string]*anypb.Any{
		"envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions": toAny(&tcpv3.TcpProtocolOptions{
			IdleTimeout: duration(attempt.AsDuration() + surplusIdleTimeout),
		}),
	}
}

// streamErrors returns HTTP/2 options under which a malformed message is an error of its stream (RFC 9113, 8.1.1).
// Envoy's default fails every other request of the connection too.
func streamErrors() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{OverrideStreamErrorOnInvalidHttpMessage: boolTrue()}
}

// http2 returns HTTP/2 options for a number of concurrent requests with a window of bytes each. WebSockets are allowed.
func http2(streams, window uint32) *corev3.Http2ProtocolOptions {
	options := streamErrors()
	options.AllowConnect = true
	options.MaxConcurrentStreams = uint32Value(streams)
	options.InitialStreamWindowSize = uint32Value(window)
	options.InitialConnectionWindowSize = uint32Value(streams * window)
	return options
}

// served returns http2 for a listener, whose callers may cancel requests.
func served(streams, window uint32) *corev3.Http2ProtocolOptions {
	options := http2(streams, window)
	options.StreamResetBurst = wrapperspb.UInt64(resetBurst)
	options.StreamResetRate = wrapperspb.UInt64(resetRate)
	return options
}

// pinged returns http2 for the dialing side, which detects a silent peer by PINGs.
func pinged() *corev3.Http2ProtocolOptions {
	options := http2(maxStreams, responseWindow)
	options.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: duration(pingInterval),
		Timeout: duration(pingTimeout)}
	return options
}

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux at the level IPPROTO_TCP. Its value is the time in milliseconds for which
// sent data may stay unacknowledged, or unsent because the receiver does not read, before the kernel closes the
// connection.
const ipprotoTCP, tcpUserTimeout = 6, 18

// closeUnresponsive closes a cluster's connections whose peer is silent: after data stays unacknowledged for some time
// and, on TCP, after failed probes of an idle connection.
func (h hop) closeUnresponsive(c *clusterv3.Cluster) {
	after := tcpUnackedTimeout
	if h.version == negotiated || h.version == http2Only {
		after = unackedTimeout
	}
	c.UpstreamBindConfig = &corev3.BindConfig{SocketOptions: []*corev3.SocketOption{{
		Description: "TCP_USER_TIMEOUT",
		Level:       ipprotoTCP,
		Name:        tcpUserTimeout,
		Value:       &corev3.SocketOption_IntValue{IntValue: after.Milliseconds()},
	}}}
	if after == tcpUnackedTimeout {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime:     uint32Value(uint32(tcpKeepaliveTime.Seconds())),
			KeepaliveInterval: uint32Value(uint32(tcpKeepaliveInterval.Seconds())),
		}}
	}
}
