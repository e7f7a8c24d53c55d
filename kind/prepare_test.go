package kind_test

import (
	"fmt"
	"testing"

	"weft/kind"
	"weft/resource"
)

// BenchmarkPrepare prepares a large valid resource, as each write and each received resource does.
func BenchmarkPrepare(b *testing.B) {
	var dp kind.Dataplane
	dp.Networking.Address = "10.0.0.1"
	for i := range 200 {
		dp.Networking.Inbound = append(dp.Networking.Inbound, kind.Inbound{Port: uint32(1000 + i),
			ServicePort: uint32(2000 + i), Name: fmt.Sprintf("p%d", i), Protocol: kind.HTTP,
			Tags: map[string]string{"kuma.io/service": "web", "version": "v1", "team": "a"}})
	}
	for i := range 1000 {
		dp.Networking.Outbound = append(dp.Networking.Outbound, kind.Outbound{Port: uint32(10_000 + i),
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: fmt.Sprintf("s%d", i), Port: 80}})
	}
	var route kind.MeshHTTPRoute
	to := kind.HTTPRouteTo{TargetRef: kind.RoutedRef{Kind: "MeshService", Name: "web"}}
	for i := range 200 {
		to.Rules = append(to.Rules, kind.HTTPRouteRule{
			Matches: []kind.HTTPMatch{
				{Path: &kind.PathMatch{Type: kind.PathPrefix, Value: fmt.Sprintf("/a/%d", i)}},
				{Path: &kind.PathMatch{Type: kind.PathExact, Value: fmt.Sprintf("/b/%d", i)}, Method: "GET",
					Headers: []kind.HeaderMatch{{Name: "x-a", Value: "b"}}}},
			Default: kind.HTTPRouteAction{BackendRefs: []kind.RouteBackendRef{
				{Kind: "MeshService", Name: "v1", Port: 80}, {Kind: "MeshService", Name: "v2", Port: 80}}},
		})
	}
	route.To = append(route.To, to)
	for _, o := range []resource.Any{kind.Dataplanes.Make("m", "a", dp), kind.MeshHTTPRoutes.Make("m", "a", route)} {
		b.Run(o.Key().Kind, func(b *testing.B) {
			d := kind.ByName(o.Key().Kind)
			for b.Loop() {
				if problems := d.Prepare(o); len(problems) > 0 {
					b.Fatal(problems)
				}
			}
		})
	}
}
