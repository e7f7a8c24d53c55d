package envoy

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/graph"
	"weft/internal/xds"
)

// passable are the server names that a zone ingress passes on: those of services and of services of many
// zones. No cluster but a passage is called so, which is all that keeps the others from being reached.
var passable = []string{"*.ms", "*.mzms"}

// Ingress is a listener at which other zones reach this one's services. It looks at the server name alone and
// passes the connection on to the cluster of that name, so that it stays as it is whatever services there are.
// TLS goes through unbroken; a connection without a name that is known is closed.
func Ingress(l *graph.IngressListener) *xds.Resource {
	name := fmt.Sprintf("self_ingress_%s_%d", l.Address, l.Port)
	return xds.NewResource(xds.Listener, name, &listenerv3.Listener{
		Name:                   name,
		Address:                socketAddress(l.Address, l.Port),
		TrafficDirection:       corev3.TrafficDirection_INBOUND,
		ListenerFilters:        inspectTLS(),
		ListenerFiltersTimeout: duration(helloTimeout),
		FilterChains: []*listenerv3.FilterChain{{
			FilterChainMatch: whoNames(passable...),
			Filters: []*listenerv3.Filter{
				networkFilter(&sniclusterv3.SniCluster{}),
				networkFilter(&tcpproxyv3.TcpProxy{
					StatPrefix: name,
					// It takes the cluster that sni_cluster has named; there is none of this name.
					ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: name},
					IdleTimeout:        duration(inboundIdleTimeout),
					MaxConnectAttempts: number(connectAttempts),
				}),
			},
		}},
	})
}

// whoNames matches connections of TLS that name one of the servers.
func whoNames(names ...string) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: names}
}

// ClusterOfSNIRoute is where connections with a server name are passed on to, as they are; it has the passage's name.
// How many there may be is for the clients' proxies to say, each of which has limits of its own.
func ClusterOfSNIRoute(name string) *xds.Resource {
	cluster := &clusterv3.Cluster{
		Name:                      name,
		ClusterDiscoveryType:      &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:          &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:            duration(connectTimeout),
		CircuitBreakers:           noBreakers(),
		OutlierDetection:          deadHosts(),
		IgnoreHealthOnHostRemoval: true,
	}
	hop{}.noticeSilence(cluster)
	return xds.NewResource(xds.Cluster, name, cluster)
}

// EndpointsOfSNIRoute is the servers behind a passage, or the ingresses of other zones that lead to them.
func EndpointsOfSNIRoute(name string, servers []graph.Endpoint) *xds.Resource {
	assignment := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if len(servers) > 0 {
		locality := &endpointv3.LocalityLbEndpoints{}
		for _, server := range servers {
			locality.LbEndpoints = append(locality.LbEndpoints, lbEndpoint(server.Address, server.Port))
		}
		assignment.Endpoints = []*endpointv3.LocalityLbEndpoints{locality}
	}
	return xds.NewResource(xds.Endpoint, name, assignment)
}
