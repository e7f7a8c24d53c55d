package service_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestRouteDependsOnItsBackends: the route of a destination leads to the destination alone. Virtual IPs leave it
// equal, so that listeners at explicit outbounds stay; the protocol does not.
func TestRouteDependsOnItsBackends(t *testing.T) {
	web := func(protocol kind.Protocol) resource.Any {
		return kind.MeshServices.Make("m", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 80, AppProtocol: protocol}},
		})
	}
	s := graph.NewState("east")
	graphtest.Put(s, kind.Meshes.Make("", "m", kind.Mesh{}), web(kind.HTTP),
		kind.Dataplanes.Make("m", "web-0", kind.Dataplane{Networking: networking(0)}))
	key := service.DestinationKey{Mesh: "m", Zone: "east", Service: "web", Port: 80}
	got := s.Services.Routes.Pin(key)
	want := &service.Route{Destination: key, Protocol: kind.HTTP, Rules: []service.RouteRule{{
		Backends: []service.RouteBackend{{Destination: key, Weight: 1, TCPInbound: true}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the route is (-want +got)\n%s", diff)
	}
	changed := map[string]int{}
	s.Tables.DB.Observe(func(stage table.Stage) { changed[stage.Table] += stage.Changed })
	graphtest.Put(s,
		kind.MeshServiceStatuses.Make("m", "web", kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}}}))
	if changed[s.Services.Destination.String()] != 1 || changed[s.Services.Routes.String()] != 0 {
		t.Errorf("with a virtual IP, these values differ: %v; want the destination and not the route", changed)
	}
	graphtest.Put(s, web(kind.TCP))
	if changed[s.Services.Routes.String()] != 1 {
		t.Errorf("with another protocol, these values differ: %v; want the route", changed)
	}
	graphtest.Put(s, kind.MeshServices.Make("m", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 81}}}))
	if route, _ := s.Services.Routes.Value(key); route != nil {
		t.Errorf("without the port, the route is %+v", route)
	}
}

// TestBackends: each backend of several rules once, sorted.
func TestBackends(t *testing.T) {
	to := func(name string) service.RouteBackend {
		return service.RouteBackend{Destination: service.DestinationKey{Mesh: "m", Service: name, Port: 80}, Weight: 1}
	}
	route := service.Route{Rules: []service.RouteRule{
		{Backends: []service.RouteBackend{to("web-2"), to("web")}}, {Backends: []service.RouteBackend{to("web")}},
	}}
	want := []service.DestinationKey{to("web").Destination, to("web-2").Destination}
	if diff := cmp.Diff(want, route.Backends()); diff != "" {
		t.Errorf("the backends are (-want +got)\n%s", diff)
	}
}
