package envoy

import (
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// ExternalUpstream returns the cluster and the secrets by which a zone egress reaches the servers of an external
// service, with the confs about its callers at the egress, and those about the traffic to it. Egresses with equal confs
// share them. machine is the only IP family of their machines; empty: they have both.
func ExternalUpstream(o *zoneproxy.ExternalUpstream, confs proxy.Confs, by service.Effective,
	machine kind.IPFamilies) []*xds.Resource {
	return append([]*xds.Resource{externalCluster(o, confs, &by, machine)}, externalSecrets(o)...)
}

func externalCluster(o *zoneproxy.ExternalUpstream, confs proxy.Confs, by *service.Effective,
	machine kind.IPFamilies) *xds.Resource {
	o = onMachine(o, machine)
	name, t := o.Key.String(), proxy.ReceivedOf(confs).Timeout.All()
	detection := outlierDetection()
	if hasPriorities(o) {
		detection = priorityOutlierDetection()
	}
	attempt := timeout(t.ConnectionTimeout, externalConnectTimeout)
	cluster := &clusterv3.Cluster{
		Name:           name,
		ConnectTimeout: attempt,
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints:   externalEndpoints(o),
		},
		PerConnectionBufferLimitBytes: uint32Value(applicationBuffer),
		CircuitBreakers:               limited(noBreakers(), by.CircuitBreaker.Limits()),
		OutlierDetection:              detecting(detection, by.CircuitBreaker.Outliers()),
		CommonLbConfig:                commonBalancing("", by),
		HealthChecks:                  healthChecks(&by.HealthCheck, o.Protocol, checkedOutside(o.Protocol)),
		IgnoreHealthOnHostRemoval:     true,
		TypedExtensionProtocolOptions: applicationOptions(o.Protocol, &t, attempt),
	}
	if len(cluster.HealthChecks) > 0 {
		checkByName(o, cluster.LoadAssignment)
	}
	if hasNames(o) {
		lookUpNames(cluster, machine)
	} else {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	}
	originate(cluster, o)
	return xds.NewResource(xds.Cluster, name, cluster)
}

// checkedOutside returns what the checks of external servers see.
func checkedOutside(protocol kind.Protocol) checked {
	if protocol.IsHTTP() && protocol != kind.HTTP {
		return checked{codec: typev3.CodecClientType_HTTP2}
	}
	return checked{bytes: true, codec: typev3.CodecClientType_HTTP1}
}

// checkByName has the checks of each external server name its own host: an external server may serve several.
func checkByName(o *zoneproxy.ExternalUpstream, servers *endpointv3.ClusterLoadAssignment) {
	next := 0
	for _, locality := range servers.Endpoints {
		for _, server := range locality.LbEndpoints {
			server.GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{
				Hostname: o.Endpoints[next].Address,
			}
			next++
		}
	}
}

// lookUpNames has the egress resolve the host names of its endpoints, for the TTL of each DNS response. A cluster whose
// host names do not resolve holds up no other: it has no endpoints until they do.
func lookUpNames(c *clusterv3.Cluster, machine kind.IPFamilies) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns",
		TypedConfig: toAny(&dnsclusterv3.DnsCluster{
			DnsRefreshRate: duration(lookupInterval),
			DnsFailureRefreshRate: &dnsclusterv3.DnsCluster_RefreshRate{
				BaseInterval: duration(lookupRetry), MaxInterval: duration(lookupLongestRetry),
			},
			RespectDnsTtl:   true,
			DnsLookupFamily: lookupFamily(machine),
		}),
	}}
	c.WaitForWarmOnInit = boolFalse()
}

// lookupFamily returns the family of the addresses of a host name on a machine.
func lookupFamily(machine kind.IPFamilies) dnsv3.DnsLookupFamily {
	switch {
	case !machine.Has(true):
		return dnsv3.DnsLookupFamily_V4_ONLY
	case !machine.Has(false):
		return dnsv3.DnsLookupFamily_V6_ONLY
	}
	return dnsv3.DnsLookupFamily_V4_PREFERRED
}

// onMachine returns an external service with the endpoints that a machine reaches.
func onMachine(o *zoneproxy.ExternalUpstream, machine kind.IPFamilies) *zoneproxy.ExternalUpstream {
	if machine == "" {
		return o
	}
	on := *o
	on.Endpoints = slices.DeleteFunc(slices.Clone(o.Endpoints), func(e kind.ExternalEndpoint) bool {
		return machine.Lacks(e.Address)
	})
	return &on
}

// externalEndpoints returns a locality for each priority.
func externalEndpoints(o *zoneproxy.ExternalUpstream) []*endpointv3.LocalityLbEndpoints {
	var localities []*endpointv3.LocalityLbEndpoints
	for _, e := range o.Endpoints {
		if n := len(localities); n == 0 || localities[n-1].Priority != e.Priority {
			localities = append(localities, &endpointv3.LocalityLbEndpoints{Priority: e.Priority})
		}
		server := externalLbEndpoint(e)
		if hasServerNames(o) {
			server.Metadata =
				&corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{SocketMatch: serverAt(e.Address)}}
		}
		at := localities[len(localities)-1]
		at.LbEndpoints = append(at.LbEndpoints, server)
	}
	return localities
}

// externalLbEndpoint returns a server by its address, or by a host name that the egress's agent resolves.
func externalLbEndpoint(e kind.ExternalEndpoint) *endpointv3.LbEndpoint {
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

// ExternalRoute returns the route of the requests to an external service, with the confs about its callers at an
// egress. Egresses with equal confs share it.
//
// It sends requests to the servers under their own host names. The client sets the timeout of a request. A
// request is retried only without a response and, unless it is safe, only where no server can have seen it. It enables
// the slots of the service's filter chain that are in use.
func ExternalRoute(o *zoneproxy.ExternalUpstream, confs proxy.Confs) *xds.Resource {
	name, received := o.Key.String(), proxy.ReceivedOf(confs)
	all := received.Timeout.All()
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: everyHost(name, bySafety(&service.RouteRule{}, externalRouteAction(o, &all, safeRetryOn),
			externalRouteAction(o, &all, unprocessedRetryOn))),
		ValidateClusters:     boolFalse(),
		TypedPerFilterConfig: enabled(filtersInUse(o.Key.WithLocality("").String(), confs, true)),
	})
}

func externalRouteAction(o *zoneproxy.ExternalUpstream, t *kind.TimeoutConf, causes string) *routev3.Route_Route {
	retry := retryPolicy(causes)
	if hasPriorities(o) {
		retry.RetryPriority = otherPriority(1)
	}
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: o.Key.String()},
		Timeout:          timeout(t.Requests().RequestTimeout, 0),
		IdleTimeout:      optional(t.Requests().StreamIdleTimeout),
		RetryPolicy:      retry,
	}
	if hasNames(o) {
		action.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: boolTrue()}
	}
	return &routev3.Route_Route{Route: action}
}

func isName(address string) bool {
	_, err := netip.ParseAddr(address)
	return err != nil
}

func hasNames(o *zoneproxy.ExternalUpstream) bool {
	for _, e := range o.Endpoints {
		if isName(e.Address) {
			return true
		}
	}
	return false
}

// hasPriorities reports whether some endpoints are used only while others do not respond.
func hasPriorities(o *zoneproxy.ExternalUpstream) bool {
	n := len(o.Endpoints)
	return n > 0 && o.Endpoints[n-1].Priority > 0
}

// priorityOutlierDetection ejects endpoints where others can replace them, up to all of a priority.
func priorityOutlierDetection() *clusterv3.OutlierDetection {
	detection := outlierDetection()
	detection.MaxEjectionPercent = uint32Value(100)
	return detection
}
