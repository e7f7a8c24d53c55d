package push

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// benchWorld returns a hub of a zone with 100 services of its own, services of ten other zones, of which 20
// MeshMultiZoneServices select one each, and external services. The proxies of one group reach all of them.
func benchWorld(b *testing.B, remote, external int) *Hub {
	hub := NewHub(graph.NewState("default"), xds.NewCatalog(), slog.New(slog.DiscardHandler))
	var batch mirror.Batch
	batch.Put = append(batch.Put, kind.MeshIdentities.Make(mesh, "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	}))
	for i := range 100 {
		name := fmt.Sprint("own-", i)
		service := kind.MeshServices.Make(mesh, name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}, AppProtocol: kind.HTTP}},
		})
		batch.Put = append(batch.Put, service, benchDataplane(i), benchServing(i, false))
	}
	for zone := range 10 {
		batch.Put = append(batch.Put, benchZoneAddress(zone, 0))
	}
	for i := range remote {
		batch.Put = append(batch.Put, benchRemoteService(i, "Available"))
	}
	for i := range min(20, remote) {
		batch.Put = append(batch.Put, kind.MeshMultiZoneServices.Make(mesh, fmt.Sprint("all-", i),
			kind.MeshMultiZoneService{
				Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{
					MatchLabels: map[string]string{kind.DisplayName: fmt.Sprint("their-", i)},
				}},
				Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP,
					SNIs: []kind.SNI{{Value: fmt.Sprintf("a.all-%d.80.default.mzms", i)}}}},
			}))
	}
	batch.Put = append(batch.Put, benchEgress(0))
	for i := range external {
		batch.Put = append(batch.Put, kind.MeshExternalServices.Make(mesh, fmt.Sprint("outside-", i),
			kind.MeshExternalService{
				Match:     kind.ExternalMatch{Port: 443, Protocol: kind.HTTP},
				Endpoints: []kind.ExternalEndpoint{{Address: "api.example.com", Port: 443}},
			}))
	}
	hub.Apply(batch)
	for i := range 100 {
		b.Cleanup(hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: fmt.Sprint("d", i)}, func(*proxy.Proxy) {}))
	}
	return hub
}

func benchDataplane(i int) resource.Any {
	return kind.Dataplanes.Make(mesh, fmt.Sprint("d", i), kind.Dataplane{Networking: kind.Networking{
		Address: fmt.Sprint("10.0.0.", i), TransparentProxying: &kind.TransparentProxying{},
		Inbound: []kind.Inbound{{Port: 8080, Protocol: kind.HTTP,
			Tags: map[string]string{kind.ServiceTag: fmt.Sprint("own-", i)}}},
	}})
}

func benchServing(i int, unhealthy bool) resource.Any {
	return kind.DataplaneListenerStatuses.Make(mesh, fmt.Sprint("d", i),
		kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{{
			Inbound: kind.Inbound{Address: fmt.Sprint("10.0.0.", i), Port: 8080, Name: "8080", Protocol: kind.HTTP},
			Serial:  "5e", Unhealthy: unhealthy,
		}}})
}

func benchRemoteService(i int, state string) resource.Any {
	zone, name := fmt.Sprint("zone-", i%10), fmt.Sprint("their-", i)
	o := kind.MeshServices.Make(mesh, received(&kind.MeshServices.Info, name, zone), kind.MeshService{
		State: state, Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
		Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP,
			SNIs: []kind.SNI{{Value: fmt.Sprintf("a.%s.80.default.ms", name)}}}},
		Identities: []kind.ServiceIdentity{{Type: kind.SpiffeIdentity,
			Value: "spiffe://default." + zone + ".mesh.local/workload/" + name}},
	})
	o.Labels = map[string]string{kind.DisplayName: name, kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone}
	return o
}

func benchZoneAddress(zone, last int) resource.Any {
	name := fmt.Sprint("zone-", zone)
	return kind.MeshZoneAddresses.Make(mesh, received(&kind.MeshZoneAddresses.Info, name, name), kind.MeshZoneAddress{
		Ingresses: []kind.ZoneProxyAddress{{Name: "zi", Address: fmt.Sprintf("192.168.%d.%d", zone, last), Port: 10001,
			Healthy: true}},
	})
}

func benchEgress(last int) resource.Any {
	return kind.MeshEgressAddresses.Make(mesh, "default", kind.MeshEgressAddress{
		Egresses: []kind.ZoneProxyAddress{{Name: "egress", Address: fmt.Sprint("10.0.1.", last), Port: 10002,
			Healthy: true}},
	})
}

// teamWorld returns a hub of a zone with 300 services and 500 teams, each of which is a proxy group with a policy of
// its own. A policy of the mesh is about all of them. Where alone, a team reaches only one service.
func teamWorld(b *testing.B, alone bool) *Hub {
	hub := NewHub(graph.NewState("default"), xds.NewCatalog(), slog.New(slog.DiscardHandler))
	batch := mirror.Batch{Put: []resource.Any{timeoutAbout("mesh", nil, "own-7", 1)}}
	const services, teams = 300, 500
	for i := range services {
		name := fmt.Sprint("own-", i)
		batch.Put = append(batch.Put, kind.MeshServices.Make(mesh, name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports: []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080},
				AppProtocol: kind.HTTP}},
		}))
	}
	for i := range teams {
		team := fmt.Sprint("team-", i)
		dp := benchDataplane(i).(*resource.Object[kind.Dataplane])
		dp.Spec.Networking.Address = teamAddress(i)
		dp.Labels = map[string]string{"team": team}
		if alone {
			dp.Spec.Networking.TransparentProxying.ReachableBackends = &kind.ReachableBackends{
				Refs: []kind.BackendRef{{Kind: "MeshService", Name: fmt.Sprint("own-", i%services)}}}
		}
		batch.Put = append(batch.Put, dp, teamServing(i, false),
			timeoutAbout(team, map[string]string{"team": team}, "own-8", 2))
	}
	hub.Apply(batch)
	for i := range teams {
		b.Cleanup(hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: fmt.Sprint("d", i)}, func(*proxy.Proxy) {}))
	}
	return hub
}

func teamAddress(i int) string { return fmt.Sprintf("10.1.%d.%d", i>>8, i&255) }

func teamServing(i int, unhealthy bool) resource.Any {
	o := benchServing(i, unhealthy).(*resource.Object[kind.DataplaneListenerStatus])
	o.Spec.Inbounds[0].Address = teamAddress(i)
	return o
}

func timeoutAbout(name string, labels map[string]string, service string, seconds int) resource.Any {
	after := kind.Duration(time.Duration(seconds) * time.Second)
	policy := kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
		TargetRef: kind.DestinationRef{Kind: "MeshService", Name: service},
		Default:   kind.TimeoutConf{ConnectionTimeout: &after}}}}
	if labels != nil {
		policy.TargetRef = &kind.TargetRef{Kind: "Dataplane", Labels: labels}
	}
	return kind.MeshTimeouts.Make(mesh, name, policy)
}

// BenchmarkGroups measures the computation of a change where 500 proxy groups reach 300 services: the edit of a policy
// of the mesh about one service, and an endpoint of a service that all groups reach, or one of them.
func BenchmarkGroups(b *testing.B) {
	for _, alone := range []bool{false, true} {
		hub := teamWorld(b, alone)
		for name, change := range map[string]func(i int) resource.Any{
			"policy":   func(i int) resource.Any { return timeoutAbout("mesh", nil, "own-7", 1+i%100) },
			"endpoint": func(i int) resource.Any { return teamServing(7, i%2 == 0) },
		} {
			b.Run(fmt.Sprintf("%s/alone=%v", name, alone), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					hub.Apply(mirror.Batch{Put: []resource.Any{change(i)}})
				}
			})
		}
	}
}

// BenchmarkPoliciesOfANamespace measures the computation of a change beside the policies of one namespace, at a
// hundredth of their bound and at the bound, each about a service that all clients reach: of one of these policies, of
// a policy of somebody else, and of an endpoint of somebody else.
func BenchmarkPoliciesOfANamespace(b *testing.B) {
	for _, policies := range []int{10, 1000} {
		hub := benchWorld(b, 0, 0)
		batch := mirror.Batch{Put: []resource.Any{timeoutAbout("other", nil, "own-8", 1)}}
		for i := range policies {
			batch.Put = append(batch.Put, timeoutAbout(fmt.Sprint("of-shop-", i), nil, "own-7", 1))
		}
		hub.Apply(batch)
		for name, change := range map[string]func(i int) resource.Any{
			"own policy":     func(i int) resource.Any { return timeoutAbout("of-shop-5", nil, "own-7", 1+i%100) },
			"other policy":   func(i int) resource.Any { return timeoutAbout("other", nil, "own-8", 1+i%100) },
			"other endpoint": func(i int) resource.Any { return benchServing(i%100, i/100%2 == 0) },
		} {
			b.Run(fmt.Sprintf("%s/policies=%d", name, policies), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					hub.Apply(mirror.Batch{Put: []resource.Any{change(i)}})
				}
			})
		}
	}
}

// BenchmarkChange measures the computation of a change, before anything is sent. It does not grow with the services of
// other zones or with external services. Exceptions: a zone ingress has every service of its zone, and a zone egress
// every external service.
func BenchmarkChange(b *testing.B) {
	for _, others := range []struct{ remote, external int }{{0, 0}, {1000, 0}, {0, 1000}} {
		hub := benchWorld(b, others.remote, others.external)
		for name, change := range map[string]func(i int) resource.Any{
			"endpoint": func(i int) resource.Any { return benchServing(i%100, i/100%2 == 0) },
			"their state": func(i int) resource.Any {
				return benchRemoteService(i%10, []string{"Unavailable", "Available"}[i/10%2])
			},
			"their ingress": func(i int) resource.Any { return benchZoneAddress(i%10, 1+i%200) },
			"egress":        func(i int) resource.Any { return benchEgress(1 + i%200) },
		} {
			b.Run(fmt.Sprintf("%s/remote=%d,external=%d", name, others.remote, others.external), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					hub.Apply(mirror.Batch{Put: []resource.Any{change(i)}})
				}
			})
		}
	}
}
