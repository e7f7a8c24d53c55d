package envoy

import (
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// VIPListeners returns the listeners of redirected connections to a destination's virtual IPs, which lead to its route.
// They bind no port, so they are the same for every proxy of a proxy group: the capture listener hands them the
// connections to their address. families are those of the redirected connections of the group's machines, and the
// listeners are at the virtual IPs that these dial. Virtual IPs in without have no listener.
func VIPListeners(d *service.Destination, route *service.Route, families kind.IPFamilies,
	without proxy.VIPs) []*xds.Resource {
	var resources []*xds.Resource
	for _, address := range proxy.DialedVIPs(d.VIPs, families) {
		vip := address.String()
		if without.Has(vip) {
			continue
		}
		name := vipListenerName(vip, d.Key.Port)
		listener := outbound(name, vip, d.Key.Port, route, route.SNIs())
		listener.BindToPort = boolFalse()
		resources = append(resources, xds.NewResource(xds.Listener, name, listener))
	}
	return resources
}

// vipPrefix is the prefix of the names of listeners of virtual IPs.
const vipPrefix = "vip_"

// vipListenerName returns the name of the listener of a virtual IP. It is that of the address, which Envoy permits
// once: where another destination takes the address, Envoy replaces the listener, and no connection finds none.
func vipListenerName(vip string, port uint32) string {
	return fmt.Sprintf("%s%s_%d", vipPrefix, vip, port)
}

// ParseVIPListener returns the address of the listener of a virtual IP by its name.
func ParseVIPListener(name string) (vip string, port uint32, ok bool) {
	rest, ok := strings.CutPrefix(name, vipPrefix)
	vip, number, _ := strings.Cut(rest, "_")
	n, err := strconv.ParseUint(number, 10, 16)
	return vip, uint32(n), ok && err == nil
}

// Exclusions returns the exclusions of the listeners of virtual IPs that a proxy does not get with those of its group.
func Exclusions(excluded []proxy.Exclusion) []*xds.Resource {
	var exclusions []*xds.Resource
	for i := range excluded {
		if v := excluded[i].Virtual; v.VIP != "" {
			exclusions = append(exclusions, xds.Exclusion(xds.Listener, vipListenerName(v.VIP, v.Destination.Port)))
		}
	}
	return exclusions
}

// ExplicitListener returns the listener of an outbound: an address of the proxy's own machine that leads to the route
// of its destination. snis are the SNIs of the route's rules.
func ExplicitListener(o *proxy.ExplicitOutbound, route *service.Route, snis ...string) *xds.Resource {
	name := OutboundName(o)
	return xds.NewResource(xds.Listener, name, outbound(name, o.Address, o.Port, route, snis))
}

// OutboundName returns the name of the listener of an explicit outbound.
func OutboundName(o *proxy.ExplicitOutbound) string {
	return fmt.Sprintf("self_outbound_%s_%d", o.Address, o.Port)
}

// outbound returns a listener that leads to a route. With SNIs, each has a filter chain of its own, whose name, match
// and filters are constant: chains of other SNIs come and go without draining its connections. The first and the last
// SNI of a route replace the listener, since others do not detect TLS.
func outbound(name, address string, port uint32, to *service.Route, snis []string) *listenerv3.Listener {
	listener := &listenerv3.Listener{
		Name:             name,
		Address:          socketAddress(address, port),
		TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{outboundFilter(to)},
		}},
	}
	if len(snis) > 0 {
		detectFirstBytes(listener)
	}
	for _, sni := range snis {
		listener.FilterChains = append(listener.FilterChains, &listenerv3.FilterChain{
			Name:             sni,
			FilterChainMatch: sniMatch(sni),
			Filters:          []*listenerv3.Filter{tcpProxySlot(sniRouteName(to, sni))},
		})
	}
	return listener
}

// sniPart is between the name of a destination and an SNI in the name of a TCP proxy.
const sniPart = "_sni_"

// sniRouteName returns the name of the TCP proxy of the connections with an SNI.
func sniRouteName(to *service.Route, sni string) string {
	return to.Destination.String() + sniPart + sni
}

// SplitRouteName returns the name of the route that a TCP proxy is a part of, and the SNI of its connections; without
// an SNI, it has all connections that no other one has.
func SplitRouteName(proxy string) (route, sni string) {
	route, sni, _ = strings.Cut(proxy, sniPart)
	return route, sni
}

// outboundFilter follows a route by its name.
func outboundFilter(to *service.Route) *listenerv3.Filter {
	name := to.Destination.String()
	if !to.Protocol.IsHTTP() {
		return tcpProxySlot(name)
	}
	manager := connectionManager(name)
	manager.HttpProtocolOptions = olderHTTP(to.Destination.Service)
	manager.Http2ProtocolOptions = served(ownStreams, ownWindow)
	manager.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(idleTimeout)}
	manager.StreamIdleTimeout = duration(streamIdleTimeout)
	manager.RequestHeadersTimeout = limit(to.Effective.Timeout.Requests().RequestHeadersTimeout, 0)
	manager.RouteSpecifier = routeNamed(name)
	return networkFilter(manager)
}

// routeNamed refers to a route configuration. The listener waits for it.
func routeNamed(name string) *hcmv3.HttpConnectionManager_Rds {
	return &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: adsOrWait(), RouteConfigName: name}}
}

// SNIProxies returns the TCP proxies of the connections with the SNIs of a route. [Route] has all others.
func SNIProxies(to *service.Route) []*xds.Resource {
	var proxies []*xds.Resource
	for i := range to.Rules {
		if rule := &to.Rules[i]; rule.SNI != "" {
			name := sniRouteName(to, rule.SNI)
			proxies = append(proxies, tcpProxy(name, routedConnections(name, to, rule)))
		}
	}
	return proxies
}

// routedConnections sends connections to the backends of a rule of a route. Without a backend, it closes them.
func routedConnections(name string, to *service.Route, rule *service.RouteRule) *tcpproxyv3.TcpProxy {
	proxy := &tcpproxyv3.TcpProxy{
		StatPrefix: name, IdleTimeout: timeout(to.Effective.Timeout.IdleTimeout, idleTimeout),
		MaxConnectAttempts: uint32Value(connectAttempts), HashPolicy: hashedConnection(&to.Effective.LoadBalancing),
	}
	switch len(rule.Backends) {
	case 0:
		proxy.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: unresolvedCluster}
	case 1:
		proxy.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: rule.Backends[0].Destination.String()}
	default:
		clusters := &tcpproxyv3.TcpProxy_WeightedCluster{}
		for _, b := range rule.Backends {
			clusters.Clusters = append(clusters.Clusters,
				&tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{Name: clusterOf(&b), Weight: b.Weight})
		}
		proxy.ClusterSpecifier = &tcpproxyv3.TcpProxy_WeightedClusters{WeightedClusters: clusters}
	}
	if toManyZones(rule) {
		proxy.MaxConnectAttempts, proxy.BackoffOptions = uint32Value(zonesConnectAttempts), zonesRetryBackoff()
	}
	if retry := to.Effective.Retry.TCP; retry != nil && retry.MaxConnectAttempt != nil {
		proxy.MaxConnectAttempts = uint32Value(*retry.MaxConnectAttempt)
	}
	return proxy
}

// connectionManager has the settings of every listener that reads requests. The application's headers and WebSockets
// pass; no header of a caller changes what a proxy does.
func connectionManager(statPrefix string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:                    statPrefix,
		ServerHeaderTransformation:    hcmv3.HttpConnectionManager_PASS_THROUGH,
		UpgradeConfigs:                []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		HttpProtocolOptions:           olderHTTP(defaultHost),
		Http2ProtocolOptions:          served(2*maxStreams, requestWindow),
		EarlyHeaderMutationExtensions: callersHeaders(),
		XffNumTrustedHops:             trustedHops,
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: toAny(&routerv3.Router{})},
		}},
	}
}

// defaultHost is the host of a request of HTTP/1.0 that has none, where a listener leads to more than one destination.
const defaultHost = "localhost"

// olderHTTP returns options of HTTP/1 for callers: requests of HTTP/1.0 are accepted, with a host where they have none,
// and an Upgrade is ignored (RFC 9110, 7.8) unless it asks for a WebSocket. No other registered protocol begins with W.
func olderHTTP(host string) *corev3.Http1ProtocolOptions {
	return &corev3.Http1ProtocolOptions{
		AcceptHttp_10:         true,
		DefaultHostForHttp_10: host,
		IgnoreHttp_11Upgrade: []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
			SafeRegex: &matcherv3.RegexMatcher{Regex: "[^wW].*"},
		}}},
	}
}

// inspectTLS reads the first bytes of a connection: TLS or not, and the SNI.
func inspectTLS() []*listenerv3.ListenerFilter {
	return []*listenerv3.ListenerFilter{{
		Name:       "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: toAny(&tlsinspectorv3.TlsInspector{})},
	}}
}

// filterName returns the name of a network filter in Envoy's documentation.
func filterName(filter proto.Message) string {
	switch filter.(type) {
	case *hcmv3.HttpConnectionManager:
		return "envoy.filters.network.http_connection_manager"
	case *tcpproxyv3.TcpProxy:
		return "envoy.filters.network.tcp_proxy"
	case *sniclusterv3.SniCluster:
		return "envoy.filters.network.sni_cluster"
	case *filterstatev3.Config:
		return "envoy.filters.network.set_filter_state"
	}
	return "envoy.filters.network.direct_response"
}

func networkFilter(filter proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{
		Name:       filterName(filter),
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: toAny(filter)},
	}
}
