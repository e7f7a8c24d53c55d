package graph_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestARouteDependsOnItsBackends: the route of a destination leads to the destination alone. Virtual IPs leave it
// equal, so that listeners at explicit outbounds stay; the protocol does not.
func TestARouteDependsOnItsBackends(t *testing.T) {
	web := func(protocol kind.Protocol) resource.Any {
		return kind.MeshServices.Make("m", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 80, AppProtocol: protocol}},
		})
	}
	s := graph.NewState("east")
	store(s, kind.Meshes.Make("", "m", kind.Mesh{}), web(kind.HTTP),
		kind.Dataplanes.Make("m", "web-0", kind.Dataplane{Networking: networking(0)}))
	key := graph.DestinationKey{Mesh: "m", Zone: "east", Service: "web", Port: 80}
	got := s.Routes.Pin(key)
	want := &graph.Route{Destination: key, Protocol: kind.HTTP, Rules: []graph.RouteRule{{
		Match:    graph.RequestMatch{PathPrefix: "/"},
		Backends: []graph.RouteBackend{{Destination: key, Weight: 1, TCPInbound: true}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the route is (-want +got)\n%s", diff)
	}
	changed := map[string]int{}
	s.DB.Observe(func(stage table.Stage) { changed[stage.Table] += stage.Changed })
	store(s, kind.MeshServiceStatuses.Make("m", "web", kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}}}))
	if changed[s.Destination.String()] != 1 || changed[s.Routes.String()] != 0 {
		t.Errorf("with a virtual IP, these values differ: %v; want the destination and not the route", changed)
	}
	store(s, web(kind.TCP))
	if changed[s.Routes.String()] != 1 {
		t.Errorf("with another protocol, these values differ: %v; want the route", changed)
	}
	store(s, kind.MeshServices.Make("m", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 81}}}))
	if route, _ := s.Routes.Value(key); route != nil {
		t.Errorf("without the port, the route is %+v", route)
	}
}

// TestBackends: each backend of several rules once, sorted.
func TestBackends(t *testing.T) {
	to := func(service string) graph.RouteBackend {
		return graph.RouteBackend{Destination: graph.DestinationKey{Mesh: "m", Service: service, Port: 80}, Weight: 1}
	}
	route := graph.Route{Rules: []graph.RouteRule{
		{Backends: []graph.RouteBackend{to("web-2"), to("web")}}, {Backends: []graph.RouteBackend{to("web")}},
	}}
	want := []graph.DestinationKey{to("web").Destination, to("web-2").Destination}
	if diff := cmp.Diff(want, route.Backends()); diff != "" {
		t.Errorf("the backends are (-want +got)\n%s", diff)
	}
}
