package envoy

import (
	"time"

	"weft/kind"
)

// Defaults of every destination and inbound. docs/defaults.md has the reasons.
const (
	// connectTimeout is the timeout of one attempt to reach an endpoint, including the TLS handshake.
	connectTimeout = time.Second
	// zonesConnectTimeout is connectTimeout through zone proxies. It is longer than several attempts of an ingress to
	// reach silent endpoints, and covers the longer round trips between zones.
	zonesConnectTimeout = 2 * connectTimeout
	// forwardConnectTimeout is the timeout of one attempt of an ingress to reach an endpoint of its zone, without the
	// TLS handshake, which is the client's. Two failures eject the endpoint before the client gives up the ingress.
	forwardConnectTimeout = connectTimeout / 2
	// externalConnectTimeout is connectTimeout for external servers.
	externalConnectTimeout = 5 * time.Second
	// localConnectTimeout is connectTimeout for the application on the same machine.
	localConnectTimeout = 10 * time.Second

	// requestTimeout is the timeout of an HTTP or HTTP/2 request, from its last byte to the last byte of the response.
	// A gRPC call is bounded by its own deadline only, since streams are long.
	requestTimeout = 15 * time.Second
	// streamIdleTimeout ends a stream without data in either direction.
	streamIdleTimeout = 30 * time.Minute
	// idleTimeout ends an HTTP connection without requests, or a TCP connection without data.
	idleTimeout = time.Hour

	// connectionLife is the age at which an HTTP connection accepts no further request. It ends after the responses of
	// its open requests.
	connectionLife = kind.ConnectionLife
	// forwardedConnectionLife is connectionLife where an egress and an ingress forward the connection. It is half of
	// the time that a draining zone proxy gives the connections through it, so the last requests have the other half.
	forwardedConnectionLife = 15 * time.Second

	// The server's side waits longer than its clients, so that the client closes an idle connection. A request that is
	// sent while the server closes would be lost.
	inboundStreamIdleTimeout = time.Hour
	inboundIdleTimeout       = 2 * time.Hour
	// localIdleTimeoutHTTP1 is shorter than the idle timeouts of applications for the same reason. The shortest common
	// one is 2 seconds. localIdleTimeout is that of HTTP/2, where the application states the requests that it lost.
	localIdleTimeoutHTTP1, localIdleTimeout = time.Second, 4 * time.Second

	// lookupInterval is the interval at which an egress resolves a host name whose DNS response has no TTL. lookupRetry
	// and lookupLongestRetry bound the wait after a failed lookup.
	lookupInterval                  = 5 * time.Second
	lookupRetry, lookupLongestRetry = time.Second, 10 * time.Second

	// maxConnections is the number of connections of one proxy to one destination. On HTTP/1.1, further requests wait
	// for a connection; a TCP connection above the limit is closed.
	maxConnections = 1024
	// maxRequests is the number of running or waiting requests of one proxy to one destination. Requests above the
	// limit get 503 at once. A server that stalls for 3 s collects 3 s of its clients' requests, each about 30 KB in
	// the client's proxy.
	maxRequests = 16 * 1024
	// minRetries is the number of concurrent retries of one proxy that one destination always allows. More are allowed
	// while they are at most retryShare percent of the running requests.
	minRetries, retryShare = 2048, 50
	// localBreakerLimit sets no limit for the application, which limits itself.
	localBreakerLimit = 1<<32 - 1

	// retries is the number of retries of a request after its first attempt, crossZoneRetries that of a request to
	// another zone, which meets silent machines in two places: at the ingresses and at the servers behind them.
	retries, crossZoneRetries = 3, 5
	// unbegunRetries is the number of retries of a request that an application of HTTP/2 has not begun, at its own
	// proxy, which keeps repeatedBody bytes of a request for them. More would multiply the retries of the client's
	// proxy.
	unbegunRetries, repeatedBody = 2, 16 << 10
	// retryBaseInterval is the longest wait before the first retry, where a policy sets the longest of all waits only.
	retryBaseInterval = 25 * time.Millisecond
	// otherHostAttempts is the number of times that a retry asks the load balancer for a host that was not tried yet.
	otherHostAttempts = 5
	// connectAttempts is the number of attempts of a TCP connection, including the first. It suffices to eject four
	// dead endpoints and reach the next zone. Envoy counts an attempt for each pending connection to an endpoint when
	// one of them fails.
	connectAttempts = 10
	// zonesConnectAttempts is connectAttempts of a connection that may go to other zones. Between its attempts Envoy
	// waits, and they last longer than a busy machine takes to eject dead endpoints.
	zonesConnectAttempts = 20

	// Between two proxies that both read requests: unackedTimeout is the time for which data may stay unacknowledged; a
	// PING is sent every pingInterval; without data for pingTimeout after a PING, the connection is closed.
	unackedTimeout            = 3 * time.Second
	pingInterval, pingTimeout = 2 * time.Second, 3 * time.Second
	// tcpUnackedTimeout is unackedTimeout where the receiver may stop reading. The kernel also counts the time in which
	// a receiver does not read.
	tcpUnackedTimeout = 30 * time.Second
	// surplusIdleTimeout is how long a TCP connection to an endpoint may be without a client after the time of an
	// attempt; see tcpOptions.
	surplusIdleTimeout = time.Second
	// tcpKeepaliveTime is the idle time of a TCP connection before its peer is probed, every tcpKeepaliveInterval.
	tcpKeepaliveTime, tcpKeepaliveInterval = 15 * time.Second, 5 * time.Second

	// maxStreams is the number of concurrent requests that a client opens on an HTTP/2 connection between proxies, half
	// of what the server allows, since a server may learn later than its client that a request has ended. requestWindow
	// is the number of unread bytes of one request, responseWindow that of one response. The connection's window holds
	// those of all its requests, so a receiver that stops reading never holds up others. Callers so fill the memory of
	// a server's proxy by 4 * maxStreams * requestWindow per connection at most: as much as is unread may wait for
	// connections to the application.
	maxStreams     = 64
	requestWindow  = 256 << 10
	responseWindow = 512 << 10

	// forwardedHeaders and forwardedHeadersKB bound the headers that one proxy accepts from another. They exceed
	// Envoy's defaults of 100 headers and 60 KiB, which hold for messages of applications, by more than a proxy adds:
	// headers that only the second proxy rejects would look like a fault of the server.
	forwardedHeaders, forwardedHeadersKB = 150, 80

	// callerBuffer is the number of buffered bytes of each response to a caller, and of unread bytes on a connection of
	// HTTP/1.1 or TCP. applicationBuffer is the same for a connection to an application or to an external server.
	// Envoy's default is 1 MiB.
	callerBuffer      = 16 << 10
	applicationBuffer = 64 << 10

	// ownStreams is the number of concurrent requests on an HTTP/2 connection of the proxy's own application, and
	// ownWindow the number of unread bytes of each. Clients such as gRPC have one connection, on which further calls
	// wait.
	ownStreams = 256
	ownWindow  = 512 << 10

	// resetBurst and resetRate, per second, bound the requests that a client cancels on one connection. Above them the
	// connection is closed, which fails its other requests. Deadlines alone exceed Envoy's defaults of 1,000 and 33
	// when a server stalls.
	resetBurst, resetRate = 100_000, 10_000

	// zonesConnectionRequests is the number of requests on a connection through a zone proxy. A zone ingress balances
	// connections, so a client's requests reach other servers with the next connection.
	zonesConnectionRequests = 256

	// firstBytesTimeout is the time in which a connection must send the first bytes that tell TLS from plaintext.
	firstBytesTimeout = time.Second

	// guardedBuffer is the number of bytes in either direction between the two listeners of a guarded TCP connection. A
	// client that reads slowly costs this much beyond the buffers of its own connection. Envoy's default is 1 MiB.
	guardedBuffer = 128 << 10

	// handshakeTimeout is the timeout of a client's mutual TLS handshake at a server. The client's own proxy gives up
	// sooner: connectTimeout and zonesConnectTimeout include the handshake.
	handshakeTimeout = 5 * time.Second

	// helloTimeout is the time in which a client must send its SNI to a zone proxy.
	helloTimeout = 5 * time.Second

	// spireBackoff is the first wait before another request to a SPIRE agent. It doubles up to spireLongestBackoff.
	spireBackoff, spireLongestBackoff = 500 * time.Millisecond, 5 * time.Second

	// ejectableHosts is the percentage of a destination's endpoints that outlier detection may eject. Zone proxies may
	// all be ejected.
	ejectableHosts = 50
	// ejectedAfter is the number of consecutive local-origin failures after which outlier detection ejects an endpoint.
	// One is too few: Envoy counts a response that the application breaks off, and a response that takes too long, as
	// such a failure.
	ejectedAfter = 2
	// ejectionTime is the duration of the first ejection, zonesEjectionTime that of a zone proxy. Each further ejection
	// is longer by as much, up to longestEjection. Envoy looks for recovered endpoints every ejectionSweep. An ejected
	// endpoint gets no retry, so it has to return before another one fails.
	ejectionTime, zonesEjectionTime, longestEjection = 5 * time.Second, time.Second, 10 * time.Second
	ejectionSweep                                    = time.Second
	// checkInterval and checkTimeout are those of active health checks, which only a policy turns on. After
	// failedChecks in a row an endpoint gets no traffic, after succeededChecks it does.
	checkInterval, checkTimeout   = time.Minute, 15 * time.Second
	failedChecks, succeededChecks = 5, 1
	// zonesBackoff is the longest wait before the second attempt. It doubles up to zonesLongestBackoff.
	zonesBackoff, zonesLongestBackoff = 10 * time.Millisecond, 40 * time.Millisecond
	// localAttempts is the number of attempts of a request in the client's own zone, including the first. Further
	// attempts go to remote zones.
	localAttempts = 2
	// leastPanic is the percentage of healthy endpoints below which a zone with a failover threshold, and a destination
	// behind zone proxies, gives requests to all of its endpoints. With Envoy's default of 50, the share that stays in
	// the zone, or that one zone proxy could serve, would go to ejected ones too.
	leastPanic = 1
	// maxZoneRetries bounds the retries that a failover to many zones adds: 5 priorities.
	maxZoneRetries = 5*localAttempts - 1
)

// unservedHeader is on a response that the server's proxy sent because its application did not respond. Its value tells
// whether the application got the request, and the client's proxy decides by it which retries are safe. A 503 of the
// application itself has no such header and is forwarded unchanged.
const (
	unservedHeader = "x-weft-unserved"
	// unservedNotReached: no connection to the application was established, so it has seen nothing.
	unservedNotReached = "refused"
	// unservedReset: the application closed the connection before it responded, and may have acted.
	unservedReset = "reset"
)
