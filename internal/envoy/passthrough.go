package envoy

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filterstatevaluev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	networkinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/xds"
	"weft/kind"
)

// Connections to addresses outside the mesh pass one or two listeners. The capture listener knows the address and port
// of their destination. It forwards a connection, closes it, reads it as HTTP, or, where its first bytes decide, hands
// it to an internal listener that inspects them. So no connection whose server sends first waits for its client, and no
// connection to a service of the mesh is inspected.
//
// The filter chains of both listeners are constant. The policies are the matchers that select a chain, and a route
// configuration for the hosts of HTTP requests.

const (
	// inspectedName is the name of the internal listener, and of the cluster that leads to it.
	inspectedName = CapturePrefix + "inspected"
	// requestsName is the name of the route configuration of HTTP requests, and of their cluster.
	requestsName = CapturePrefix + "requests"

	inspectedChain = "inspected"
	forwardedChain = "forwarded"
	requestsChain  = "requests"
	// noChain is the name of no filter chain: Envoy closes the connection.
	noChain = "none"

	// portKey has the port of a connection's destination as text, for routes.
	portKey = "weft.port"
)

// outgoing returns the matcher of the capture listener at a port. Connections that it does not match are forwarded.
func outgoing(own uint32, conf *kind.PassthroughConf) *xdsmatcherv3.Matcher {
	to := chainList{{ports([]uint32{own}), unredirectedChain}}
	switch {
	case conf == nil || conf.Mode() == kind.PassthroughAll:
		return to.matcher("")
	case conf.Mode() == kind.PassthroughNone:
		return to.matcher(noChain)
	}
	closed := not(addressed(conf, func(m *kind.PassthroughMatch) bool { return !m.IsInspected() }))
	var inspected []uint32
	for i := range conf.AppendMatch {
		if m := &conf.AppendMatch[i]; m.IsInspected() {
			inspected = append(inspected, m.Port)
		}
	}
	return append(to, chosen{and(ports(requestPorts(conf)), closed), requestsChain},
		chosen{and(ports(inspected), closed), inspectedChain}, chosen{closed, noChain}).matcher("")
}

// requestPorts returns the ports at which rules about hosts alone decide, so that connections are read as HTTP without
// inspection. The internal listener closes a connection whose client sends `Connection: close` with a reset, which
// these connections do not get.
func requestPorts(conf *kind.PassthroughConf) []uint32 {
	var hosts, others []uint32
	for i := range conf.AppendMatch {
		switch m := &conf.AppendMatch[i]; {
		case m.IsHTTP() && m.Type == kind.PassthroughDomain:
			hosts = append(hosts, m.Port)
		case m.IsInspected():
			others = append(others, m.Port)
		}
	}
	return slices.DeleteFunc(hosts, func(port uint32) bool {
		return port == 0 || slices.Contains(others, port) || slices.Contains(others, 0)
	})
}

// inspectedConnections returns the internal listener of connections whose first bytes decide, with what leads to it and
// from it.
func inspectedConnections(conf *kind.PassthroughConf) []*xds.Resource {
	listener := &listenerv3.Listener{
		Name: inspectedName,
		ListenerSpecifier: &listenerv3.Listener_InternalListener{
			InternalListener: &listenerv3.Listener_InternalListenerConfig{},
		},
		TrafficDirection:              corev3.TrafficDirection_OUTBOUND,
		PerConnectionBufferLimitBytes: uint32Value(guardedBuffer),
		ListenerFilters: slices.Concat([]*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.original_dst",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: toAny(&originaldstv3.OriginalDst{})},
		}}, inspectTLS(), []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.http_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: toAny(&httpinspectorv3.HttpInspector{})},
		}}),
		FilterChainMatcher: inspection(conf),
		FilterChains: []*listenerv3.FilterChain{
			{Name: forwardedChain, Filters: []*listenerv3.Filter{passthrough()}},
			{Name: requestsChain, Filters: passedRequests()},
		},
	}
	return []*xds.Resource{
		internalCluster(inspectedName),
		xds.NewResource(xds.Listener, inspectedName, listener),
		xds.NewResource(xds.Cluster, requestsName, &clusterv3.Cluster{
			Name:                 requestsName,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
			LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
			ConnectTimeout:       duration(externalConnectTimeout),
			CircuitBreakers:      noBreakers(),
			TypedExtensionProtocolOptions: packedOptions(&httpv3.HttpProtocolOptions{
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
					UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
						Http2ProtocolOptions: streamErrors(),
					},
				},
			}),
		}),
		hostsOutside(conf),
	}
}

// toInspection returns the filters that hand a connection to the internal listener with its original destination.
func toInspection() []*listenerv3.Filter {
	const original = "envoy.filters.listener.original_dst."
	address := func(key, format string) *filterstatevaluev3.FilterStateValue {
		value := setText(original+key, format)
		value.FactoryKey, value.SharedWithUpstream = "", filterstatevaluev3.FilterStateValue_ONCE
		return value
	}
	return []*listenerv3.Filter{
		networkFilter(&filterstatev3.Config{OnNewConnection: []*filterstatevaluev3.FilterStateValue{
			address("local_ip", "%DOWNSTREAM_LOCAL_ADDRESS%"), address("remote_ip", "%DOWNSTREAM_REMOTE_ADDRESS%")}}),
		networkFilter(&tcpproxyv3.TcpProxy{
			StatPrefix:       inspectedName,
			ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: inspectedName},
			IdleTimeout:      duration(idleTimeout),
		}),
	}
}

// inspection returns the matcher of the internal listener. It closes connections that it does not match.
func inspection(conf *kind.PassthroughConf) *xdsmatcherv3.Matcher {
	if conf == nil || conf.Mode() != kind.PassthroughMatched {
		return chainList{}.matcher(noChain)
	}
	encrypted := input("transport_protocol", &networkinputv3.TransportProtocolInput{}, exactly("tls"))
	requests := and(not(encrypted), input("application_protocol", &networkinputv3.ApplicationProtocolInput{},
		exactly("'http/1.0'"), exactly("'http/1.1'"), exactly("'h2c'")))
	var hosts []uint32
	for i := range conf.AppendMatch {
		if m := &conf.AppendMatch[i]; m.IsHTTP() && m.Type == kind.PassthroughDomain {
			hosts = append(hosts, m.Port)
		}
	}
	ofTLS := func(m *kind.PassthroughMatch) bool { return m.Protocol == string(kind.TLS) }
	return chainList{
		{and(encrypted, or(addressed(conf, ofTLS), serverNames(conf))), forwardedChain},
		{and(requests, addressed(conf, (*kind.PassthroughMatch).IsHTTP)), forwardedChain},
		{and(requests, ports(hosts)), requestsChain},
	}.matcher(noChain)
}

// byPort returns the values of matches by port, in the order of the ports.
func byPort(conf *kind.PassthroughConf, of func(*kind.PassthroughMatch) bool) (all []uint32,
	values map[uint32][]string) {
	values = map[uint32][]string{}
	for i := range conf.AppendMatch {
		if m := &conf.AppendMatch[i]; of(m) {
			values[m.Port] = append(values[m.Port], m.Value)
		}
	}
	return slices.Sorted(maps.Keys(values)), values
}

// addressed returns the predicate of the destinations of matches by address.
func addressed(conf *kind.PassthroughConf, of func(*kind.PassthroughMatch) bool) *predicate {
	all, values := byPort(conf, func(m *kind.PassthroughMatch) bool {
		return m.Type != kind.PassthroughDomain && of(m)
	})
	var some []*predicate
	for _, port := range all {
		some = append(some, and(ports([]uint32{port}), within(values[port])))
	}
	return or(some...)
}

// serverNames returns the predicate of the SNIs of matches.
func serverNames(conf *kind.PassthroughConf) *predicate {
	all, values := byPort(conf, func(m *kind.PassthroughMatch) bool {
		return m.Type == kind.PassthroughDomain && m.Protocol == string(kind.TLS)
	})
	var some []*predicate
	for _, port := range all {
		var names []*xdsmatcherv3.StringMatcher
		for _, value := range values[port] {
			names = append(names, domainMatcher(value))
		}
		some = append(some, and(ports([]uint32{port}),
			input("server_name", &networkinputv3.ServerNameInput{}, names...)))
	}
	return or(some...)
}

// domainMatcher returns the matcher of a domain, of its subdomains, or of every SNI.
func domainMatcher(value string) *xdsmatcherv3.StringMatcher {
	suffix, subdomains := strings.CutPrefix(value, "*")
	switch {
	case !subdomains:
		return exactly(value)
	case suffix == "":
		return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_SafeRegex{
			SafeRegex: &xdsmatcherv3.RegexMatcher{
				EngineType: &xdsmatcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &xdsmatcherv3.RegexMatcher_GoogleRE2{}},
				Regex:      ".+",
			}}}
	}
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Suffix{Suffix: suffix}}
}

// hostsOutside returns the routes of HTTP requests by their host. Other requests get the status 503.
func hostsOutside(conf *kind.PassthroughConf) *xds.Resource {
	hosts := map[string][]uint32{}
	if conf != nil && conf.Mode() == kind.PassthroughMatched {
		for i := range conf.AppendMatch {
			if m := &conf.AppendMatch[i]; m.IsHTTP() && m.Type == kind.PassthroughDomain {
				hosts[m.Value] = append(hosts[m.Value], m.Port)
			}
		}
	}
	routes := &routev3.RouteConfiguration{Name: requestsName, IgnorePortInHostMatching: true,
		ValidateClusters: boolFalse()}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		var allowed []uint32 // Envoy chooses the most specific virtual host alone
		for other, ports := range hosts {
			if suffix, subdomains := strings.CutPrefix(other, "*"); other == host ||
				subdomains && strings.HasSuffix(host, suffix) {
				allowed = append(allowed, ports...)
			}
		}
		routes.VirtualHosts = append(routes.VirtualHosts, &routev3.VirtualHost{Name: host, Domains: []string{host},
			Routes: []*routev3.Route{forwardedRequests(allowed)}})
	}
	deny := &routev3.VirtualHost{Name: noChain, Domains: []string{"*"}}
	if last := len(routes.VirtualHosts); last > 0 && hosts["*"] != nil {
		deny = routes.VirtualHosts[0] // "*" is the first of the sorted names
	} else {
		routes.VirtualHosts = append(routes.VirtualHosts, deny)
	}
	for _, host := range routes.VirtualHosts {
		host.Routes = append(host.Routes, &routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: anyPath()},
			Action: directResponse(http.StatusServiceUnavailable, "no MeshPassthrough allows the host"),
		})
	}
	return xds.NewResource(xds.Route, requestsName, routes)
}

// forwardedRequests returns the route of requests to some ports, or to every port where one of them is 0.
func forwardedRequests(to []uint32) *routev3.Route {
	match := &routev3.RouteMatch{PathSpecifier: anyPath()}
	slices.Sort(to)
	to = slices.Compact(to)
	if !slices.Contains(to, 0) {
		var texts []string
		for _, port := range to {
			texts = append(texts, strconv.Itoa(int(port)))
		}
		match.FilterState = []*matcherv3.FilterStateMatcher{{Key: portKey,
			Matcher: &matcherv3.FilterStateMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_SafeRegex{
					SafeRegex: &matcherv3.RegexMatcher{Regex: strings.Join(texts, "|")}},
			}}}}
	}
	return &routev3.Route{Match: match, Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: requestsName}, Timeout: duration(0),
	}}}
}

// passedRequests returns the filters that read requests to hosts outside the mesh, and change them as little as Envoy
// can.
func passedRequests() []*listenerv3.Filter {
	manager := connectionManager(requestsName)
	manager.RouteSpecifier = routeNamed(requestsName)
	manager.Http2ProtocolOptions = served(ownStreams, ownWindow)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(idleTimeout)}
	manager.StreamIdleTimeout = duration(streamIdleTimeout)
	manager.GenerateRequestId = boolFalse()
	manager.HttpFilters = []*hcmv3.HttpFilter{{
		Name:       "envoy.filters.http.router",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: toAny(&routerv3.Router{SuppressEnvoyHeaders: true})},
	}}
	return []*listenerv3.Filter{
		networkFilter(&filterstatev3.Config{OnNewConnection: []*filterstatevaluev3.FilterStateValue{
			setText(portKey, "%DOWNSTREAM_LOCAL_PORT%")}}),
		networkFilter(manager),
	}
}
