package envoy

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// aggregate prefers the first of the legs that has an endpoint that is not set aside. Its limits are those of
// the legs: Envoy counts running requests and retries here, not there.
func aggregate(key graph.DestinationKey, legs []graph.DestinationKey) *xds.Resource {
	config := &aggregatev3.ClusterConfig{}
	for _, leg := range legs {
		config.Clusters = append(config.Clusters, leg.String())
	}
	return xds.NewResource(xds.Cluster, key.String(), &clusterv3.Cluster{
		Name: key.String(),
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: pack(config),
		}},
		LbPolicy:        clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:  duration(connectTimeout),
		CircuitBreakers: breakers(),
	})
}

// otherZones reaches servers of several zones through their ingresses, which find them by the same SNI. Each
// zone's endpoints are held to the names, and the roots, of its own servers. An egress of the client's zone may lead to
// any of the zones.
func otherZones(key graph.DestinationKey, protocol kind.Protocol, zones []graph.Servers, from graph.Source) *xds.Resource {
	h := hopTo(protocol, &zones[0])
	cluster := discoveredCluster(key, h)
	// An endpoint of a zone that is none of these is on its way out. It is held to the others' names, which it
	// does not have: without a transport it would be spoken to in plain text.
	cluster.TransportSocket = clientTLS(key, h, anyOf(zones), from)
	for i := range zones {
		cluster.TransportSocketMatches = append(cluster.TransportSocketMatches, &clusterv3.Cluster_TransportSocketMatch{
			Name: zones[i].Zone, Match: endpointOf(zones[i].Zone), TransportSocket: clientTLS(key, h, &zones[i], from),
		})
	}
	return xds.NewResource(xds.Cluster, cluster.Name, cluster)
}

// anyOf are the servers of all zones, of whichever domain each of them is.
func anyOf(zones []graph.Servers) *graph.Servers {
	all := zones[0]
	all.Identities = slices.Clone(all.Identities)
	for i := range zones[1:] {
		zone := &zones[1+i]
		all.Identities = append(all.Identities, zone.Identities...)
		if zone.TrustDomain != all.TrustDomain {
			all.TrustDomain = ""
		}
	}
	slices.Sort(all.Identities)
	all.Identities = slices.Compact(all.Identities)
	return &all
}

// endpointOf marks an endpoint of a zone.
func endpointOf(zone string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"zone": structpb.NewStringValue(zone)}}
}

// metadataName is where a resource says what Envoy has no field for.
const metadataName = "weft"

// unreachable has no endpoint and never will: what goes there is refused at once, and the reason stands beside.
func unreachable(d *graph.Destination, secured bool) *xds.Resource {
	reason := &structpb.Struct{Fields: map[string]*structpb.Value{
		"unreachable": structpb.NewStringValue(d.UnreachableReason(secured)),
	}}
	return xds.NewResource(xds.Cluster, d.Key.String(), &clusterv3.Cluster{
		Name:                 d.Key.String(),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       duration(connectTimeout),
		Metadata:             &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataName: reason}},
	})
}

// Unreachable is why a cluster that this package made has no endpoint and never will; empty: it may have.
func Unreachable(cluster *clusterv3.Cluster) string {
	return cluster.GetMetadata().GetFilterMetadata()[metadataName].GetFields()["unreachable"].GetStringValue()
}

// otherZoneThen sends the retries of a request, once its own zone has had its attempts, to other zones.
var otherZoneThen = &routev3.RetryPolicy_RetryPriority{
	Name: "envoy.retry_priorities.previous_priorities",
	ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
		TypedConfig: pack(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: localAttempts}),
	},
}

// untilSetAside gives outlier detection the moment that it needs to set a dead endpoint aside: attempts that follow
// each other at once all go to the same zone.
func untilSetAside() *corev3.BackoffStrategy {
	return &corev3.BackoffStrategy{BaseInterval: duration(zonesBackoff), MaxInterval: duration(zonesLongestBackoff)}
}
