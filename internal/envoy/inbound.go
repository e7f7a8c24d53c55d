package envoy

import (
	"fmt"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	celfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
	"weft/internal/xds"
)

// Inbound is one listener of a proxy with the application behind it and, where the proxy is secured, the
// permissions of its callers. A secured listener demands mutual TLS, and lets in whom a rule allows and
// none denies; a plain one takes everybody.
func Inbound(l *graph.InboundListener, secured bool) []*xds.Resource {
	name := InboundName(l.Address, l.Port)
	chain := &listenerv3.FilterChain{Filters: inboundFilters(name, l, secured)}
	if secured {
		demandTLS(chain, l.Protocol, l.Source)
	}
	listener := &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(l.Address, l.Port),
		TrafficDirection: corev3.TrafficDirection_INBOUND,
		FilterChains:     []*listenerv3.FilterChain{chain},
	}
	if secured && (l.AlsoPlaintext || l.ModeMayChange) {
		tellTLS(listener)
	}
	if secured && l.AlsoPlaintext {
		listener.FilterChains = append(listener.FilterChains, &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"},
			Filters:          inboundFilters(name, l, false),
		})
	}
	if !l.Bind {
		listener.BindToPort = no()
	}
	resources := []*xds.Resource{
		localCluster(name, l),
		xds.NewResource(xds.Listener, name, listener),
	}
	if secured {
		resources = append(resources, permissions(l.Guard())...)
	}
	if secured && !l.Protocol.IsHTTP() {
		resources = append(resources, allowedConnections(l.Guard(), toApplication(name))...)
	}
	return resources
}

// tellTLS makes a listener tell connections with TLS by their first bytes, and narrows its chain to them. One on
// which the server speaks first is taken for plain. A chain for these comes and goes without a change of anything
// else, so that connections with TLS are not drained.
func tellTLS(l *listenerv3.Listener) {
	l.FilterChains[0].FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "tls"}
	l.ListenerFilters = inspectTLS()
	l.ListenerFiltersTimeout = duration(firstBytesTimeout)
	l.ContinueOnListenerFiltersTimeout = true
}

func inboundFilters(name string, l *graph.InboundListener, secured bool) []*listenerv3.Filter {
	if l.Protocol.IsHTTP() {
		return []*listenerv3.Filter{networkFilter(inboundManager(name, l, secured))}
	}
	if secured {
		return guardedConnections(l.Guard())
	}
	return []*listenerv3.Filter{networkFilter(toApplication(name))}
}

// toApplication hands connections to the application of an inbound.
func toApplication(name string) *tcpproxyv3.TcpProxy {
	return &tcpproxyv3.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      duration(inboundIdleTimeout),
	}
}

// inboundManager reads an inbound's requests. Who the caller is stands in x-forwarded-client-cert, which
// is this proxy's word alone: what a caller writes there never reaches the application.
func inboundManager(name string, l *graph.InboundListener, secured bool) *hcmv3.HttpConnectionManager {
	manager := connectionManager(name)
	manager.CommonHttpProtocolOptions = servedConnection()
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: localRoute(name)}
	manager.LocalReplyConfig = tellUnserved()
	if secured {
		manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Uri: true}
		guardedRequests(l.Guard(), manager)
	}
	return manager
}

// servedConnection bounds a connection of requests at the server: when it is idle, and in all, since the caller proved
// its SPIFFE ID when the connection began. The caller's own proxy ends the connection before.
func servedConnection() *corev3.HttpProtocolOptions {
	return &corev3.HttpProtocolOptions{
		IdleTimeout:           duration(inboundIdleTimeout),
		MaxConnectionDuration: duration(connectionLife + time.Minute),
	}
}

// tellUnserved marks the answers that this proxy gives in place of an application that is gone.
func tellUnserved() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{
		markFlag("UF", unservedRefused), // upstream connection failure
		// No such cluster: the inbound is gone, and its listener finishes what its connections still send.
		markFlag("NC", unservedRefused),
		markFlag("UC", unservedReset), // upstream connection termination
		markOverload(),
	}}
}

func markFlag(flag, value string) *hcmv3.ResponseMapper {
	return mark(&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{flag}},
	}}, value)
}

// markOverload marks the responses of a proxy that takes no request because its memory is short: the overload manager
// sets no response flag.
func markOverload() *hcmv3.ResponseMapper {
	return mark(&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: pack(&celfilterv3.ExpressionFilter{Expression: "response.code_details == 'overload'"}),
			},
		},
	}}, unservedRefused)
}

func mark(filter *accesslogv3.AccessLogFilter, value string) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter: filter,
		HeadersToAdd: []*corev3.HeaderValueOption{{
			Header: &corev3.HeaderValue{Key: unservedHeader, Value: value},
		}},
	}
}

// InboundName is the name of the listener of an inbound.
func InboundName(address string, port uint32) string {
	return fmt.Sprintf("self_inbound_%s_%d", address, port)
}
