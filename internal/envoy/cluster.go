package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/internal/zoneroute"
	"weft/kind"
)

// Clusters returns the clusters by which the proxies of a proxy group reach a destination. secured states that the
// proxies have an identity: they then use mutual TLS with servers that have identities, and accept no other server for
// these. from is the source of the proxies' certificates.
//
// The first cluster has the destination's name, which routes and listeners use. The endpoints of each cluster come as
// the load assignment of its name. A destination with localities has a cluster for each locality.
func Clusters(d *service.Destination, secured bool, from identity.Source) []*xds.Resource {
	lists := d.Lists(secured)
	switch {
	case len(lists) == 0:
		return []*xds.Resource{unreachable(d, secured)}
	case d.Key.Kind != service.MultiZoneService:
		return []*xds.Resource{serversCluster(d.Key, d, &d.Servers, secured, from)}
	}
	resources := []*xds.Resource{aggregate(d, lists)}
	remotes := d.Remotes(secured)
	for _, list := range lists {
		switch {
		case list.Locality != service.LocalLocality:
			resources = append(resources, zonesCluster(list.DestinationKey, d, remotes[0].Zones, from))
			remotes = remotes[1:]
		case d.MixesZones(secured):
			resources = append(resources, mixedCluster(list.DestinationKey, d, from))
		default:
			resources = append(resources, serversCluster(list.DestinationKey, d, d.Local, secured, from))
		}
	}
	return resources
}

// serversCluster returns the cluster of the servers of a destination in one zone, or of an external service. Its
// endpoints are these servers, or zone proxies that forward by SNI.
func serversCluster(key service.DestinationKey, d *service.Destination, servers *service.Servers, secured bool,
	from identity.Source) *xds.Resource {
	h := hopTo(d.Protocol, servers, &d.Effective)
	cluster := discoveredCluster(key, h)
	cluster.HealthChecks = h.healthChecks(d.Protocol)
	if servers.Way == zoneroute.Direct {
		weighGroups(cluster, h.effective.LoadBalancing.Locality())
	}
	if servers.UseMTLS(secured) {
		cluster.TransportSocket = clientTLS(key, h, servers, from)
	}
	if servers.UseMTLS(secured) && servers.Way == zoneroute.Direct {
		cluster.TransportSocketMatches = plaintextTransport()
	}
	return xds.NewResource(xds.Cluster, cluster.Name, cluster)
}

// discoveredCluster returns a cluster whose endpoints come as the load assignment of its name.
func discoveredCluster(key service.DestinationKey, h hop) *clusterv3.Cluster {
	cluster := &clusterv3.Cluster{
		Name:                 key.String(),
		CommonLbConfig:       h.commonBalancing(key.Locality),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		// The assignment has the name of its cluster. Two clusters with one assignment stall each other on a delta
		// stream.
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:                h.attempt(),
		CircuitBreakers:               limited(breakers(), h.effective.CircuitBreaker.Limits()),
		OutlierDetection:              h.outlierDetection(key.Locality),
		IgnoreHealthOnHostRemoval:     true,
		TypedExtensionProtocolOptions: h.protocolOptions(),
	}
	balance(cluster, h.effective.LoadBalancing.Balancer())
	h.closeUnresponsive(cluster)
	return cluster
}

// Assignment returns the endpoints of a destination, or of one of its localities. Without endpoints it is empty and not
// absent, since a cluster that waits for its assignment holds up all others. The ingresses of a remote zone are a
// locality with the zone's name.
func Assignment(e *service.Endpoints) *xds.Resource {
	assignment := &endpointv3.ClusterLoadAssignment{ClusterName: e.Destination.String(), Policy: policyOf(e)}
	var locality *endpointv3.LocalityLbEndpoints
	for i := range e.Endpoints {
		endpoint := &e.Endpoints[i]
		if i == 0 || endpoint.Zone != e.Endpoints[i-1].Zone || endpoint.Group != e.Endpoints[i-1].Group {
			locality = localityOf(e, endpoint)
			assignment.Endpoints = append(assignment.Endpoints, locality)
		}
		server := lbEndpoint(endpoint.Address, endpoint.Port)
		if mark := transportMatch(e.Destination.Locality, endpoint); mark != nil {
			server.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{SocketMatch: mark}}
		}
		locality.LbEndpoints = append(locality.LbEndpoints, server)
	}
	return xds.NewResource(xds.Endpoint, assignment.ClusterName, assignment)
}

// policyOf keeps all load in the client's own zone while one endpoint there is not ejected, unless a policy has a
// threshold. By default, Envoy sends a part to other priorities once fewer than 72 % are left.
func policyOf(e *service.Endpoints) *endpointv3.ClusterLoadAssignment_Policy {
	factor := e.Overprovisioning
	if factor == 0 && e.Destination.Locality == service.LocalLocality {
		factor = service.DefaultOverprovisioning
	}
	if factor == 0 {
		return nil
	}
	return &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: uint32Value(factor)}
}

// localityOf returns the locality of an endpoint: its zone, and its group with its weight.
func localityOf(all *service.Endpoints, e *service.Endpoint) *endpointv3.LocalityLbEndpoints {
	locality := &endpointv3.LocalityLbEndpoints{}
	group := service.EndpointGroup{}
	if all.Groups != nil {
		group = all.Groups[e.Group]
		locality.LoadBalancingWeight = uint32Value(group.Weight)
	}
	if e.Zone != "" || group.Name != "" {
		locality.Locality = &corev3.Locality{Zone: e.Zone, SubZone: group.Name}
	}
	return locality
}

// transportMatch returns the metadata that selects the transport socket of an endpoint; nil selects the cluster's
// default.
func transportMatch(locality service.Locality, e *service.Endpoint) *structpb.Struct {
	switch {
	case e.Plaintext:
		return plaintextEndpoint()
	case e.Zone != "" && locality != "":
		return endpointOf(e.Zone)
	case e.Egress:
		return egressEndpoint()
	}
	return nil
}

// SocketMatch is the metadata key by which an endpoint selects its transport socket.
const SocketMatch = "envoy.transport_socket_match"

// plaintextEndpoint marks a server that does not serve mutual TLS yet.
func plaintextEndpoint() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"plain": structpb.NewBoolValue(true)}}
}

// plaintextTransport selects plaintext for the endpoints that plaintextEndpoint marks. No other endpoint is reached
// without TLS.
func plaintextTransport() []*clusterv3.Cluster_TransportSocketMatch {
	return []*clusterv3.Cluster_TransportSocketMatch{{
		Name: "plain", Match: plaintextEndpoint(),
		TransportSocket: &corev3.TransportSocket{
			Name:       "envoy.transport_sockets.raw_buffer",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: toAny(&rawbufferv3.RawBuffer{})},
		},
	}}
}

// localCluster returns the cluster of the application of an inbound.
func (p *InboundParts) localCluster(name string, l *proxy.InboundListener) *xds.Resource {
	received := proxy.ReceivedOf(l.Confs)
	t, breaker := received.Timeout.All(), received.CircuitBreaker.All()
	return xds.NewResource(xds.Cluster, name, &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		UpstreamBindConfig:            dialledFrom(l.ServiceSource()),
		ConnectTimeout:                timeout(t.ConnectionTimeout, localConnectTimeout),
		PerConnectionBufferLimitBytes: uint32Value(applicationBuffer),
		CircuitBreakers:               limited(noBreakers(), breaker.Limits()),
		OutlierDetection:              applicationEjection(breaker.Outliers()),
		CommonLbConfig:                panicSettings(breaker.Outliers(), &kind.HealthCheckConf{}),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint(l.ServiceAddress, l.ServicePort)},
			}},
		},
		TypedExtensionProtocolOptions: p.options,
	})
}

// dialledFrom binds a cluster's connections to a source address with any port. An empty source leaves the choice to the
// kernel.
func dialledFrom(source string) *corev3.BindConfig {
	if source == "" {
		return nil
	}
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address:       source,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// passthroughCluster forwards a connection to its original destination.
func passthroughCluster() *xds.Resource {
	return xds.NewResource(xds.Cluster, passthroughName, &clusterv3.Cluster{
		Name:                 passthroughName,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       duration(externalConnectTimeout),
		CircuitBreakers:      noBreakers(),
	})
}

func lbEndpoint(address string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: socketAddress(address, port)},
	}}
}

const protocolOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// applicationOptions returns the HTTP version of a server that is not a proxy of the mesh: the application of an
// inbound, or an external server. Headers that only proxies may send are removed from its responses. attempt is the
// timeout of an attempt to connect.
func applicationOptions(protocol kind.Protocol, t *kind.TimeoutConf,
	attempt *durationpb.Duration) map[string]*anypb.Any {
	if !protocol.IsHTTP() {
		return tcpOptions(attempt)
	}
	return packedOptions(&httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: applicationConnection(protocol, t),
		UpstreamProtocolOptions:   httpVersion(protocol == kind.HTTP, streamErrors()),
		HttpFilters:               withoutProxyHeaders(),
	})
}

// httpVersion returns HTTP/1.1, or HTTP/2 with its options.
func httpVersion(one bool, two *corev3.Http2ProtocolOptions) *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	config := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	if one {
		config.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{}}
	} else {
		config.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: two}
	}
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: config}
}

func packedOptions(options *httpv3.HttpProtocolOptions) map[string]*anypb.Any {
	return map[string]*anypb.Any{protocolOptionsName: toAny(options)}
}
