package envoytest

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"

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
