package envoy

import (
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/kind"
)

// ExternalUpstream is how zone egresses reach the servers of an external service. It is the same for all egresses of a mesh.
func ExternalUpstream(o *graph.ExternalUpstream) []*xds.Resource {
	resources := []*xds.Resource{outsideCluster(o)}
	if o.Protocol.IsHTTP() {
		resources = append(resources, outsideRoute(o))
	}
	return append(resources, outsideSecrets(o)...)
}

func outsideCluster(o *graph.ExternalUpstream) *xds.Resource {
	name := o.Key.String()
	cluster := &clusterv3.Cluster{
		Name:                          name,
		ConnectTimeout:                duration(outsideConnectTimeout),
		LoadAssignment:                &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: outsideEndpoints(o)},
		CircuitBreakers:               noBreakers(),
		OutlierDetection:              deadHosts(),
		IgnoreHealthOnHostRemoval:     true,
		TypedExtensionProtocolOptions: applicationOptions(o.Protocol),
	}
	if hasPriorities(o) {
		cluster.OutlierDetection = givenUpSoon()
	}
	if hasNames(o) {
		lookUpNames(cluster)
	} else {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	}
	originate(cluster, o)
	return xds.NewResource(xds.Cluster, name, cluster)
}

// lookUpNames has the egress look up its endpoints, for as long as the answers say. A cluster whose names can't be
// looked up holds up no other: it has no endpoints until they can.
func lookUpNames(c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns",
		TypedConfig: pack(&dnsclusterv3.DnsCluster{
			DnsRefreshRate: duration(lookupInterval),
			DnsFailureRefreshRate: &dnsclusterv3.DnsCluster_RefreshRate{
				BaseInterval: duration(lookupRetry), MaxInterval: duration(lookupLongestRetry),
			},
			RespectDnsTtl:   true,
			DnsLookupFamily: dnsv3.DnsLookupFamily_V4_PREFERRED,
		}),
	}}
	c.WaitForWarmOnInit = no()
}

// outsideEndpoints are a locality for each priority.
func outsideEndpoints(o *graph.ExternalUpstream) []*endpointv3.LocalityLbEndpoints {
	var localities []*endpointv3.LocalityLbEndpoints
	for _, e := range o.Endpoints {
		if n := len(localities); n == 0 || localities[n-1].Priority != e.Priority {
			localities = append(localities, &endpointv3.LocalityLbEndpoints{Priority: e.Priority})
		}
		server := externalEndpoint(e)
		if asksByAddress(o) {
			server.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{SocketMatch: serverAt(e.Address)}}
		}
		at := localities[len(localities)-1]
		at.LbEndpoints = append(at.LbEndpoints, server)
	}
	return localities
}

// externalEndpoint is a server by its address, or by a name that the egress's agent resolves.
func externalEndpoint(e kind.ExternalEndpoint) *endpointv3.LbEndpoint {
	if !isName(e.Address) {
		return lbEndpoint(e.Address, e.Port)
	}
	server := lbEndpoint(e.Address+kind.ExternalSuffix, e.Port)
	server.GetEndpoint().Hostname = e.Address
	return server
}

// serverAt marks the endpoints of an address.
func serverAt(address string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"server": structpb.NewStringValue(address)}}
}

// outsideRoute sends requests to the servers under their own names. How long one may take is for its client to say,
// and no answer is asked for twice: a request goes elsewhere only where no answer came, and one that may change
// something only where no server can have seen it.
func outsideRoute(o *graph.ExternalUpstream) *xds.Resource {
	name := o.Key.String()
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{
		Name:             name,
		VirtualHosts:     bySafety(name, outsideAction(o, safeCauses), outsideAction(o, unprocessedCauses)),
		ValidateClusters: no(),
	})
}

func outsideAction(o *graph.ExternalUpstream, causes string) *routev3.Route_Route {
	retry := retryPolicy(causes)
	if hasPriorities(o) {
		retry.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: pack(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 1}),
			},
		}
	}
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: o.Key.String()},
		Timeout:          duration(0),
		RetryPolicy:      retry,
	}
	if hasNames(o) {
		action.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: yes()}
	}
	return &routev3.Route_Route{Route: action}
}

func isName(address string) bool {
	_, err := netip.ParseAddr(address)
	return err != nil
}

func hasNames(o *graph.ExternalUpstream) bool {
	for _, e := range o.Endpoints {
		if isName(e.Address) {
			return true
		}
	}
	return false
}

// hasPriorities says whether some endpoints are to be used only where others don't answer.
func hasPriorities(o *graph.ExternalUpstream) bool {
	n := len(o.Endpoints)
	return n > 0 && o.Endpoints[n-1].Priority > 0
}

// givenUpSoon sets endpoints aside where others stand ready to take their place, all of a priority if need be.
func givenUpSoon() *clusterv3.OutlierDetection {
	detection := deadHosts()
	detection.MaxEjectionPercent = number(100)
	return detection
}
