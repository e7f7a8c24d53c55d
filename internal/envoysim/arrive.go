package envoysim

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"

	"weft/internal/graph"
)

// CrossZoneRequest is a request of another zone as it arrives at one zone ingress.
type CrossZoneRequest struct {
	// Ingress is the Dataplane that is the ingress; without a mesh, the ZoneIngress.
	Ingress graph.ProxyKey
	Mesh    string // of client and server
	SNI     string // that the client's proxy sends
	// SpiffeIDs are the SPIFFE IDs of the caller, sorted. The ingress can't see them, and the server does.
	SpiffeIDs []string
	Method    string // default GET
	Path      string // default /
}

// IngressResult is what becomes of a crossing in the zone of the ingress. What comes after the hop at which it ends
// is empty.
type IngressResult struct {
	Listener  string            `json:"listener,omitempty"` // of the ingress
	Cluster   string            `json:"cluster,omitempty"`  // that the server name leads to
	Endpoints []EndpointVerdict `json:"endpoints,omitempty"`
	Reason    string            `json:"reason,omitempty"` // why it gets to no endpoint
}

// CrossZone answers what becomes of a request that arrives at a zone ingress, by the configuration of the ingress
// and of the servers. It is an error when the question can't be asked: there is no such ingress.
func CrossZone(world World, crossing CrossZoneRequest) (*IngressResult, error) {
	ingress, err := load(world, crossing.Ingress)
	if err != nil {
		return nil, err
	}
	listener, addresses, err := ingress.passage(crossing.SNI)
	a := &IngressResult{Listener: listener}
	if err != nil {
		a.Reason = err.Error()
		return a, nil
	}
	a.Cluster = crossing.SNI
	call := Call{Method: crossing.Method, Path: crossing.Path, TLS: true, PeerURIs: crossing.SpiffeIDs}
	for _, address := range addresses {
		a.Endpoints = append(a.Endpoints, askServer(world, address, call))
	}
	return a, nil
}

// passage answers where a zone ingress passes on connections with a server name, and the listener that does.
func (c *Config) passage(sni string) (listener string, servers []Address, err error) {
	for _, l := range c.listeners {
		for _, chain := range l.FilterChains {
			if passes(chain) && namesMatch(chain.GetFilterChainMatch().GetServerNames(), sni) {
				servers, err = c.behind(sni)
				return l.Name, servers, err
			}
		}
	}
	return "", nil, fmt.Errorf("the ingress has no SNI route for %s", sni)
}

// passes says whether a filter chain leads to the cluster that is called as the server name.
func passes(chain *listenerv3.FilterChain) bool {
	for _, filter := range chain.Filters {
		if filter.GetTypedConfig().MessageIs(&sniclusterv3.SniCluster{}) {
			return true
		}
	}
	return false
}

// namesMatch says whether a server name is one of those of a filter chain, which may begin with "*.".
func namesMatch(names []string, sni string) bool {
	for _, name := range names {
		suffix, wild := strings.CutPrefix(name, "*")
		if name == sni || wild && len(sni) > len(suffix) && strings.HasSuffix(sni, suffix) {
			return true
		}
	}
	return false
}

// behind are the endpoints of a cluster.
func (c *Config) behind(cluster string) ([]Address, error) {
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
