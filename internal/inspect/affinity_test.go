package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/proxy"
	"weft/internal/table"
	"weft/kind"
)

// TestManyProxyGroupsAreAWarning: a policy whose affinity tags make more than the limit of proxy groups has a warning.
func TestManyProxyGroupsAreAWarning(t *testing.T) {
	near := kind.LocalityAwareness{LocalZone: &kind.LocalZone{AffinityTags: []kind.AffinityTag{{Key: "node"}}}}
	of := kind.MeshLoadBalancingStrategies.Make("default", "near", kind.MeshLoadBalancingStrategy{
		To: []kind.ToItem[kind.LoadBalancingConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"},
			Default: kind.LoadBalancingConf{LocalityAwareness: &near}}},
	})
	s := graph.NewState("east")
	put := func(nodes int) {
		s.Tables.DB.Commit(func(tx *table.Tx) {
			s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			s.Tables.Put(tx, of)
			s.Tables.Put(tx, kind.MeshServices.Make("default", "web", kind.MeshService{
				Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
				Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}},
			}))
			for i := range nodes {
				dp := kind.Dataplanes.Make("default", fmt.Sprint("web-", i), kind.Dataplane{Networking: kind.Networking{
					Address: fmt.Sprintf("10.0.0.%d", i+1),
					Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: "web"}}},
				}})
				dp.Labels = map[string]string{"node": fmt.Sprint("n", i)}
				s.Tables.Put(tx, dp)
			}
		})
	}
	const warning = "affinityTags divide the proxies into more than 64 proxy groups"
	for _, nodes := range []int{proxy.AffinityLimit, proxy.AffinityLimit + 1} {
		put(nodes)
		status := inspect.NewReports(s, s.Tables.DB.Snapshot()).PolicyEffects().Status(of)
		warned := slices.ContainsFunc(status.Warnings, func(w string) bool { return strings.HasPrefix(w, warning) })
		if want := nodes > proxy.AffinityLimit; warned != want {
			t.Errorf("with %d groups, the warnings are %v", nodes, status.Warnings)
		}
	}
}
