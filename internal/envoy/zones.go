package envoy

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/identity"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// aggregate prefers the first locality with an endpoint that is not ejected. Its limits are those of the localities:
// Envoy counts running requests and retries here, not there.
func aggregate(d *service.Destination, localities []service.List) *xds.Resource {
	config := &aggregatev3.ClusterConfig{}
	for _, locality := range localities {
		config.Clusters = append(config.Clusters, locality.String())
	}
	return xds.NewResource(xds.Cluster, d.Key.String(), &clusterv3.Cluster{
		Name: d.Key.String(),
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: toAny(config),
		}},
		LbPolicy:        clusterv3.Cluster_CLUSTER_PROVIDED,
		CommonLbConfig:  commonBalancing("", &d.Effective),
		ConnectTimeout:  timeout(d.Effective.Timeout.ConnectionTimeout, connectTimeout),
		CircuitBreakers: limited(breakers(), d.Effective.CircuitBreaker.Limits()),
	})
}

// zonesCluster reaches the servers of remote zones through their ingresses, which forward by the same SNI. Each zone's
// endpoints must present the SPIFFE IDs of its own servers, verified by its roots. An egress of the client's zone may
// lead to any of the zones.
func zonesCluster(key service.DestinationKey, d *service.Destination, zones []service.Servers,
	from identity.Source) *xds.Resource {
	h := hopTo(d.Protocol, &zones[0], &d.Effective)
	cluster := discoveredCluster(key, h)
	// An endpoint of a zone that is not in the list is about to be removed. It must present a SPIFFE ID of the other
	// zones, which it does not have. Without a transport socket it would get plaintext.
	cluster.TransportSocket = clientTLS(key, h, allServers(zones), from)
	cluster.TransportSocketMatches = zoneTransports(key, h, zones, from)
	return xds.NewResource(xds.Cluster, cluster.Name, cluster)
}

// zoneTransports selects the transport socket of each zone for the endpoints that [endpointOf] marks.
func zoneTransports(key service.DestinationKey, h hop, zones []service.Servers,
	from identity.Source) []*clusterv3.Cluster_TransportSocketMatch {
	var matches []*clusterv3.Cluster_TransportSocketMatch
	for i := range zones {
		matches = append(matches, &clusterv3.Cluster_TransportSocketMatch{
			Name: zones[i].Zone, Match: endpointOf(zones[i].Zone), TransportSocket: clientTLS(key, h, &zones[i], from),
		})
	}
	return matches
}

// mixedCluster reaches the servers of the clients' zone, and those of remote zones as [zonesCluster] does. Its hop is
// that to a remote zone, which leads to a server of the own zone too. An endpoint of a zone that is not in the list
// must present a SPIFFE ID of the own zone.
func mixedCluster(key service.DestinationKey, d *service.Destination, from identity.Source) *xds.Resource {
	h := hopTo(d.Protocol, &d.Zones[0], &d.Effective)
	cluster := discoveredCluster(key, h)
	cluster.TransportSocket = clientTLS(key, h, d.Local, from)
	toEgress := &clusterv3.Cluster_TransportSocketMatch{
		Name: "egress", Match: egressEndpoint(), TransportSocket: clientTLS(key, h, allServers(d.Zones), from),
	}
	cluster.TransportSocketMatches = append(zoneTransports(key, h, d.Zones, from), toEgress)
	return xds.NewResource(xds.Cluster, cluster.Name, cluster)
}

// egressEndpoint marks an egress of the clients' zone.
func egressEndpoint() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"egress": structpb.NewBoolValue(true)}}
}

// weighGroups makes the groups of the endpoints share the traffic by their weights, where policies make groups.
func weighGroups(cluster *clusterv3.Cluster, l kind.LocalityAwareness) {
	if len(l.Affinity()) == 0 {
		return
	}
	if cluster.CommonLbConfig == nil {
		cluster.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	}
	cluster.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
		LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
	}
}

// allServers returns the servers of all zones together. The trust domain is empty where they have several.
func allServers(zones []service.Servers) *service.Servers {
	all := zones[0]
	all.Identities = slices.Clone(all.Identities)
	for i := range zones[1:] {
		zone := &zones[1+i]
		all.Identities = append(all.Identities, zone.Identities...)
		if zone.TrustDomain != all.TrustDomain {
			all.TrustDomain, all.Untrusted = "", false
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

// metadataName is the key of metadata that weft adds to Envoy's resources.
const metadataName = "weft"

// unreachable returns a cluster that never has an endpoint. Envoy fails its requests at once; the metadata contains the
// reason.
func unreachable(d *service.Destination, secured bool) *xds.Resource {
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

// Unreachable returns the reason for which a cluster of this package never has an endpoint. It is empty for all other
// clusters.
func Unreachable(cluster *clusterv3.Cluster) string {
	return cluster.GetMetadata().GetFilterMetadata()[metadataName].GetFields()["unreachable"].GetStringValue()
}

// zonesRetryBackoff gives outlier detection the time to eject a dead endpoint. Attempts without a pause all go to the
// same zone.
func zonesRetryBackoff() *corev3.BackoffStrategy {
	return &corev3.BackoffStrategy{BaseInterval: duration(zonesBackoff), MaxInterval: duration(zonesLongestBackoff)}
}
