package envoysim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"weft/kind"
)

// InboundResult is the result of a connection or request to a proxy's application.
type InboundResult struct {
	Listener string
	// Route is the name of the route of a request, with the filters that it configures; empty where it has no name.
	Route   string
	Cluster string
	Allowed bool
	// Rule is the rule that allows or denies the caller, or empty where none was needed or none matched.
	Rule string
	// ShadowRule is a rule in shadow mode that would deny the caller.
	ShadowRule string
	// Reason is the reason for which the caller is denied.
	Reason string
}

// Inbound reports whether a call that arrives at the proxy reaches its application.
func (c *Config) Inbound(call Call) InboundResult {
	var result InboundResult
	listener := c.inboundListener(call.Address, call.Port)
	if listener == nil {
		result.Reason = fmt.Sprintf("the proxy has no listener at %s", call.target())
		return result
	}
	result.Listener = listener.Name
	chain := chainFor(listener, call)
	if chain == nil {
		result.Reason = fmt.Sprintf("no filter chain of the listener matches the SNI %q", call.SNI)
		return result
	}
	if err := c.admit(&result, chain, call); err != nil {
		result.Reason = err.Error()
		return result
	}
	result.Allowed = true
	return result
}

func (c *Config) inboundListener(address string, port uint32) *listenerv3.Listener {
	return c.listener(corev3.TrafficDirection_INBOUND, address, port)
}

// chainFor returns the filter chain of a call, by SNI, and else by TLS. It is nil where no chain matches.
func chainFor(l *listenerv3.Listener, call Call) *listenerv3.FilterChain {
	if call.TLS {
		if chain := chainOfSNI(l, call.SNI); chain != nil {
			return chain
		}
	}
	var others *listenerv3.FilterChain
	for _, chain := range l.FilterChains {
		match := chain.GetFilterChainMatch()
		if len(match.GetServerNames()) > 0 {
			continue
		}
		if (match.GetTransportProtocol() == "raw_buffer") != call.TLS {
			return chain
		}
		others = cmp.Or(others, chain)
	}
	return others
}

// chainOfSNI returns the filter chain with the most specific server name for an SNI; nil where none has one.
func chainOfSNI(l *listenerv3.Listener, sni string) (best *listenerv3.FilterChain) {
	most := ""
	for _, chain := range l.FilterChains {
		for _, name := range chain.GetFilterChainMatch().GetServerNames() {
			if namesMatch([]string{name}, sni) && (best == nil || kind.CompareSNIs(name, most) < 0) {
				best, most = chain, name
			}
		}
	}
	return best
}

// admit evaluates a filter chain as Envoy would for a connection. An error means that the connection is denied.
func (c *Config) admit(result *InboundResult, chain *listenerv3.FilterChain, call Call) error {
	if err := c.handshake(chain.TransportSocket, call); err != nil {
		return err
	}
	connectionFilters, err := c.filtersBeforeLast(chain)
	if err != nil {
		return err
	}
	last, err := c.lastFilter(chain)
	if err != nil {
		return err
	}
	if proxy, ok := last.(*tcpproxyv3.TcpProxy); ok {
		return c.admitConnection(result, connectionFilters, proxy, call)
	}
	manager, ok := last.(*hcmv3.HttpConnectionManager)
	if !ok {
		return errors.New("the listener closes every connection")
	}
	return c.admitRequest(result, manager, call)
}

// admitRequest evaluates the filters of requests, and then the route.
func (c *Config) admitRequest(result *InboundResult, manager *hcmv3.HttpConnectionManager, call Call) error {
	routes := manager.GetRouteConfig()
	if rds := manager.GetRds(); rds != nil {
		routes = c.routes[rds.RouteConfigName]
	}
	if routes == nil {
		return fmt.Errorf("the proxy has no route %s", manager.GetRds().GetRouteConfigName())
	}
	filters, err := c.requestFilters(manager, routes)
	if err != nil {
		return err
	}
	for _, filter := range filters {
		if err := result.check(filter, call); err != nil {
			return err
		}
	}
	call.Headers = withCaller(manager, call)
	route, err := routeFor(routes, call)
	switch {
	case err != nil:
		return err
	case route == nil:
		return noRoute(routes, call)
	}
	return result.take(route, call)
}

// take evaluates the route of a request. It returns an error where the proxy itself responds.
func (r *InboundResult) take(route *routev3.Route, call Call) error {
	r.Route = route.Name
	for _, name := range sortedKeys(route.TypedPerFilterConfig) {
		config, err := route.TypedPerFilterConfig[name].UnmarshalNew()
		if err != nil || !stopsSome(config) {
			return fmt.Errorf("route %s configures the filter %s, which is not supported",
				orElse(route.Name, r.Listener), name)
		}
		r.Route = strings.TrimSpace(r.Route + " with " + name)
	}
	if redirect := route.GetRedirect(); redirect != nil {
		return fmt.Errorf("the proxy redirects: %s", redirection(redirect, call))
	}
	r.Cluster = route.GetRoute().GetCluster()
	return ownResponse(route)
}

// clientCertHeader is the header in which an inbound writes the SPIFFE IDs of the caller.
const clientCertHeader = "x-forwarded-client-cert"

// withCaller returns the headers of a request as the inbound changes them before it chooses a route.
func withCaller(manager *hcmv3.HttpConnectionManager, call Call) map[string]string {
	headers := maps.Clone(call.Headers)
	switch manager.ForwardClientCertDetails {
	case hcmv3.HttpConnectionManager_SANITIZE:
		delete(headers, clientCertHeader)
	case hcmv3.HttpConnectionManager_SANITIZE_SET:
		if headers == nil {
			headers = map[string]string{}
		}
		headers[clientCertHeader] = ";URI=" + strings.Join(call.PeerURIs, ";URI=")
	}
	return headers
}

// handshake returns an error where the mutual TLS handshake fails.
func (c *Config) handshake(socket *corev3.TransportSocket, call Call) error {
	if socket == nil {
		if call.TLS {
			return errors.New("the caller begins with TLS, and the server is plain")
		}
		return nil
	}
	if !call.TLS {
		return errors.New("the server takes mutual TLS only, and the caller uses plaintext: " +
			"a MeshIdentity that selects the caller's Dataplane, or the mtls of the mesh, gives it a certificate")
	}
	context := &tlsv3.DownstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		return err
	}
	bundle :=
		context.GetCommonTlsContext().GetCombinedValidationContext().GetValidationContextSdsSecretConfig().GetName()
	if len(call.PeerURIs) == 0 {
		return errors.New("the caller's certificate has no SPIFFE ID")
	}
	return c.verify(bundle, call.PeerURIs[0])
}

// verify returns an error where the proxy does not trust a certificate with the SPIFFE ID. bundle is the secret with
// its roots.
func (c *Config) verify(bundle, id string) error {
	if strings.HasPrefix(bundle, "spiffe://") {
		return within(id, strings.TrimPrefix(bundle, "spiffe://")) // SPIRE's name for the roots of a trust domain
	}
	secret := c.secrets[bundle]
	if secret == nil {
		return fmt.Errorf("the proxy lacks the secret %s, and trusts no certificate", bundle)
	}
	config := &tlsv3.SPIFFECertValidatorConfig{}
	if err := secret.GetValidationContext().GetCustomValidatorConfig().GetTypedConfig().UnmarshalTo(
		config); err != nil {
		return fmt.Errorf("secret %s: %w", bundle, err)
	}
	var domains []string
	for _, domain := range config.TrustDomains {
		domains = append(domains, domain.Name)
	}
	return within(id, domains...)
}

// within returns an error where the SPIFFE ID belongs to none of the trust domains.
func within(id string, domains ...string) error {
	for _, domain := range domains {
		if strings.HasPrefix(id, "spiffe://"+domain+"/") {
			return nil
		}
	}
	return fmt.Errorf("the trust domain of %s is not trusted; trusted are %s", id, strings.Join(domains, ", "))
}

// filtersBeforeLast returns the network filters of a chain before the last one.
func (c *Config) filtersBeforeLast(chain *listenerv3.FilterChain) ([]proto.Message, error) {
	var filters []proto.Message
	for _, filter := range chain.Filters[:max(len(chain.Filters)-1, 0)] {
		config, err := c.extension(filter.Name)
		if err != nil {
			return nil, err
		}
		filters = append(filters, config)
	}
	return filters, nil
}

// requestFilters returns the HTTP filters that a request passes before the router.
func (c *Config) requestFilters(manager *hcmv3.HttpConnectionManager,
	routes *routev3.RouteConfiguration) ([]proto.Message, error) {
	var filters []proto.Message
	for i, filter := range manager.HttpFilters {
		if filter.Disabled && routes.TypedPerFilterConfig[filter.Name] == nil {
			continue
		}
		router := i == len(manager.HttpFilters)-1
		if router && filter.GetConfigDiscovery() == nil {
			continue
		}
		if c.extensions[filter.Name] == nil && filter.GetConfigDiscovery().GetDefaultConfig() != nil {
			continue // the default of a slot does nothing
		}
		config, err := c.extension(filter.Name)
		if err != nil {
			return nil, err
		}
		if !router {
			filters = append(filters, config)
		}
	}
	return filters, nil
}

// check evaluates one filter for a caller. An error means that the caller is denied. A rate limit or a fault denies no
// caller.
func (r *InboundResult) check(filter proto.Message, call Call) error {
	if stopsSome(filter) {
		return nil
	}
	f, ok := filter.(*httprbacv3.RBAC)
	if !ok {
		return fmt.Errorf("a filter of type %T is not supported", filter)
	}
	names := call.peerNames()
	rule, err := matchPolicies(f.Rules, names)
	if err != nil {
		return err
	}
	if r.ShadowRule, err = shadowed(r.ShadowRule, f.ShadowRules, names); err != nil {
		return err
	}
	return r.decide(f.Rules.GetAction(), rule, call.PeerURIs)
}

// stopsSome reports whether a filter stops some of the requests or connections of a caller: by their rate, or at
// random.
func stopsSome(filter proto.Message) bool {
	switch filter.(type) {
	case *httplimitv3.LocalRateLimit, *limitv3.LocalRateLimit, *faultv3.HTTPFault, *matchingv3.ExtensionWithMatcher:
		return true
	}
	return false
}

// peerNames returns all SANs of the caller's certificate.
func (c *Call) peerNames() []string {
	if c.PeerDNS == "" {
		return c.PeerURIs
	}
	return append(slices.Clone(c.PeerURIs), c.PeerDNS)
}

func shadowed(before string, rules *rbacv3.RBAC, names []string) (string, error) {
	if rules == nil {
		return before, nil
	}
	return matchPolicies(rules, names)
}

func (r *InboundResult) decide(action rbacv3.RBAC_Action, rule string, names []string) error {
	switch {
	case action == rbacv3.RBAC_DENY && rule != "":
		r.Rule = rule
		return deniedBy(rule, names)
	case action == rbacv3.RBAC_ALLOW && rule == "":
		return allowedByNone(names)
	case action == rbacv3.RBAC_ALLOW:
		r.Rule = rule
	}
	return nil
}

func deniedBy(rule string, names []string) error {
	return fmt.Errorf("%s denies %s", rule, strings.Join(names, ", "))
}

func allowedByNone(names []string) error {
	return fmt.Errorf("no rule allows %s: add it under rules[].default.allow "+
		"of a MeshTrafficPermission that targets the server", strings.Join(names, ", "))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
