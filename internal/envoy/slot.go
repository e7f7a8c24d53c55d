package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// A slot is a filter of a filter chain whose content comes as an extension config. The chains of a proxy have all slots
// from the beginning, so a policy fills a slot and empties it without a change of the chain.
//
// The slots for rate limits and faults are disabled in the chain. The route enables those that are in use, with an
// entry of their name in typed_per_filter_config, so a request passes none of the others. Their content exists only
// while they are in use. Envoy does not wait for it: the default, which does nothing, stands in. Every other slot
// always has content, and Envoy waits for it.

// Types of the content of slots.
const (
	httpRBACType    = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	httpLimitType   = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
	faultType       = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
	routerType      = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	matchedType     = "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher"
	filterStateType = "type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config"
	limitType       = "type.googleapis.com/envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit"
	tcpProxyType    = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
)

// connectionSlotName and the next functions return the names of the slots of a place: an inbound by its port, a filter
// chain of a zone egress, or a listener of a zone ingress. They are equal for all proxies that listen on a port, so
// proxies share the bytes of equal contents.
func connectionSlotName(place string) string { return "self_connection_limit_" + place }

func rateLimitSlotName(place string) string { return "self_rate_limit_" + place }

func faultSlotName(i int, place string) string { return fmt.Sprintf("self_fault_%d_%s", i, place) }

func routerSlotName(place string) string { return "self_router_" + place }

func tcpProxySlotName(place string) string { return "self_tcp_proxy_" + place }

// ListenersOf returns the addresses of the listeners of a proxy by the names of the resources that they are, or cannot
// serve without, since no other refers to these. Listeners are those at which other proxies connect.
func ListenersOf(p *proxy.Proxy) map[string]string {
	of := map[string]string{}
	add := func(address string, port uint32, parts []string) {
		for _, name := range parts {
			of[name] = kind.HostPort(address, port)
		}
	}
	for i := range p.Listeners {
		l := &p.Listeners[i]
		add(l.Address, l.Port, partsOf(InboundName(l.Address, l.Port), l.Name))
	}
	for _, l := range p.Ingresses {
		add(l.Address, l.Port, partsOf(IngressName(l.Address, l.Port), ingressPlace(l.Address, l.Port)))
	}
	for _, l := range p.Egresses {
		add(l.Address, l.Port, partsOf(EgressName(l.Address, l.Port), egressPlace(l.Address, l.Port)))
	}
	return of
}

// partsOf returns the name of a listener, which is that of its route and its cluster too, and those of the contents of
// its slots for which Envoy waits.
func partsOf(listener, place string) []string {
	return []string{listener, connectionSlotName(place), routerSlotName(place), tcpProxySlotName(place),
		decisionName(place), denyName(place), allowName(place), guardedName(proxy.Guard{Place: place})}
}

// requestSlots returns the HTTP filters after the permissions: a denied request takes no token of a rate limit, and a
// limited request gets no fault.
func requestSlots(place string) []*hcmv3.HttpFilter {
	slots := []*hcmv3.HttpFilter{
		disabledSlot(rateLimitSlotName(place), &httplimitv3.LocalRateLimit{StatPrefix: "http"}, httpLimitType)}
	for i := range kind.MaxFaults {
		slots = append(slots, disabledSlot(faultSlotName(i+1, place), &faultv3.HTTPFault{}, faultType))
	}
	return append(slots, discoveredHTTPFilter(routerSlotName(place), routerType))
}

// disabledSlot takes a filter of a type, or a tree of filters by caller.
func disabledSlot(name string, otherwise proto.Message, typeURL string) *hcmv3.HttpFilter {
	slot := discoveredHTTPFilter(name, typeURL, matchedType)
	source := slot.GetConfigDiscovery()
	source.DefaultConfig, source.ApplyDefaultConfigWithoutWarming = toAny(otherwise), true
	slot.Disabled = true
	return slot
}

// router returns the content of the router's slot.
func router(place string, config *routerv3.Router) *xds.Resource {
	return extension(routerSlotName(place), config)
}

// connectionSlot is the first filter of a chain. It takes a limit of the rate of connections.
func connectionSlot(place string) *listenerv3.Filter {
	return discoveredNetworkFilter(connectionSlotName(place), filterStateType, limitType)
}

// noConnectionLimit returns the content of a connection slot without a limit: a filter that sets nothing. See
// [connectionLimit].
func noConnectionLimit(place string) *xds.Resource {
	return extension(connectionSlotName(place), &filterstatev3.Config{})
}

// tcpProxySlot is the last filter of a chain. A change of its content concerns new connections.
func tcpProxySlot(name string) *listenerv3.Filter { return discoveredNetworkFilter(name, tcpProxyType) }

func tcpProxy(name string, config *tcpproxyv3.TcpProxy) *xds.Resource { return extension(name, config) }

func extension(name string, filter proto.Message) *xds.Resource {
	return xds.NewResource(xds.Extension, name, &corev3.TypedExtensionConfig{Name: name, TypedConfig: toAny(filter)})
}

// discoveredNetworkFilter and discoveredHTTPFilter come as an extension config of their name. Without it, no connection
// and no request passes.
func discoveredNetworkFilter(name string, typeURLs ...string) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: discovered(typeURLs),
	}}
}

func discoveredHTTPFilter(name string, typeURLs ...string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: discovered(typeURLs),
	}}
}

func discovered(typeURLs []string) *corev3.ExtensionConfigSource {
	return &corev3.ExtensionConfigSource{ConfigSource: adsOrWait(), TypeUrls: typeURLs}
}
