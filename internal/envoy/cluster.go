package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// Clusters are how the proxies of a class reach a destination. They are the same for all of them but for
// secured, which says whether they have an identity: those that do use mutual TLS with servers that have
// identities, and take nobody else for them. Where they have it from says from.
//
// The first has the destination's name, and routes and listeners lead to it. The endpoints of each come as
// the assignment of its name; those of a destination with legs as the assignments of the legs.
func Clusters(d *graph.Destination, secured bool, from graph.Source) []*xds.Resource {
	lists := d.Lists(secured)
	switch {
	case len(lists) == 0:
		return []*xds.Resource{unreachable(d, secured)}
	case d.Key.Kind != graph.MultiZoneService:
		return []*xds.Resource{oneWay(d.Key, d.Protocol, &d.Servers, secured, from)}
	}
	resources := []*xds.Resource{aggregate(d.Key, lists)}
	for _, list := range lists {
		if list.Locality == graph.LocalLocality {
			resources = append(resources, oneWay(list, d.Protocol, d.Local, secured, from))
		} else {
			resources = append(resources, otherZones(list, d.Protocol, d.Zones, from))
		}
	}
	return resources
}

// oneWay reaches the servers of one zone, or those outside the mesh: they themselves, or zone proxies that tell by
// the server name what is meant.
func oneWay(key graph.DestinationKey, protocol kind.Protocol, servers *graph.Servers, secured bool, from graph.Source) *xds.Resource {
	cluster := discoveredCluster(key, hopTo(protocol, servers))
	if servers.Secured(secured) {
		cluster.TransportSocket = clientTLS(key, hopTo(protocol, servers), servers, from)
	}
	if servers.Secured(secured) && servers.Way == graph.Direct {
		cluster.TransportSocketMatches = unlessPlain()
	}
	return xds.NewResource(xds.Cluster, cluster.Name, cluster)
}

// discoveredCluster has endpoints that come as an assignment of its name.
func discoveredCluster(key graph.DestinationKey, h hop) *clusterv3.Cluster {
	cluster := &clusterv3.Cluster{
		Name:                 key.String(),
		CommonLbConfig:       promptly(key.Locality),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		// The assignment's name is the cluster's, and so distinct: two clusters that name one
		// assignment stall each other on a delta stream.
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:                duration(h.connectTimeout()),
		CircuitBreakers:               breakers(),
		OutlierDetection:              deadHostsOf(key.Locality),
		IgnoreHealthOnHostRemoval:     true,
		TypedExtensionProtocolOptions: h.protocolOptions(),
	}
	h.noticeSilence(cluster)
	return cluster
}

// Assignment is the endpoints of a destination, or of a leg of one. One without endpoints is empty rather
// than absent, since a cluster that waits for its assignment holds up all others. The ingresses of another
// zone are a locality of its name.
func Assignment(e *graph.Endpoints) *xds.Resource {
	assignment := &endpointv3.ClusterLoadAssignment{ClusterName: e.Destination.String(), Policy: policyOf(e.Destination.Locality)}
	var locality *endpointv3.LocalityLbEndpoints
	for i := range e.Endpoints {
		endpoint := &e.Endpoints[i]
		if locality == nil || locality.Locality.GetZone() != endpoint.Zone {
			locality = localityOf(endpoint.Zone)
			assignment.Endpoints = append(assignment.Endpoints, locality)
		}
		server := lbEndpoint(endpoint.Address, endpoint.Port)
		if mark := markOf(e.Destination.Locality, endpoint); mark != nil {
			server.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{SocketMatch: mark}}
		}
		locality.LbEndpoints = append(locality.LbEndpoints, server)
	}
	return xds.NewResource(xds.Endpoint, assignment.ClusterName, assignment)
}

// policyOf keeps all of the load in the client's own zone while one endpoint there is not set aside. Envoy's
// default would send a part away as soon as less than 72 % are left.
func policyOf(leg graph.Locality) *endpointv3.ClusterLoadAssignment_Policy {
	if leg != graph.LocalLocality {
		return nil
	}
	return &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: number(localLegFactor)}
}

func localityOf(zone string) *endpointv3.LocalityLbEndpoints {
	if zone == "" {
		return &endpointv3.LocalityLbEndpoints{}
	}
	return &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: zone}}
}

// markOf is by which of its cluster's transports an endpoint is reached; nil: by the first.
func markOf(leg graph.Locality, e *graph.Endpoint) *structpb.Struct {
	switch {
	case e.Plaintext:
		return plainEndpoint()
	case leg == graph.RemoteLocality && e.Zone != "":
		return endpointOf(e.Zone)
	}
	return nil
}

// SocketMatch is the metadata in which an endpoint says by which transport it is reached.
const SocketMatch = "envoy.transport_socket_match"

// plainEndpoint marks a server that does not serve mutual TLS yet.
func plainEndpoint() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"plain": structpb.NewBoolValue(true)}}
}

// unlessPlain reaches the endpoints so marked without TLS, and no others: a mark is the only way there.
func unlessPlain() []*clusterv3.Cluster_TransportSocketMatch {
	return []*clusterv3.Cluster_TransportSocketMatch{{
		Name: "plain", Match: plainEndpoint(),
		TransportSocket: &corev3.TransportSocket{
			Name:       "envoy.transport_sockets.raw_buffer",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&rawbufferv3.RawBuffer{})},
		},
	}}
}

// localCluster is the application behind an inbound.
func localCluster(name string, l *graph.InboundListener) *xds.Resource {
	return xds.NewResource(xds.Cluster, name, &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		UpstreamBindConfig:   dialledFrom(l.ServiceSource()),
		ConnectTimeout:       duration(localConnectTimeout),
		CircuitBreakers:      noBreakers(),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint(l.ServiceAddress, l.ServicePort)},
			}},
		},
		TypedExtensionProtocolOptions: applicationOptions(l.Protocol),
	})
}

// dialledFrom makes a cluster's connections begin at an address, on whatever port; empty: anywhere.
func dialledFrom(source string) *corev3.BindConfig {
	if source == "" {
		return nil
	}
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address:       source,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// passthroughCluster sends a connection where it was going.
func passthroughCluster() *xds.Resource {
	return xds.NewResource(xds.Cluster, passthroughName, &clusterv3.Cluster{
		Name:                 passthroughName,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       duration(outsideConnectTimeout),
		CircuitBreakers:      noBreakers(),
	})
}

func lbEndpoint(address string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: socketAddress(address, port)},
	}}
}

// breakers sheds what a destination does not take. The retries of a small client are not limited by their share: when one
// of two endpoints falls silent, nearly all running requests are retried at once.
func breakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     number(maxConnections),
		MaxPendingRequests: number(maxRequests),
		MaxRequests:        number(maxRequests),
		RetryBudget: &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent:       &typev3.Percent{Value: retryShare},
			MinRetryConcurrency: number(minRetries),
		},
	}}}
}

// noBreakers limits nothing: the application decides, or the clients' proxies do.
func noBreakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     number(localBreakerLimit),
		MaxPendingRequests: number(localBreakerLimit),
		MaxRequests:        number(localBreakerLimit),
		MaxRetries:         number(localBreakerLimit),
	}}}
}

// deadHosts ejects, for a short time that grows a little, an endpoint after [ejectedAfter] local-origin failures in a row. What an application answers is never held against its endpoint: behind a zone's ingress are the servers of
// many services.
func deadHosts() *clusterv3.OutlierDetection {
	return &clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors:  true,
		ConsecutiveLocalOriginFailure:   number(ejectedAfter),
		Interval:                        duration(ejectionSweep),
		BaseEjectionTime:                duration(ejectionTime),
		MaxEjectionTime:                 duration(longestEjection),
		EnforcingConsecutive_5Xx:        number(0),
		EnforcingSuccessRate:            number(0),
		EnforcingLocalOriginSuccessRate: number(0),
		MaxEjectionPercent:              number(ejectableHosts),
	}
}

// promptly has the aggregate see at once what is set aside in a leg. Envoy would tell it of the first such change,
// and of all others within a second at the end of that, in which connections go on to the dead.
func promptly(leg graph.Locality) *clusterv3.Cluster_CommonLbConfig {
	if leg == "" {
		return nil
	}
	return &clusterv3.Cluster_CommonLbConfig{UpdateMergeWindow: duration(0)}
}

// deadHostsOf may eject every endpoint of the client's own zone where other zones can serve instead.
func deadHostsOf(leg graph.Locality) *clusterv3.OutlierDetection {
	detection := deadHosts()
	if leg == graph.LocalLocality {
		detection.MaxEjectionPercent = number(100)
	}
	return detection
}

const protocolOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// applicationOptions are the HTTP version of a server that is no proxy of the mesh: the application behind an inbound,
// or a server outside the mesh. Headers that only proxies may send are removed from its responses. TCP has no options.
func applicationOptions(protocol kind.Protocol) map[string]*anypb.Any {
	if !protocol.IsHTTP() {
		return nil
	}
	return packedOptions(&httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: duration(localIdleTimeout)},
		UpstreamProtocolOptions:   httpVersion(protocol == kind.HTTP, &corev3.Http2ProtocolOptions{}),
		HttpFilters:               withoutProxyHeaders(),
	})
}

// httpVersion is HTTP/1.1, or HTTP/2 with its options.
func httpVersion(one bool, two *corev3.Http2ProtocolOptions) *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	config := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	if one {
		config.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}}
	} else {
		config.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: two}
	}
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: config}
}

func packedOptions(options *httpv3.HttpProtocolOptions) map[string]*anypb.Any {
	return map[string]*anypb.Any{protocolOptionsName: pack(options)}
}
