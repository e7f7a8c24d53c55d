package envoysim

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"

	"weft/internal/state"
)

// CrossZoneRequest is a request of another zone that arrives at a zone ingress.
type CrossZoneRequest struct {
	// Ingress is the Dataplane of the ingress, or, without a mesh, the ZoneIngress.
	Ingress state.ProxyKey
	Mesh    string // of client and server
	SNI     string // that the client's proxy sends
	// SpiffeIDs are the sorted SPIFFE IDs of the caller. The server verifies them; the ingress cannot see them.
	SpiffeIDs []string
	Method    string // default GET
	Path      string // default /
	// Headers are the headers that the client's proxy sends, as in [Request].
	Headers map[string]string
}

// IngressResult is the result of a cross-zone request in the zone of the ingress. Fields of hops that the request does
// not reach are empty.
type IngressResult struct {
	Listener  string            `json:"listener,omitempty"` // of the ingress
	Cluster   string            `json:"cluster,omitempty"`  // that the SNI leads to
	Endpoints []EndpointVerdict `json:"endpoints,omitempty"`
	Reason    string            `json:"reason,omitempty"` // for which it reaches no endpoint
	// Headers are those of the request. A release that does not follow them leaves them out.
	Headers map[string]string `json:"headers,omitempty"`
}

// CrossZone returns the result of a request that arrives at a zone ingress, from the configuration of the ingress and
// of the servers. It returns an error where there is no such ingress.
func CrossZone(world World, request CrossZoneRequest) (*IngressResult, error) {
	ingress, err := load(world, request.Ingress)
	if err != nil {
		return nil, err
	}
	listener, addresses, err := ingress.sniRoute(request.SNI)
	a := &IngressResult{Listener: listener, Headers: request.Headers}
	if err != nil {
		a.Reason = err.Error()
		if listener == "" {
			a.Reason += exclusionOf(world, request.Ingress, func(e Exclusion) bool { return e.Service == "" })
		}
		return a, nil
	}
	a.Cluster = request.SNI
	call := Call{Method: request.Method, Path: request.Path, Headers: request.Headers, TLS: true,
		PeerURIs: request.SpiffeIDs}
	for _, address := range addresses {
		a.Endpoints = append(a.Endpoints, callServer(world, address, call))
	}
	return a, nil
}

// sniRoute returns the listener of a zone ingress that forwards connections with an SNI, and the servers of the SNI
// route.
func (c *Config) sniRoute(sni string) (listener string, servers []Address, err error) {
	for _, l := range c.listeners {
		for _, chain := range l.FilterChains {
			if forwardsBySNI(chain) && namesMatch(chain.GetFilterChainMatch().GetServerNames(), sni) {
				servers, err = c.endpointAddresses(sni)
				return l.Name, servers, err
			}
		}
	}
	return "", nil, fmt.Errorf("the ingress has no SNI route for %s", sni)
}

// forwardsBySNI reports whether a filter chain forwards to the cluster with the name of the SNI.
func forwardsBySNI(chain *listenerv3.FilterChain) bool {
	for _, filter := range chain.Filters {
		if filter.GetTypedConfig().MessageIs(&sniclusterv3.SniCluster{}) {
			return true
		}
	}
	return false
}

// namesMatch reports whether the SNI is one of the names of a filter chain. A name may begin with "*.".
func namesMatch(names []string, sni string) bool {
	for _, name := range names {
		suffix, wild := strings.CutPrefix(name, "*")
		if name == sni || wild && len(sni) > len(suffix) && strings.HasSuffix(sni, suffix) {
			return true
		}
	}
	return false
}

// endpointAddresses returns the endpoints of a cluster.
func (c *Config) endpointAddresses(cluster string) ([]Address, error) {
	if c.clusters[cluster] == nil {
		return nil, fmt.Errorf("the ingress has no SNI route for %s: no service of its zone has it", cluster)
	}
	var servers []Address
	for _, locality := range c.assignments[cluster].GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			servers = append(servers, addressOf(endpoint))
		}
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("no ready mTLS endpoint for SNI %s", cluster)
	}
	return servers, nil
}
