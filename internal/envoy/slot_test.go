package envoy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	sslinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/ssl/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/testwait"
	"weft/internal/traffic"
	"weft/internal/xds"
	"weft/kind"
)

// faultHeader selects the requests that get a fault.
const faultHeader = "x-fault"

// httpClient is a client with an identity, on one connection with many streams.
type httpClient struct {
	t         *testing.T
	url       string
	transport *http.Transport
	dials     atomic.Int32
}

func newHTTPClient(t *testing.T, certificate tls.Certificate, address string) *httpClient {
	c := &httpClient{t: t, url: "https://" + address + "/"}
	c.transport = &http.Transport{
		TLSClientConfig: presenting(certificate), ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(c.transport.CloseIdleConnections)
	return c
}

// response returns the status of a request, and a header of the response.
func (c *httpClient) response(header string) (status int, value string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set(header, "yes")
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		c.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header.Get(header)
}

func (c *httpClient) status() int {
	status, _ := c.response(faultHeader)
	return status
}

// abort returns a fault with a status, for requests with [faultHeader].
func abort(status uint32) *faultv3.HTTPFault {
	return &faultv3.HTTPFault{
		Abort: &faultv3.FaultAbort{
			ErrorType:  &faultv3.FaultAbort_HttpStatus{HttpStatus: status},
			Percentage: &typev3.FractionalPercent{Numerator: 100},
		},
		Headers: []*routev3.HeaderMatcher{headerIn(faultHeader, []string{"yes"})},
	}
}

// limitOf returns a rate limit of requests whose callers have a SPIFFE ID, as a tree of filters by caller.
func limitOf(id string) *matchingv3.ExtensionWithMatcher {
	limit := &httplimitv3.LocalRateLimit{
		StatPrefix:     "limit",
		TokenBucket:    &typev3.TokenBucket{MaxTokens: 1, FillInterval: duration(time.Hour)},
		FilterEnabled:  always(),
		FilterEnforced: always(),
	}
	action := &compositev3.ExecuteFilterAction{
		TypedConfig: &corev3.TypedExtensionConfig{Name: "limit", TypedConfig: toAny(limit)}}
	byID := map[string]*xdsmatcherv3.Matcher_OnMatch{id: {OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: "composite-action", TypedConfig: toAny(action)},
	}}}
	tree := &xdsmatcherv3.Matcher_MatcherTree{
		Input: &xdscorev3.TypedExtensionConfig{Name: "uri", TypedConfig: toAny(&sslinputv3.UriSanInput{})},
		TreeType: &xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap{
			ExactMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{Map: byID},
		},
	}
	return &matchingv3.ExtensionWithMatcher{
		XdsMatcher:      &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: tree}},
		ExtensionConfig: &corev3.TypedExtensionConfig{Name: "composite", TypedConfig: toAny(&compositev3.Composite{})},
	}
}

// routeOf returns an inbound's route with slots that are in use.
func routeOf(t *testing.T, in *proxy.InboundListener, slots ...string) *routev3.RouteConfiguration {
	t.Helper()
	route := message(t, localRoute(in, true, nil)).(*routev3.RouteConfiguration)
	for _, slot := range slots {
		if route.TypedPerFilterConfig == nil {
			route.TypedPerFilterConfig = map[string]*anypb.Any{}
		}
		route.TypedPerFilterConfig[slot] = toAny(&routev3.FilterConfig{Config: &anypb.Any{}})
	}
	return route
}

func routeResource(route *routev3.RouteConfiguration) *xds.Resource {
	return xds.NewResource(xds.Route, route.Name, route)
}

// echoes sends a byte on a connection and reports whether it comes back.
func echoes(conn net.Conn) bool {
	_ = conn.SetDeadline(testwait.Deadline())
	if _, err := io.WriteString(conn, "x"); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

// undrained fails the test where a change has touched a listener.
func (s *adsEnvoy) undrained() {
	s.t.Helper()
	for _, name := range []string{"listener_manager.listener_modified", "listener_manager.listener_in_place_updated",
		"listener_manager.listener_removed", "listener_manager.total_filter_chains_draining",
		"listener_manager.total_listeners_draining"} {
		if got := s.stat(name); got != 0 {
			s.t.Errorf("%s is %d, want 0", name, got)
		}
	}
}

// A change of an inbound's route, and a slot that is filled, changed and emptied, take effect on the open connection.
// No request fails, and no listener is touched.
func TestSlotsOfRequestsDrainNothing(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	east := newAuthority(t, domainEast)
	const limitedID = clientID + "-limited"
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP,
		match.Rule{Origin: "east", IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/"}})
	s := serveEnvoy(t, append(inboundResources(in), trust(east),
		certificateSecret(t, east.certificate(t, serverID)))...)
	client := newHTTPClient(t, east.certificate(t, clientID), address(in))
	limited := newHTTPClient(t, east.certificate(t, limitedID), address(in))
	if client.status() != 200 || limited.status() != 200 {
		t.Fatal("a slot without content changes a response")
	}
	// A connection carries at most 100 streams: a client with more opens another one.
	send, streams := traffic.SendOver(client.transport, http.MethodGet, client.url), make(chan struct{}, 50)
	run := traffic.Start(200, testwait.Timeout, func(ctx context.Context) (string, error) {
		streams <- struct{}{}
		defer func() { <-streams }()
		return send(ctx)
	})

	const added = "x-added"
	route := routeOf(t, in)
	route.ResponseHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: added, Value: "route"}}}
	s.change([]*xds.Resource{routeResource(route)})
	testwait.UntilTrue(t, "the changed route is used", func() bool {
		_, value := client.response(added)
		return value == "route"
	})
	amid := func() {
		begun := run.Begun()
		testwait.UntilTrue(t, "requests pass between two changes", func() bool {
			client.status()
			return run.Begun() > begun+20
		})
	}
	amid()

	fault, limit := faultSlotName(1, in.Name), rateLimitSlotName(in.Name)
	s.change([]*xds.Resource{routeResource(routeOf(t, in, fault)), extension(fault, abort(555))})
	testwait.UntilTrue(t, "the fault is injected", func() bool { return client.status() == 555 })
	amid()
	s.change([]*xds.Resource{routeResource(routeOf(t, in))}, xds.Key{Type: xds.Extension, Name: fault})
	testwait.UntilTrue(t, "the slot is empty", func() bool { return client.status() == 200 })
	amid()
	s.change([]*xds.Resource{routeResource(routeOf(t, in, fault, limit)), extension(fault, abort(556)),
		extension(limit, limitOf(limitedID))})
	testwait.UntilTrue(t, "the second fault is injected", func() bool {
		status := client.status()
		if status == 555 {
			t.Fatal("the slot still has the content that was removed")
		}
		return status == 556
	})
	testwait.UntilTrue(t, "the caller is limited", func() bool { return limited.status() == 429 })
	amid()
	s.change([]*xds.Resource{routeResource(routeOf(t, in))}, xds.Key{Type: xds.Extension, Name: fault},
		xds.Key{Type: xds.Extension, Name: limit})
	testwait.UntilTrue(t, "both slots are empty", func() bool {
		return client.status() == 200 && limited.status() == 200
	})
	amid()

	verdict, err := run.Stop().Verdict()
	if err != nil {
		t.Error(err)
	}
	t.Log(verdict)
	if client.dials.Load() != 1 || limited.dials.Load() != 1 {
		t.Errorf("%d and %d connections, want 1 each", client.dials.Load(), limited.dials.Load())
	}
	s.undrained()
}

// A TCP proxy that changes leads new connections to another server, and a limit rejects new ones. The open connection
// goes on.
func TestSlotsOfConnectionsDrainNothing(t *testing.T) {
	app, _ := listener(t)
	second, heard := listener(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "east",
		IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/"}})
	other := inboundTo(t, second, kind.TCP)
	toSecond := NewInboundParts(other.Settings(true)).localCluster("second", other)
	s := serveEnvoy(t, append(inboundResources(in), toSecond, trust(east),
		certificateSecret(t, east.certificate(t, serverID)))...)
	dial := func() net.Conn {
		conn, err := tls.Dial("tcp", address(in), presenting(east.certificate(t, clientID)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	open := dial()
	stillOpen := func(when string) {
		t.Helper()
		if before := heard.Load(); !echoes(open) || heard.Load() != before {
			t.Fatalf("%s: the open connection does not go on to its application", when)
		}
	}
	stillOpen("at first")

	slot := tcpProxySlotName(in.Name)
	s.change([]*xds.Resource{tcpProxy(slot, &tcpproxyv3.TcpProxy{
		StatPrefix: slot, ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: "second"},
	})})
	testwait.UntilTrue(t, "new connections reach the second application", func() bool {
		return echoes(dial()) && heard.Load() > 0
	})
	stillOpen("after a change of the TCP proxy")

	limit := connectionSlotName(in.Name)
	s.change([]*xds.Resource{extension(limit, &limitv3.LocalRateLimit{
		StatPrefix: "limit", TokenBucket: &typev3.TokenBucket{MaxTokens: 1, FillInterval: duration(time.Hour)},
	})})
	testwait.UntilTrue(t, "a new connection is closed", func() bool {
		conn, err := tls.Dial("tcp", address(in), presenting(east.certificate(t, clientID)))
		if err != nil {
			return true
		}
		defer conn.Close()
		return !echoes(conn)
	})
	stillOpen("after a limit of connections")
	s.change([]*xds.Resource{noConnectionLimit(in.Name)})
	testwait.UntilTrue(t, "a new connection is accepted", func() bool {
		conn, err := tls.Dial("tcp", address(in), presenting(east.certificate(t, clientID)))
		if err != nil {
			return false
		}
		defer conn.Close()
		return echoes(conn)
	})
	stillOpen("after the end of the limit")
	s.undrained()
}
