package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// Egress is a listener at which a zone egress takes connections to external services: a filter chain for each, since
// each has permissions, a protocol and servers of its own, and one for all that goes to other zones. It ends mutual TLS
// with the proxy's leaf, but passes on what goes to other zones; a connection that names nothing of these is closed. A
// chain stays as it is whatever becomes of the permissions and of how the
// service is dialled, and the chains of other services that come and go leave its connections alone.
func Egress(l *graph.EgressListener, from graph.Source, chains []graph.EgressChain) *xds.Resource {
	name := fmt.Sprintf("self_egress_%s_%d", l.Address, l.Port)
	listener := &listenerv3.Listener{
		Name:                   name,
		Address:                socketAddress(l.Address, l.Port),
		TrafficDirection:       corev3.TrafficDirection_INBOUND,
		ListenerFilters:        inspectTLS(),
		ListenerFiltersTimeout: duration(helloTimeout),
		FilterChains:           []*listenerv3.FilterChain{readyChain(from), abroadChain(name)},
	}
	for i := range chains {
		listener.FilterChains = append(listener.FilterChains, exitChain(&chains[i]))
	}
	return xds.NewResource(xds.Listener, name, listener)
}

// ChainResources are what the chain of a zone egress needs beside itself: its permissions and, where it takes TCP
// connections, the internal listener behind it.
func ChainResources(c *graph.EgressChain) []*xds.Resource {
	resources := permissions(c.Guard())
	if c.Protocol.IsHTTP() {
		return resources
	}
	return append(resources, allowedConnections(c.Guard(), &tcpproxyv3.TcpProxy{
		StatPrefix:         c.Key.String(),
		ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: outsideName(c.Key)},
		IdleTimeout:        duration(inboundIdleTimeout),
		MaxConnectAttempts: number(connectAttempts),
	})...)
}

// readyChain answers a handshake, and nothing that comes after it. Filters that close a connection do so before its
// handshake; one that reads requests waits for the first.
func readyChain(from graph.Source) *listenerv3.FilterChain {
	manager := connectionManager(graph.ReadyName)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(helloTimeout)}
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: graph.ReadyName}}
	chain := &listenerv3.FilterChain{
		Name:             graph.ReadyName,
		FilterChainMatch: whoNames(graph.ReadyName),
		Filters:          []*listenerv3.Filter{networkFilter(manager)},
	}
	demandTLS(chain, kind.TCP, from)
	return chain
}

func exitChain(c *graph.EgressChain) *listenerv3.FilterChain {
	chain := &listenerv3.FilterChain{
		Name:             c.Key.String(),
		FilterChainMatch: whoNames(c.SNIs...),
	}
	demandTLS(chain, c.Protocol, c.Source)
	if c.Protocol.IsHTTP() {
		chain.Filters = []*listenerv3.Filter{networkFilter(exitManager(c))}
	} else {
		chain.Filters = guardedConnections(c.Guard())
	}
	return chain
}

// exitManager reads the requests to an external service. Who calls is not told to the outside, nor what the mesh's
// proxies tell each other.
func exitManager(c *graph.EgressChain) *hcmv3.HttpConnectionManager {
	manager := connectionManager(c.Key.String())
	manager.CommonHttpProtocolOptions = servedConnection()
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
		ConfigSource:    adsOrWait(),
		RouteConfigName: outsideName(c.Key),
	}}
	manager.HttpFilters[0].ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{SuppressEnvoyHeaders: true})}
	manager.LocalReplyConfig = tellGone()
	guardedRequests(c.Guard(), manager)
	return manager
}

// tellGone marks the answers of an egress that has let go of the service, which another one may have still. That
// the outside can't be reached is not marked: every egress would have tried what this one has.
func tellGone() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{markFlag("NC", unservedRefused), markOverload()}}
}

// outsideName is the name of what an egress has of an external service beyond its own chain.
func outsideName(key graph.DestinationKey) string { return key.On(graph.ExternalLocality).String() }
