package envoy

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	sniclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// forwardableSNIs are the SNIs that a zone ingress forwards: those of MeshServices and MeshMultiZoneServices. Only
// clusters of SNI routes have such names, so no other cluster is reachable.
var forwardableSNIs = []string{"*.ms", "*.mzms"}

// Ingress returns a listener at which remote zones reach the services of this zone, and the contents of its slots. It
// forwards a connection to the cluster with the name of its SNI, so it does not depend on the set of services. It does
// not decrypt TLS, and closes a connection with an unknown SNI.
func Ingress(l *proxy.IngressListener) []*xds.Resource {
	place := ingressPlace(l.Address, l.Port)
	name := IngressName(l.Address, l.Port)
	listener := &listenerv3.Listener{
		Name:                   name,
		Address:                socketAddress(l.Address, l.Port),
		TrafficDirection:       corev3.TrafficDirection_INBOUND,
		ListenerFilters:        inspectTLS(),
		ListenerFiltersTimeout: duration(helloTimeout),
		FilterChains: []*listenerv3.FilterChain{{
			FilterChainMatch: sniMatch(forwardableSNIs...),
			Filters: []*listenerv3.Filter{
				connectionSlot(place),
				networkFilter(&sniclusterv3.SniCluster{}),
				tcpProxySlot(tcpProxySlotName(place)),
			},
		}},
	}
	return []*xds.Resource{
		xds.NewResource(xds.Listener, name, listener),
		connectionLimit(place, l.Confs),
		tcpProxy(tcpProxySlotName(place), &tcpproxyv3.TcpProxy{
			StatPrefix: name,
			// sni_cluster names the cluster; no cluster has this name.
			ClusterSpecifier:   &tcpproxyv3.TcpProxy_Cluster{Cluster: name},
			IdleTimeout:        servedIdleTimeout(l.Confs),
			MaxConnectAttempts: uint32Value(connectAttempts),
		}),
	}
}

// IngressName returns the name of the listener of a zone ingress.
func IngressName(address string, port uint32) string { return "self_" + ingressPlace(address, port) }

func ingressPlace(address string, port uint32) string {
	return fmt.Sprintf("ingress_%s_%d", address, port)
}

// sniMatch matches TLS connections with one of the server names.
func sniMatch(names ...string) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: names}
}

// ClusterOfSNIRoute returns the cluster of the SNI route of that name, which forwards connections unchanged, with the
// confs of policies. Without one it has no limits: the clients' proxies have their own.
func ClusterOfSNIRoute(name string, by service.Effective) *xds.Resource {
	cluster := &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:                duration(forwardConnectTimeout),
		CircuitBreakers:               limited(noBreakers(), by.CircuitBreaker.Limits()),
		OutlierDetection:              detecting(outlierDetection(), by.CircuitBreaker.Outliers()),
		CommonLbConfig:                commonBalancing("", &by),
		HealthChecks:                  healthChecks(&by.HealthCheck, kind.TCP, checked{forwarded: true}),
		IgnoreHealthOnHostRemoval:     true,
		TypedExtensionProtocolOptions: tcpOptions(duration(forwardConnectTimeout)),
	}
	hop{}.closeUnresponsive(cluster)
	return xds.NewResource(xds.Cluster, name, cluster)
}

// EndpointsOfSNIRoute returns the servers of an SNI route, or the ingresses of remote zones that lead to them.
func EndpointsOfSNIRoute(name string, servers []service.Endpoint) *xds.Resource {
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
