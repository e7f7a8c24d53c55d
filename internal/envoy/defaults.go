package envoy

import (
	"time"

	"weft/internal/graph"
)

// Defaults of every destination and inbound; docs/defaults.md has the reasons.
const (
	// connectTimeout bounds one attempt to reach an endpoint, its TLS handshake included.
	connectTimeout = time.Second
	// zonesConnectTimeout is the same through zone proxies: the attempt outlives that of a zone proxy to reach a silent
	// endpoint, and round trips between zones are longer.
	zonesConnectTimeout = 2 * connectTimeout
	// outsideConnectTimeout is the same towards servers outside the mesh.
	outsideConnectTimeout = 5 * time.Second
	// localConnectTimeout is the same towards the application, which is as near as can be.
	localConnectTimeout = 10 * time.Second

	// requestTimeout bounds a request of http and http2, from its last byte to the response's last. A
	// call of grpc is bounded by its own deadline alone, since streams are long.
	requestTimeout = 15 * time.Second
	// streamIdleTimeout ends a stream on which nothing moves in either direction.
	streamIdleTimeout = 30 * time.Minute
	// idleTimeout ends a connection without requests, or of bytes that don't flow.
	idleTimeout = time.Hour

	// connectionLife is when a connection of requests takes no further one, and ends once those that it has
	// are answered.
	connectionLife = graph.ConnectionLife
	// forwardedConnectionLife is the same where an egress and an ingress forward the connection: half of the time that a
	// zone proxy which drains leaves the connections through it, so that the last requests have the other half.
	forwardedConnectionLife = 15 * time.Second

	// A server's side waits longer than its clients, so that it is the client that gives a connection
	// up: a request that is sent while the other side closes would be lost.
	inboundStreamIdleTimeout = time.Hour
	inboundIdleTimeout       = 2 * time.Hour
	// localIdleTimeout is, for the same reason, shorter than what applications keep connections for
	// (the shortest that is common: 5 seconds).
	localIdleTimeout = 4 * time.Second

	// lookupInterval is how often an egress looks up a host name whose answer does not say for how long it holds;
	// lookupRetry and lookupLongestRetry bound the waits after a lookup that failed.
	lookupInterval                  = 5 * time.Second
	lookupRetry, lookupLongestRetry = time.Second, 10 * time.Second

	// maxConnections is the number of connections of one proxy to one destination. On HTTP/1.1, further requests wait
	// for one; a TCP connection beyond the limit is closed.
	maxConnections = 1024
	// maxRequests is the number of requests that one proxy has running, or waiting for a connection, at one destination.
	// Requests beyond the limit get 503 at once. A server that stands still for 3 s collects 3 s of its clients' requests,
	// each about 30 KB in the client's proxy.
	maxRequests = 16 * 1024
	// minRetries is the number of concurrent retries that one proxy always has with one destination. More are allowed
	// while they are at most retryShare percent of the running requests.
	minRetries, retryShare = 2048, 50
	// localBreakerLimit is the same towards the application: none, the application decides.
	localBreakerLimit = 1<<32 - 1

	// retries of a request after its first attempt.
	retries = 3
	// otherHostAttempts is how often a retry asks the balancer for a host that was not tried yet.
	otherHostAttempts = 5
	// connectAttempts of a TCP connection, the first included: enough to eject four dead endpoints and reach the next
	// zone. Envoy counts one for each connection in the making to an endpoint when any of them fails.
	connectAttempts = 10

	// Between two proxies that both read requests: silentAfter is how long data may stay unacknowledged, a PING is sent
	// every pingInterval, and pingTimeout is how long nothing may arrive after it.
	silentAfter               = 3 * time.Second
	pingInterval, pingTimeout = 2 * time.Second, 3 * time.Second
	// tcpSilentAfter is silentAfter where the receiver may stop reading: the kernel counts the time in which a receiver
	// takes nothing as well.
	tcpSilentAfter = 30 * time.Second
	// tcpKeepaliveTime is how long a TCP connection idles before its peer is probed, every tcpKeepaliveInterval.
	tcpKeepaliveTime, tcpKeepaliveInterval = 15 * time.Second, 5 * time.Second

	// maxStreams is the number of concurrent requests on an HTTP/2 connection between proxies. requestWindow is the number
	// of bytes of one request that may wait unread, responseWindow that of one response. The connection's window holds
	// those of all its requests, so that requests whose receivers stop reading never hold up others. Callers so fill the
	// memory of a server's proxy by 2 * maxStreams * requestWindow on a connection at most: as much as is unread may wait
	// for connections to the application.
	maxStreams     = 64
	requestWindow  = 256 << 10
	responseWindow = 512 << 10

	// callerBuffer is the number of bytes that wait for a caller in each response, and unread on a connection of HTTP/1.1
	// or TCP. applicationBuffer is the same at a connection to an application or to an external server. Envoy's default
	// is 1 MiB.
	callerBuffer      = 128 << 10
	applicationBuffer = 64 << 10

	// ownStreams is the number of concurrent requests on an HTTP/2 connection of the proxy's own application, and
	// ownWindow that of bytes of one of them that may wait unread. Clients such as gRPC have one connection, on which
	// further calls wait.
	ownStreams = 256
	ownWindow  = 512 << 10

	// resetBurst and resetRate, per second, bound the requests that a client cancels on one connection; beyond them the
	// connection is closed, which fails its other requests. Envoy's defaults of 1,000 and 33 are passed by deadlines
	// alone when a server stands still.
	resetBurst, resetRate = 100_000, 10_000

	// zonesConnectionRequests is the number of requests after which a connection through a zone proxy takes no further
	// one. A zone ingress balances connections, so that a client's requests reach other servers with the next one.
	zonesConnectionRequests = 256

	// firstBytesTimeout is how long a connection that may be TLS or not is waited for to say which.
	firstBytesTimeout = time.Second

	// guardedBuffer is how many bytes wait in either direction between the two listeners that a guarded TCP connection
	// passes: what a client that reads slowly costs beyond the buffers of its own connection. Envoy's default is 1 MiB.
	guardedBuffer = 128 << 10

	// handshakeTimeout is how long a client may take for the handshake of mutual TLS. Its own proxy gives up sooner:
	// connectTimeout, or zonesConnectTimeout, includes the handshake.
	handshakeTimeout = 5 * time.Second

	// helloTimeout is how long a zone proxy waits for a client to name a server.
	helloTimeout = 5 * time.Second

	// spireBackoff is the wait before a SPIRE agent is asked again; it doubles up to spireLongestBackoff.
	spireBackoff, spireLongestBackoff = 500 * time.Millisecond, 5 * time.Second

	// ejectableHosts is the percentage of a destination's endpoints that outlier detection may set aside.
	ejectableHosts = 50
	// ejectedAfter is the number of local-origin failures in a row after which outlier detection ejects an endpoint. One
	// is too few: Envoy counts a response that its application breaks off, and one that takes too long, as such a failure.
	ejectedAfter = 2
	// ejectionTime is how long an endpoint is ejected, longestEjection after it was ejected again and again; what has
	// come back is seen every ejectionSweep. While an endpoint is ejected no retry goes there: it is to be back before
	// another one fails.
	ejectionTime, longestEjection, ejectionSweep = 5 * time.Second, 10 * time.Second, time.Second
	// localLegFactor is by how much, in percent, the endpoints of the client's own zone that are left are taken to
	// carry more than their part: one in a thousand carries all.
	localLegFactor = 100 * 1000
	// zonesBackoff is the longest wait before the second attempt; it doubles up to zonesLongestBackoff.
	zonesBackoff, zonesLongestBackoff = 10 * time.Millisecond, 40 * time.Millisecond
	// localAttempts of a request stay in the client's own zone, the first included; what is left goes to others.
	localAttempts = 2
)

// unservedHeader is on a response that a server's proxy made because its application did not answer, and
// says how far the request came. The client's proxy decides by it what is safe to send elsewhere; a 503
// that the application itself made has no such header and is passed on as it is.
const (
	unservedHeader = "x-weft-unserved"
	// unservedRefused: no connection to the application came about, so it has seen nothing.
	unservedRefused = "refused"
	// unservedReset: the application went away before it had answered, and may have acted.
	unservedReset = "reset"
)
