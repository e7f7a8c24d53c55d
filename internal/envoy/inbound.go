package envoy

import (
	"fmt"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	celfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
	"weft/internal/xds"
)

// Inbound is one listener of a proxy with the application behind it and, where the proxy is secured, the
// permissions of its callers. A secured listener demands mutual TLS, and lets in whom a rule allows and
// none denies; a plain one takes everybody.
func Inbound(l *graph.InboundListener, secured bool) []*xds.Resource {
	name := InboundName(l.Address, l.Port)
	chain := &listeners.FilterChain{Filters: inboundFilters(name, l, secured)}
	if secured {
		demandTLS(chain, l.Protocol, l.Source)
	}
	listener := &listeners.Listener{
		Name:                          name,
		Address:                       socketAddress(l.Address, l.Port),
		TrafficDirection:              core.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: number(callerBuffer),
		FilterChains:                  []*listeners.FilterChain{chain},
	}
	if secured && (l.AlsoPlaintext || l.ModeMayChange) {
		tellTLS(listener)
	}
	if secured && l.AlsoPlaintext {
		listener.FilterChains = append(listener.FilterChains, &listeners.FilterChain{
			FilterChainMatch: &listeners.FilterChainMatch{TransportProtocol: "raw_buffer"},
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
func tellTLS(l *listeners.Listener) {
	l.FilterChains[0].FilterChainMatch = &listeners.FilterChainMatch{TransportProtocol: "tls"}
	l.ListenerFilters = inspectTLS()
	l.ListenerFiltersTimeout = duration(firstBytesTimeout)
	l.ContinueOnListenerFiltersTimeout = true
}

func inboundFilters(name string, l *graph.InboundListener, secured bool) []*listeners.Filter {
	if l.Protocol.IsHTTP() {
		return []*listeners.Filter{networkFilter(inboundManager(name, l, secured))}
	}
	if secured {
		return guardedConnections(l.Guard())
	}
	return []*listeners.Filter{networkFilter(toApplication(name))}
}

// toApplication hands connections to the application of an inbound.
func toApplication(name string) *tcpproxy.TcpProxy {
	return &tcpproxy.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcpproxy.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      duration(inboundIdleTimeout),
	}
}

// inboundManager reads an inbound's requests. Who the caller is stands in x-forwarded-client-cert, which
// is this proxy's word alone: what a caller writes there never reaches the application.
func inboundManager(name string, l *graph.InboundListener, secured bool) *hcm.HttpConnectionManager {
	manager := connectionManager(name)
	manager.CommonHttpProtocolOptions = servedConnection()
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: localRoute(name)}
	manager.LocalReplyConfig = tellUnserved()
	if secured {
		manager.ForwardClientCertDetails = hcm.HttpConnectionManager_SANITIZE_SET
		manager.SetCurrentClientCertDetails = &hcm.HttpConnectionManager_SetCurrentClientCertDetails{Uri: true}
		guardedRequests(l.Guard(), manager)
	}
	return manager
}

// servedConnection bounds a connection of requests at the server: when it is idle, and in all, since the caller proved
// its SPIFFE ID when the connection began. The caller's own proxy ends the connection before.
func servedConnection() *core.HttpProtocolOptions {
	return &core.HttpProtocolOptions{
		IdleTimeout:           duration(inboundIdleTimeout),
		MaxConnectionDuration: duration(connectionLife + time.Minute),
	}
}

// tellUnserved marks the answers that this proxy gives in place of an application that is gone.
func tellUnserved() *hcm.LocalReplyConfig {
	return &hcm.LocalReplyConfig{Mappers: []*hcm.ResponseMapper{
		markFlag("UF", unservedRefused), // upstream connection failure
		// No such cluster: the inbound is gone, and its listener finishes what its connections still send.
		markFlag("NC", unservedRefused),
		markFlag("UC", unservedReset), // upstream connection termination
		markOverload(),
	}}
}

func markFlag(flag, value string) *hcm.ResponseMapper {
	return mark(&accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslog.ResponseFlagFilter{Flags: []string{flag}},
	}}, value)
}

// markOverload marks the responses of a proxy that takes no request because its memory is short: the overload manager
// sets no response flag.
func markOverload() *hcm.ResponseMapper {
	return mark(&accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslog.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslog.ExtensionFilter_TypedConfig{
				TypedConfig: pack(&celfilter.ExpressionFilter{Expression: "response.code_details == 'overload'"}),
			},
		},
	}}, unservedRefused)
}

func mark(filter *accesslog.AccessLogFilter, value string) *hcm.ResponseMapper {
	return &hcm.ResponseMapper{
		Filter: filter,
		HeadersToAdd: []*core.HeaderValueOption{{
			Header: &core.HeaderValue{Key: unservedHeader, Value: value},
		}},
	}
}

// InboundName is the name of the listener of an inbound.
func InboundName(address string, port uint32) string {
	return fmt.Sprintf("self_inbound_%s_%d", address, port)
}
