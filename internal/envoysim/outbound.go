package envoysim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/envoy"
	"weft/kind"
)

// OutboundResult is the result of a connection or request of a proxy's application.
type OutboundResult struct {
	Listener string
	// Captured states that the listener binds no port: only redirected connections reach it.
	Captured bool
	// Route is empty where the proxy reads no requests.
	Route string
	// Addressed is the name of the destination that the listener belongs to; empty for a capture listener.
	Addressed string
	// SNI is the SNI of the filter chain, or *.DOMAIN; empty: the chain is not for one.
	SNI string
	// Backends are the clusters that the call may lead to, one of them by chance.
	Backends []Backend
	// TLS states that the proxy presents its certificate to some endpoint. ServerSpiffeIDs are the SPIFFE IDs that it
	// accepts.
	TLS             bool
	ServerSpiffeIDs []string
	// Sent is the call as the proxy sends it: the route may change its path and its headers. The application's own TLS
	// is a part of its bytes.
	Sent Call
	// Changes are the changes of the request and of the response, in words. Redirect is the response of the proxy,
	// where the request is not sent. Mirrors are the clusters that get copies.
	Changes  []string
	Redirect string
	Mirrors  []Mirror
	// NotFoundStatus is the status of the response to a call that a missing cluster gets.
	NotFoundStatus routev3.RouteAction_ClusterNotFoundResponseCode
	// Passthrough states that the call leaves for its original address, which is not a destination of the mesh.
	Passthrough bool
	// Retries is the number of retries after the first attempt; RetryOn has their causes.
	Retries uint32
	RetryOn string
	// Settings are the times and hashes of the route, in the order in which they are shown.
	Settings []Setting
	// Error is the reason for which the call reaches no destination. Fields of earlier hops are set.
	Error string
}

// Backend is a cluster that gets a share of the calls.
type Backend struct {
	Cluster   string
	Weight    uint32 // its share, relative to the sum of the weights
	Endpoints []Endpoint
	Settings  []Setting // of its connections
	// Error is the reason for which a call that the cluster gets reaches no endpoint.
	Error string
}

// Mirror is a cluster that gets copies of a percentage of the requests.
type Mirror struct {
	Cluster    string  `json:"destination"`
	Percentage float64 `json:"percentage"`
}

// Address is an IP address or host name with a port.
type Address struct {
	Address string
	Port    uint32
}

// String returns an address such as "10.0.0.1:8080".
func (a Address) String() string { return kind.HostPort(a.Address, a.Port) }

// Outbound returns the destination of a call of the proxy's application.
func (c *Config) Outbound(call Call) OutboundResult {
	result := OutboundResult{Sent: call}
	result.Sent.TLS, result.Sent.SNI = false, ""
	listener := c.listener(corev3.TrafficDirection_OUTBOUND, call.Address, call.Port)
	capture := c.capture(corev3.TrafficDirection_OUTBOUND, call.Address)
	var chain *listenerv3.FilterChain
	switch {
	case listener != nil && bound(listener):
		chain = chainFor(listener, call)
	case capture == nil:
		result.Error = fmt.Sprintf("the proxy has no listener at %s, and nothing redirects connections to it",
			call.target())
		return result
	case listener != nil:
		result.Captured, chain = true, chainFor(listener, call)
	default:
		listener, result.Captured, chain = capture, true, capture.DefaultFilterChain
	}
	result.Listener = listener.Name
	if err := c.follow(&result, chain, call); err != nil {
		result.Error = err.Error()
	}
	return result
}

func bound(l *listenerv3.Listener) bool { return l.BindToPort == nil || l.BindToPort.Value }

// follow evaluates a filter chain, by its route if it has one, to clusters and their endpoints.
func (c *Config) follow(result *OutboundResult, chain *listenerv3.FilterChain, call Call) error {
	filter, err := c.lastFilter(chain)
	if err != nil {
		return err
	}
	switch f := filter.(type) {
	case *tcpproxyv3.TcpProxy:
		result.Addressed, result.SNI = envoy.SplitRouteName(f.StatPrefix)
		result.Backends = tcpBackends(f)
		result.Settings = connectionSettings(f)
	case *hcmv3.HttpConnectionManager:
		result.Addressed = f.GetRds().GetRouteConfigName()
		err := c.followRoute(result, result.Addressed, call)
		if err != nil || result.Redirect != "" {
			return err
		}
	default:
		return fmt.Errorf("listener %s closes the connection", result.Listener)
	}
	return c.followBackends(result, call)
}

func (c *Config) followRoute(result *OutboundResult, name string, call Call) error {
	config := c.routes[name]
	if config == nil {
		return fmt.Errorf("the proxy has no route %s", name)
	}
	route, err := routeFor(config, call)
	switch {
	case err != nil:
		return err
	case route == nil:
		return noRoute(config, call)
	}
	result.Route = orElse(route.Name, name)
	return result.useRoute(route, call)
}

// useRoute evaluates a route that matches a call. It returns an error where the proxy itself responds.
func (r *OutboundResult) useRoute(route *routev3.Route, call Call) error {
	r.Changes = changes(route)
	if err := ownResponse(route); err != nil {
		return err
	}
	if redirect := route.GetRedirect(); redirect != nil {
		r.Redirect = redirection(redirect, call)
		return nil
	}
	r.useAction(route.GetRoute())
	r.Sent = changed(route, call)
	return nil
}

// ownResponse is the reason for which a request is not forwarded, where the proxy itself responds with a status.
func ownResponse(route *routev3.Route) error {
	if response := route.GetDirectResponse(); response != nil {
		return fmt.Errorf("the proxy responds with %d: %s", response.Status, response.Body.GetInlineString())
	}
	return nil
}

func (r *OutboundResult) useAction(action *routev3.RouteAction) {
	r.Backends = onlyBackend(action.GetCluster())
	for _, cluster := range action.GetWeightedClusters().GetClusters() {
		r.Backends = append(r.Backends, Backend{Cluster: cluster.Name, Weight: cluster.Weight.GetValue()})
	}
	r.NotFoundStatus = action.GetClusterNotFoundResponseCode()
	for _, mirror := range action.GetRequestMirrorPolicies() {
		r.Mirrors = append(r.Mirrors, Mirror{mirror.Cluster,
			float64(mirror.RuntimeFraction.GetDefaultValue().GetNumerator()) / 10_000})
	}
	r.Settings = requestSettings(action)
	r.Retries = action.GetRetryPolicy().GetNumRetries().GetValue()
	r.RetryOn = action.GetRetryPolicy().GetRetryOn()
}

// tcpBackends returns the clusters to which connections are sent.
func tcpBackends(f *tcpproxyv3.TcpProxy) []Backend {
	backends := onlyBackend(f.GetCluster())
	for _, cluster := range f.GetWeightedClusters().GetClusters() {
		backends = append(backends, Backend{Cluster: cluster.Name, Weight: cluster.Weight})
	}
	return backends
}

// onlyBackend returns the cluster that gets all calls; none for an empty name.
func onlyBackend(cluster string) []Backend {
	if cluster == "" {
		return nil
	}
	return []Backend{{Cluster: cluster, Weight: 1}}
}

// followBackends finds the endpoints of all backends that get any call. It returns an error where no backend has any,
// since the call then reaches no destination.
func (c *Config) followBackends(result *OutboundResult, call Call) error {
	result.Backends = slices.DeleteFunc(result.Backends, func(b Backend) bool { return b.Weight == 0 })
	var all []Endpoint
	var failed error
	for i := range result.Backends {
		b := &result.Backends[i]
		if err := c.followCluster(result, b, call); err != nil {
			b.Error, failed = err.Error(), cmp.Or(failed, err)
		}
		all = append(all, b.Endpoints...)
	}
	result.TLS, result.ServerSpiffeIDs = secured(all)
	switch {
	case len(result.Backends) == 0:
		return errors.New("no backend gets any call: all weights are 0")
	case len(all) == 0:
		return failed
	}
	return nil
}

func (c *Config) followCluster(result *OutboundResult, backend *Backend, call Call) (err error) {
	cluster := c.clusters[backend.Cluster]
	switch {
	case cluster == nil && result.NotFoundStatus == routev3.RouteAction_INTERNAL_SERVER_ERROR:
		return fmt.Errorf("the proxy responds with 500: the backend does not exist")
	case cluster == nil && result.Route == "":
		return fmt.Errorf("the proxy closes the connection: the backend does not exist (no cluster %s)",
			backend.Cluster)
	case cluster == nil:
		return fmt.Errorf("the proxy has no cluster %s", backend.Cluster)
	}
	if cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		result.Passthrough, backend.Endpoints = true, []Endpoint{{At: Address{call.Address, call.Port}}}
		return nil
	}
	backend.Settings = clusterSettings(cluster)
	if backend.Endpoints, err = c.endpointsOf(cluster); err == nil && len(backend.Endpoints) == 0 {
		return whyNone(cluster)
	}
	return err
}
