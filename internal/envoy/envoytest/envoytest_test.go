package envoytest

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/xds"
)

// TestRejections: of many resources, those that Envoy rejects are returned, with its reason.
func TestRejections(t *testing.T) {
	envoy := New(t, nil)
	var resources []*xds.Resource
	for range 20 {
		resources = append(resources, xds.NewResource(xds.Cluster, "valid", &clusterv3.Cluster{Name: "valid"}))
	}
	none, err := envoy.Rejections(resources)
	if err != nil || len(none) > 0 {
		t.Errorf("of valid resources: %v, %v", none, err)
	}
	resources[3] = xds.NewResource(xds.Cluster, "no time", &clusterv3.Cluster{Name: "no time",
		ConnectTimeout: durationpb.New(0)})
	resources[11] = xds.NewResource(xds.Listener, "no filters", &listenerv3.Listener{Name: "no filters"})
	rejected, err := envoy.Rejections(resources)
	if err != nil || len(rejected) != 2 || rejected[0].Resource != resources[3] ||
		rejected[1].Resource != resources[11] {
		t.Errorf("%v, %v", rejected, err)
	}
	for _, r := range rejected {
		if r.Reason == "" {
			t.Errorf("%s has no reason", r.Resource.Name)
		}
	}
}

// TestCostly: of many resources, those for which a proxy pays much are returned, with what it pays.
func TestCostly(t *testing.T) {
	envoy := New(t, nil)
	ring := func(entries uint64) *xds.Resource {
		return xds.NewResource(xds.Cluster, "ring", &clusterv3.Cluster{Name: "ring",
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			LbPolicy:             clusterv3.Cluster_RING_HASH,
			LbConfig: &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
				MinimumRingSize: wrapperspb.UInt64(entries)}}})
	}
	checks := xds.NewResource(xds.Cluster, "checks", &clusterv3.Cluster{Name: "checks",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		HealthChecks: []*corev3.HealthCheck{{
			Timeout: durationpb.New(time.Second), Interval: durationpb.New(time.Millisecond),
			NoTrafficInterval:  durationpb.New(time.Millisecond),
			UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
			HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
		}}})
	resources := []*xds.Resource{ring(1024), ring(1024), ring(8_000_000), ring(1024), checks}
	costly, err := envoy.Costly(resources, 30)
	if err != nil || len(costly) != 2 || costly[0].Resource != resources[2] || costly[1].Resource != checks {
		t.Errorf("%v, %v", costly, err)
	}
}
