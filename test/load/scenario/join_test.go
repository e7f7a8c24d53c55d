package scenario

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"weft/internal/xds"
)

func TestAnAssignmentIsFullWithEachProxyOfItsService(t *testing.T) {
	run := &joinRun{world: &world{Proxies: 1000, Services: 300}}
	for want, addresses := range map[bool][]string{
		true:  {address(299), address(599), address(899)}, // of 1,000 proxies 3 have the last service
		false: {address(0), address(300), address(600)},   // and 4 the first one
	} {
		if got := run.full(addresses); got != want {
			t.Errorf("%v is full: %t, want %t", addresses, got, want)
		}
	}
	if run.full(nil) {
		t.Error("an empty assignment is full")
	}
	if got := indexOf(address(70_000)); got != 70_000 {
		t.Errorf("the address of proxy 70,000 is that of %d", got)
	}
}

func TestAReconnectingProxyStatesItsResources(t *testing.T) {
	r := newReader()
	receive := func(typ xds.Type, removed []string, versions ...string) *message {
		sent := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.URL(), RemovedResources: removed}
		for i := 0; i < len(versions); i += 2 {
			sent.Resources = append(sent.Resources, &discoveryv3.Resource{Name: versions[i], Version: versions[i+1]})
		}
		wire, err := proto.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	p := &proxy{node: "load.proxy-1", messages: 3}
	p.subscribe(xds.Endpoint, []string{"a", "b"})
	p.received = []*message{
		receive(xds.Cluster, nil, "c", "1", "a", "1", "b", "1"),
		receive(xds.Endpoint, nil, "a", "1"),
		receive(xds.Cluster, []string{"b"}, "a", "2"),
	}
	got := decodeRequests(t, p.opening(r))
	if len(got) == 3 {
		slices.Sort(got[1].ResourceNamesSubscribe)
	}
	want := []*discoveryv3.DeltaDiscoveryRequest{
		{Node: &corev3.Node{Id: "load.proxy-1"}, TypeUrl: xds.Cluster.URL(),
			InitialResourceVersions: map[string]string{"a": "2", "c": "1"}},
		{TypeUrl: xds.Endpoint.URL(), ResourceNamesSubscribe: []string{"a", "b"},
			InitialResourceVersions: map[string]string{"a": "1"}},
		{TypeUrl: xds.Listener.URL()},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("a proxy that comes back states (-want +got):\n%s", diff)
	}
	first := decodeRequests(t, (&proxy{node: "load.proxy-2"}).opening(r))
	want = []*discoveryv3.DeltaDiscoveryRequest{{Node: &corev3.Node{Id: "load.proxy-2"}, TypeUrl: xds.Cluster.URL()}}
	if diff := cmp.Diff(want, first, protocmp.Transform()); diff != "" {
		t.Errorf("a new proxy begins with (-want +got):\n%s", diff)
	}
}

func decodeRequests(t *testing.T, requests []encoded) (all []*discoveryv3.DeltaDiscoveryRequest) {
	for _, wire := range requests {
		var request discoveryv3.DeltaDiscoveryRequest
		if err := proto.Unmarshal(wire, &request); err != nil {
			t.Fatal(err)
		}
		all = append(all, &request)
	}
	return all
}

func TestAJoinIsMeasuredAgainstItsBudgets(t *testing.T) {
	report := &JoinReport{
		Proxies: 1000, Services: 300, FullBytes: 500_000,
		Plane: JoinCost{Seconds: 3, CPUSeconds: 5, Bytes: 601_000, RSSBytes: 99_000},
		Floor: JoinCost{Seconds: 2, CPUSeconds: 2},
	}
	var table bytes.Buffer
	if err := Print(&table, report); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		want := strings.Contains(line, "join: CPU") || strings.Contains(line, "join: bytes")
		if over := strings.Contains(line, "OVER"); over != want {
			t.Errorf("over budget are the CPU and the bytes, and the table says: %s", line)
		}
	}
	report.BackResources = 1
	table.Reset()
	if err := Print(&table, report); err != nil || !strings.Contains(table.String(), "OVER\n") {
		t.Errorf("a resource that is sent after a restart is not over its budget: %v\n%s", err, &table)
	}
}
