package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// Egress returns the listener at which a zone egress accepts connections to external services, and the contents of the
// slots of its chain to remote zones. Each service has a
// filter chain, since it has its own permissions, protocol and servers. One more chain forwards connections to remote
// zones without decrypting them. All others terminate mutual TLS with the proxy's certificate. A connection with an
// unknown SNI is closed. A chain does not depend on the permissions or on the service's servers, and chains of other
// services come and go without draining its connections.
func Egress(l *proxy.EgressListener, from identity.Source, chains []proxy.EgressChain) []*xds.Resource {
	place := egressPlace(l.Address, l.Port)
	name := EgressName(l.Address, l.Port)
	listener := &listenerv3.Listener{
		Name:                          name,
		Address:                       socketAddress(l.Address, l.Port),
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: uint32Value(callerBuffer),
		ListenerFilters:               inspectTLS(),
		ListenerFiltersTimeout:        duration(helloTimeout),
		FilterChains:                  []*listenerv3.FilterChain{readyChain(from), crossZoneChain(place)},
	}
	for i := range chains {
		listener.FilterChains = append(listener.FilterChains, egressServiceChain(&chains[i]))
	}
	return append([]*xds.Resource{xds.NewResource(xds.Listener, name, listener)}, crossZoneContents(place)...)
}

// EgressName returns the name of the listener of a zone egress.
func EgressName(address string, port uint32) string { return "self_" + egressPlace(address, port) }

func egressPlace(address string, port uint32) string {
	return fmt.Sprintf("egress_%s_%d", address, port)
}

// ChainResources returns the resources that a filter chain of a zone egress refers to: its permissions, the contents of
// its slots and, for TCP, its internal listener.
func ChainResources(c *proxy.EgressChain) []*xds.Resource {
	g := c.Guard()
	resources := append(permissions(g), connectionLimit(g.Place, c.Confs))
	if c.Protocol.IsHTTP() {
		resources = append(resources, contents(filtersInUse(g.Place, c.Confs, true), false)...)
		return append(resources, router(g.Place, &routerv3.Router{SuppressEnvoyHeaders: true}))
	}
	resources = append(resources, allowedConnections(g, c.Confs)...)
	return append(resources, tcpProxy(tcpProxySlotName(g.Place), &tcpproxyv3.TcpProxy{
		StatPrefix:         c.Key.String(),
		ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: externalName(c.Key)},
		IdleTimeout:        servedIdleTimeout(c.Confs),
		MaxConnectAttempts: uint32Value(connectAttempts),
	}))
}

// readyChain completes a TLS handshake and serves nothing after it. A filter that closes the connection would do so
// before the handshake; the HTTP filter waits for the first request.
func readyChain(from identity.Source) *listenerv3.FilterChain {
	manager := connectionManager(proxy.ReadyName)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(helloTimeout)}
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{
		RouteConfig: &routev3.RouteConfiguration{Name: proxy.ReadyName}}
	chain := &listenerv3.FilterChain{
		Name:             proxy.ReadyName,
		FilterChainMatch: sniMatch(proxy.ReadyName),
		Filters:          []*listenerv3.Filter{networkFilter(manager)},
	}
	requireTLS(chain, kind.TCP, from)
	return chain
}

func egressServiceChain(c *proxy.EgressChain) *listenerv3.FilterChain {
	chain := &listenerv3.FilterChain{
		Name:             c.Key.String(),
		FilterChainMatch: sniMatch(c.SNIs...),
	}
	requireTLS(chain, c.Protocol, c.Source)
	if c.Protocol.IsHTTP() {
		chain.Filters = []*listenerv3.Filter{connectionSlot(c.Guard().Place), networkFilter(egressManager(c))}
	} else {
		chain.Filters = guardedConnections(c.Guard())
	}
	return chain
}

// egressManager reads the requests to an external service. It removes the caller's identity and the headers between the
// mesh's proxies.
func egressManager(c *proxy.EgressChain) *hcmv3.HttpConnectionManager {
	manager, guard := connectionManager(c.Key.String()), c.Guard()
	boundServed(manager, c.Confs)
	manager.StreamIdleTimeout = duration(inboundStreamIdleTimeout)
	manager.RouteSpecifier = routeNamed(externalName(c.Key))
	manager.HttpFilters = requestSlots(guard.Place)
	manager.LocalReplyConfig = markRemovedService()
	guardedRequests(guard.Mesh, guard.Place, manager)
	return manager
}

// markRemovedService marks the responses of an egress that has removed the service, which another egress may still
// have. An unreachable external server is not marked: every egress would dial the same servers.
func markRemovedService() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{markFlag("NC", unservedNotReached), markOverload()}}
}

// externalName returns the name of the resources by which an egress reaches an external service, other than its filter
// chain.
func externalName(key service.DestinationKey) string {
	return key.WithLocality(service.ExternalLocality).String()
}
