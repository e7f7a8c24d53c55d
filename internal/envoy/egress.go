package envoy

import (
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

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
	listener := &listeners.Listener{
		Name:                          name,
		Address:                       socketAddress(l.Address, l.Port),
		TrafficDirection:              core.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: number(callerBuffer),
		ListenerFilters:               inspectTLS(),
		ListenerFiltersTimeout:        duration(helloTimeout),
		FilterChains:                  []*listeners.FilterChain{readyChain(from), abroadChain(name)},
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
	return append(resources, allowedConnections(c.Guard(), &tcpproxy.TcpProxy{
		StatPrefix:         c.Key.String(),
		ClusterSpecifier:   &tcpproxy.TcpProxy_Cluster{Cluster: outsideName(c.Key)},
		IdleTimeout:        duration(inboundIdleTimeout),
		MaxConnectAttempts: number(connectAttempts),
	})...)
}

// readyChain answers a handshake, and nothing that comes after it. Filters that close a connection do so before its
// handshake; one that reads requests waits for the first.
func readyChain(from graph.Source) *listeners.FilterChain {
	manager := connectionManager(graph.ReadyName)
	manager.CommonHttpProtocolOptions = &core.HttpProtocolOptions{IdleTimeout: duration(helloTimeout)}
	manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &routes.RouteConfiguration{Name: graph.ReadyName}}
	chain := &listeners.FilterChain{
		Name:             graph.ReadyName,
		FilterChainMatch: whoNames(graph.ReadyName),
		Filters:          []*listeners.Filter{networkFilter(manager)},
	}
	demandTLS(chain, kind.TCP, from)
	return chain
}

func exitChain(c *graph.EgressChain) *listeners.FilterChain {
	chain := &listeners.FilterChain{
		Name:             c.Key.String(),
		FilterChainMatch: whoNames(c.SNIs...),
	}
	demandTLS(chain, c.Protocol, c.Source)
	if c.Protocol.IsHTTP() {
		chain.Filters = []*listeners.Filter{networkFilter(exitManager(c))}
	} else {
		chain.Filters = guardedConnections(c.Guard())
	}
	return chain
}

// exitManager reads the requests to an external service. Who calls is not told to the outside, nor what the mesh's
// proxies tell each other.
func exitManager(c *graph.EgressChain) *hcm.HttpConnectionManager {
	manager := connectionManager(c.Key.String())
	manager.CommonHttpProtocolOptions = servedConnection()
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{
		ConfigSource:    adsOrWait(),
		RouteConfigName: outsideName(c.Key),
	}}
	manager.HttpFilters[0].ConfigType = &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{SuppressEnvoyHeaders: true})}
	manager.LocalReplyConfig = tellGone()
	guardedRequests(c.Guard(), manager)
	return manager
}

// tellGone marks the answers of an egress that has let go of the service, which another one may have still. That
// the outside can't be reached is not marked: every egress would have tried what this one has.
func tellGone() *hcm.LocalReplyConfig {
	return &hcm.LocalReplyConfig{Mappers: []*hcm.ResponseMapper{markFlag("NC", unservedRefused), markOverload()}}
}

// outsideName is the name of what an egress has of an external service beyond its own chain.
func outsideName(key graph.DestinationKey) string { return key.On(graph.ExternalLocality).String() }
