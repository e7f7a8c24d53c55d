package envoy

import (
	"fmt"
	"slices"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	celfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"weft/internal/proxy"
	"weft/internal/xds"
)

// InboundParts has what inbound listeners with equal settings have in common, encoded once for all their proxies.
type InboundParts struct {
	of    proxy.InboundSettings
	inUse []slotFilters
	// manager is an encoded connection manager without the fields that [managedBy] adds, and plaintextManager that of
	// connections without TLS. Both are empty for TCP.
	manager, plaintextManager []byte
	options                   map[string]*anypb.Any // of the cluster of the application
	limit                     *xds.Resource         // the content of the slot for connections
	contents                  []*xds.Resource       // of the slots for requests
}

// NewInboundParts returns the parts of the listeners with the settings.
func NewInboundParts(of proxy.InboundSettings) *InboundParts {
	t := proxy.ReceivedOf(of.Confs).Timeout.All()
	p := &InboundParts{
		of: of, options: applicationOptions(of.Protocol, &t, timeout(t.ConnectionTimeout, localConnectTimeout)),
		limit: connectionLimit(of.Name, of.Confs),
	}
	if of.Protocol.IsHTTP() {
		p.inUse = filtersInUse(of.Name, of.Confs, of.Secured)
		p.manager, p.plaintextManager = inboundManager(of, of.Secured), inboundManager(of, false)
		p.contents = append([]*xds.Resource{router(of.Name, &routerv3.Router{})}, contents(p.inUse, true)...)
	}
	return p
}

// Inbound returns a listener of a proxy, its route or TCP proxy, the contents of its slots, the cluster of its
// application and, where the proxy is secured, the permissions of its callers. A secured listener requires mutual TLS,
// and accepts callers that a rule allows and no rule denies. Another listener accepts plaintext from every client. Its
// settings must be those of the parts.
func (p *InboundParts) Inbound(l *proxy.InboundListener) []*xds.Resource {
	name, secured := InboundName(l.Address, l.Port), p.of.Secured
	chain := &listenerv3.FilterChain{Filters: p.filters(l, secured)}
	if secured {
		requireTLS(chain, l.Protocol, l.Source)
	}
	listener := &listenerv3.Listener{
		Name:                          name,
		Address:                       socketAddress(l.Address, l.Port),
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: uint32Value(callerBuffer),
		FilterChains:                  []*listenerv3.FilterChain{chain},
	}
	if secured {
		detectTLS(listener)
	}
	if secured && l.AlsoPlaintext {
		listener.FilterChains = append(listener.FilterChains, &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"},
			Filters:          p.filters(l, false),
		})
	}
	if !l.Bind {
		listener.BindToPort = boolFalse()
	}
	resources := []*xds.Resource{p.localCluster(name, l), xds.NewResource(xds.Listener, name, listener), p.limit}
	if l.Protocol.IsHTTP() {
		resources = append(resources, localRoute(l, secured, p.inUse))
		resources = append(resources, p.contents...)
	} else {
		resources = append(resources, toApplication(name, l))
	}
	if secured {
		resources = append(resources, permissions(l.Guard())...)
	}
	if secured && !l.Protocol.IsHTTP() {
		resources = append(resources, allowedConnections(l.Guard(), l.Confs)...)
	}
	return resources
}

// detectTLS detects TLS by the first bytes of a connection, and limits the listener's filter chain to TLS. A connection
// on which the server speaks first counts as plaintext. The chain for plaintext comes and goes without another change,
// so TLS connections are not drained.
func detectTLS(l *listenerv3.Listener) {
	l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "tls"}
	detectFirstBytes(l)
}

// detectFirstBytes has a listener inspect the first bytes of a connection, and take one without any for plaintext.
func detectFirstBytes(l *listenerv3.Listener) {
	l.ListenerFilters = inspectTLS()
	l.ListenerFiltersTimeout = duration(firstBytesTimeout)
	l.ContinueOnListenerFiltersTimeout = true
}

// filters returns the filters of connections with TLS where secured is set, and of plaintext connections otherwise.
func (p *InboundParts) filters(l *proxy.InboundListener, secured bool) []*listenerv3.Filter {
	switch {
	case l.Protocol.IsHTTP():
		manager := p.plaintextManager
		if secured {
			manager = p.manager
		}
		return []*listenerv3.Filter{connectionSlot(l.Name), managedBy(manager, InboundName(l.Address, l.Port))}
	case secured:
		return guardedConnections(l.Guard())
	}
	return []*listenerv3.Filter{connectionSlot(l.Name), tcpProxySlot(tcpProxySlotName(l.Name))}
}

// toApplication returns the TCP proxy that forwards connections to the application of an inbound.
func toApplication(name string, l *proxy.InboundListener) *xds.Resource {
	return tcpProxy(tcpProxySlotName(l.Name), &tcpproxyv3.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      servedIdleTimeout(l.Confs),
	})
}

// inboundManager returns the encoded connection manager of an inbound, without the fields that [managedBy] adds. It
// writes the caller's identity into x-forwarded-client-cert; a value from the caller never reaches the application.
func inboundManager(of proxy.InboundSettings, secured bool) []byte {
	manager := connectionManager("")
	boundServed(manager, of.Confs)
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.HttpFilters = requestSlots(of.Name)
	manager.LocalReplyConfig = markUnserved()
	if secured {
		manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Uri: true}
		guardedRequests(of.Mesh, of.Name, manager)
	}
	return toAny(manager).Value
}

// managedBy returns the filter of a connection manager with the name of an inbound: its stat prefix and its route.
// Encoded messages one after the other are the encoded sum of their fields, and this order is that of the whole
// message.
func managedBy(manager []byte, name string) *listenerv3.Filter {
	filter := networkFilter(&hcmv3.HttpConnectionManager{StatPrefix: name})
	route := toAny(&hcmv3.HttpConnectionManager{RouteSpecifier: routeNamed(name)})
	config := filter.GetTypedConfig()
	config.Value = slices.Concat(config.Value, manager, route.Value)
	return filter
}

// boundServed bounds an HTTP connection at the server: its idle time, the time for the headers of a request and their
// size, and its age, since the caller proved its SPIFFE ID when the connection began. The caller's own proxy ends the
// connection earlier.
func boundServed(manager *hcmv3.HttpConnectionManager, confs proxy.Confs) {
	t := proxy.ReceivedOf(confs).Timeout.All()
	manager.RequestHeadersTimeout = limit(t.Requests().RequestHeadersTimeout, 0)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{
		IdleTimeout:           timeout(t.IdleTimeout, inboundIdleTimeout),
		MaxConnectionDuration: duration(connectionLife + time.Minute),
		MaxHeadersCount:       uint32Value(forwardedHeaders),
	}
	manager.MaxRequestHeadersKb = uint32Value(forwardedHeadersKB)
}

// servedIdleTimeout returns the time after which a TCP connection without data is closed.
func servedIdleTimeout(confs proxy.Confs) *durationpb.Duration {
	return timeout(proxy.ReceivedOf(confs).Timeout.All().IdleTimeout, inboundIdleTimeout)
}

// markUnserved marks the responses that this proxy sends in place of an application that does not respond.
func markUnserved() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{
		markFlag("UF", unservedNotReached), // upstream connection failure
		// No such cluster: the inbound was removed, and its listener still gets requests on its connections.
		markFlag("NC", unservedNotReached),
		markFlag("UC", unservedReset), // upstream connection termination
		// No healthy upstream: a policy has ejected the application.
		markFlag("UH", unservedNotReached),
		markOverload(),
		// The application of HTTP/2 has not begun the request, whose flag is that of every reset, or whose body is too
		// long for a retry of this proxy.
		markDetails("response.code_details.contains('{remote_refused_stream_reset')"),
		markDetails("response.code_details == 'request_payload_exceeded_retry_buffer_limit'"),
	}}
}

func markFlag(flag, value string) *hcmv3.ResponseMapper {
	return mark(&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{flag}},
	}}, value)
}

// markOverload marks the responses of a proxy that rejects requests because its memory is short. The overload manager
// sets no response flag.
func markOverload() *hcmv3.ResponseMapper { return markDetails("response.code_details == 'overload'") }

// markDetails marks the responses for which an expression about their details holds: no application has begun the
// requests.
func markDetails(expression string) *hcmv3.ResponseMapper {
	return mark(&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: toAny(&celfilterv3.ExpressionFilter{Expression: expression}),
			},
		},
	}}, unservedNotReached)
}

func mark(filter *accesslogv3.AccessLogFilter, value string) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter: filter,
		HeadersToAdd: []*corev3.HeaderValueOption{{
			Header: &corev3.HeaderValue{Key: unservedHeader, Value: value},
		}},
	}
}

// InboundName returns the name of the listener of an inbound.
func InboundName(address string, port uint32) string {
	return fmt.Sprintf("self_inbound_%s_%d", address, port)
}
