package service_test

import (
	"fmt"
	"testing"

	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

// Thousands of proxies become ready one after another, so each must cost what one Dataplane costs.
func TestReadyProxyComputesItsInbounds(t *testing.T) {
	const instances = 5
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "m", kind.Mesh{}))
		s.Tables.Put(tx, kind.MeshServices.Make("m", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 80}},
		}))
		for i := range instances {
			s.Tables.Put(
				tx,
				kind.Dataplanes.Make("m", fmt.Sprint("web-", i), kind.Dataplane{Networking: networking(i)}),
			)
		}
	})
	destination := service.DestinationKey{Mesh: "m", Zone: "east", Service: "web", Port: 80}
	s.Services.Endpoints.Pin(destination)
	computed := map[string]int{}
	s.Tables.DB.Observe(func(stage table.Stage) { computed[stage.Table] += stage.Recomputed })
	for i := range instances {
		clear(computed)
		s.Tables.DB.Commit(func(tx *table.Tx) {
			n := networking(i)
			served := kind.ServedInbound{Inbound: n.Effective(n.Inbound[0])}
			s.Tables.Put(
				tx,
				kind.DataplaneListenerStatuses.Make("m", fmt.Sprint("web-", i), kind.DataplaneListenerStatus{
					Run: "1", Inbounds: []kind.ServedInbound{served},
				}),
			)
		})
		if got := computed[s.Services.Inbounds.String()]; got != 1 {
			t.Errorf("proxy %d is ready, and the inbounds of %d Dataplanes are computed, want 1", i, got)
		}
		if published, _ := s.Services.Endpoints.Value(destination); len(published.Endpoints) != i+1 {
			t.Errorf("%d proxies are ready, and %d endpoints are published", i+1, len(published.Endpoints))
		}
	}
}

// The status of a service counts its proxies, so it changes while they connect.
func TestStatusCountsComputeNoDestination(t *testing.T) {
	s := graph.NewState("east")
	status := func(proxies int, vip string) {
		s.Tables.DB.Commit(func(tx *table.Tx) {
			s.Tables.Put(tx, kind.MeshServiceStatuses.Make("m", "web", kind.MeshServiceStatus{
				VIPs: []kind.VIP{{IP: vip}}, DataplaneProxies: &kind.DataplaneCount{Total: proxies},
			}))
		})
	}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "m", kind.Mesh{}))
		s.Tables.Put(tx, kind.MeshServices.Make("m", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}))
	})
	status(1, "241.0.0.1")
	destination := service.DestinationKey{Mesh: "m", Zone: "east", Service: "web", Port: 80}
	s.Services.Destination.Pin(destination)
	s.Services.HostsOf.Pin(destination.WithPort(0))
	computed := map[string]int{}
	s.Tables.DB.Observe(func(stage table.Stage) { computed[stage.Table] += stage.Recomputed })
	status(2, "241.0.0.1")
	for _, of := range []string{s.Services.Destination.String(), s.Services.HostsOf.String()} {
		if computed[of] > 0 {
			t.Errorf("a count in a status computes %s", of)
		}
	}
	status(2, "241.0.0.2")
	if d, _ := s.Services.Destination.Value(destination); len(d.VIPs) != 1 || d.VIPs[0] != "241.0.0.2" {
		t.Errorf("a new virtual IP is not that of the destination: %v", d.VIPs)
	}
}

func networking(i int) kind.Networking {
	return kind.Networking{
		Address: fmt.Sprint("10.0.0.", i+1),
		Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: "web"}}},
	}
}
