package push

import (
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// limitOf returns a policy of some proxies about the traffic to some destinations.
func limitOf(name string, target *kind.TargetRef, to kind.DestinationRef, connections uint32) resource.Any {
	return kind.MeshCircuitBreakers.Make(mesh, name, kind.MeshCircuitBreaker{TargetRef: target,
		To: []kind.ToItem[kind.CircuitBreakerConf]{{TargetRef: to, Default: kind.CircuitBreakerConf{
			ConnectionLimits: &kind.ConnectionLimits{MaxConnections: &connections}}}}})
}

// clusterOf returns the cluster of a name in the resource sets of a proxy.
func clusterOf(t *testing.T, hub *Hub, key state.ProxyKey, name string) (*xds.Resource, *clusterv3.Cluster) {
	t.Helper()
	for _, set := range hub.Proxies.setsOf(hub.Proxies.used[key]) {
		for _, r := range set.Resources() {
			if r.Type != xds.Cluster || r.Name != name {
				continue
			}
			m, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			return r, m.(*clusterv3.Cluster)
		}
	}
	t.Fatalf("%s has no cluster %s", key, name)
	return nil, nil
}

// TestPoliciesOfZoneIngresses: an ingress applies the policies that target it, a ZoneIngress those of the whole mesh.
// Ingresses with other policies share the clusters with equal confs, and no change of them touches a listener.
func TestPoliciesOfZoneIngresses(t *testing.T) {
	const sni = "a.web.8080.default.ms"
	hub, _, _ := newHub(t, never{})
	named := func(name, section string) *kind.TargetRef {
		return &kind.TargetRef{Kind: "Dataplane", Name: name, SectionName: section}
	}
	service := kind.DestinationRef{Kind: "MeshService", Name: "web"}
	both := zoneIngressOf("one", "10.0.0.1").(*resource.Object[kind.Dataplane])
	both.Spec.Networking.ZoneEgress = &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002, Name: "ze-port"}
	put(hub, kind.Meshes.Make("", mesh, kind.Mesh{}), withSNI(sni), both, zoneIngressOf("two", "10.0.0.2"),
		kind.ZoneIngresses.Make("", "old", kind.ZoneIngress{
			Networking: kind.ZoneIngressNetworking{Address: "10.0.0.3", Port: 10001}}))
	one, two, old := watched(t, hub, "one"), watched(t, hub, "two"), state.ZoneIngressProxy("old")
	t.Cleanup(hub.Proxies.Watch(old, func(*proxy.Proxy) {}))
	limits := func() [3]uint32 {
		var got [3]uint32
		for i, key := range []state.ProxyKey{one, two, old} {
			_, cluster := clusterOf(t, hub, key, sni)
			if n := cluster.CircuitBreakers.Thresholds[0].MaxConnections.Value; n < 1<<32-1 {
				got[i] = n
			}
		}
		return got
	}
	own := hub.Proxies.used[one].own
	for _, c := range []struct {
		name   string
		change resource.Any
		want   [3]uint32
	}{
		{"another section", limitOf("p", named("one", "ze-port"), service, 1), [3]uint32{}},
		{"another service", limitOf("p", named("one", ""), kind.DestinationRef{Kind: "MeshService", Name: "x"}, 1),
			[3]uint32{}},
		{"one ingress", limitOf("p", named("one", "10001"), service, 2), [3]uint32{2}},
		{"the other, with an equal conf", limitOf("q", named("two", ""), service, 2), [3]uint32{2, 2}},
		{"the mesh", limitOf("all", nil, kind.DestinationRef{Kind: "Mesh"}, 3), [3]uint32{2, 2, 3}},
		{"timeouts", timeoutOf("t", "web", time.Second), [3]uint32{2, 2, 3}},
	} {
		put(hub, c.change)
		if got := limits(); got != c.want {
			t.Errorf("%s: the limits are %v, want %v", c.name, got, c.want)
		}
	}
	first, _ := clusterOf(t, hub, one, sni)
	second, _ := clusterOf(t, hub, two, sni)
	if first != second {
		t.Error("two ingresses with equal confs have clusters of their own")
	}
	if !slices.Equal(versionsOf(own.Resources), versionsOf(hub.Proxies.used[one].own.Resources)) {
		t.Error("the ingress has other listeners")
	}
	causes := hub.Rows.Causes(one, xds.Cluster, sni)
	if want := (kind.Cause{Kind: "MeshCircuitBreaker", Name: "p"}); !slices.Contains(causes, want) {
		t.Errorf("the causes of the cluster are %v, want %v too", causes, want)
	}
}

// TestPoliciesOfZoneEgresses: an egress applies the policies about external services that target it, and the timeouts
// of its rules. An edit of either changes no listener.
func TestPoliciesOfZoneEgresses(t *testing.T) {
	const cluster = "kri_extsvc_default_default__api_443_external"
	hub, _, _ := newHub(t, never{})
	api := kind.DestinationRef{Kind: "MeshExternalService", Name: "api"}
	section := &kind.TargetRef{Kind: "Dataplane", Name: "one", SectionName: "ze-port"}
	put(hub, kind.Meshes.Make("", mesh, kind.Mesh{}), everybody(), zoneEgress("one", "10.0.0.1"),
		zoneEgress("two", "10.0.0.2"), externalService("api", "192.0.2.1"))
	one, two := watched(t, hub, "one"), watched(t, hub, "two")
	listeners := func() []*xds.Resource {
		config, _ := hub.Inspector.Config(one)
		return slices.DeleteFunc(config, func(r *xds.Resource) bool { return r.Type != xds.Listener })
	}
	before := listeners()
	shared, _ := clusterOf(t, hub, two, cluster)
	put(hub, limitOf("p", section, api, 2), limitOf("q", section, kind.DestinationRef{Kind: "MeshService", Name: "api"},
		9))
	if _, c := clusterOf(t, hub, one, cluster); c.CircuitBreakers.Thresholds[0].MaxConnections.Value != 2 {
		t.Errorf("the limits of the egress are %v", c.CircuitBreakers)
	}
	connection := kind.Duration(9 * time.Second)
	put(hub, kind.MeshTimeouts.Make(mesh, "t", kind.MeshTimeout{TargetRef: section,
		Rules: []kind.RuleItem[kind.TimeoutConf]{{Default: kind.TimeoutConf{ConnectionTimeout: &connection}}}}))
	_, c := clusterOf(t, hub, one, cluster)
	if c.CircuitBreakers.Thresholds[0].MaxConnections.Value != 2 || c.ConnectTimeout.AsDuration() != 9*time.Second {
		t.Errorf("the timeout of the egress is %v, its limits are %v", c.ConnectTimeout, c.CircuitBreakers)
	}
	if after, _ := clusterOf(t, hub, two, cluster); after != shared {
		t.Error("a policy about one egress changes the cluster of another")
	}
	if after := listeners(); !slices.Equal(versionsOf(before), versionsOf(after)) {
		t.Error("the listeners of the egress have changed")
	}
	causes := hub.Rows.Causes(one, xds.Cluster, cluster)
	for _, want := range []kind.Cause{{Kind: "MeshCircuitBreaker", Name: "p"}} {
		if !slices.Contains(causes, want) {
			t.Errorf("the causes of the cluster are %v, want %v too", causes, want)
		}
	}
}

func versionsOf(resources []*xds.Resource) []string {
	var versions []string
	for _, r := range resources {
		versions = append(versions, r.Name+" "+r.Version)
	}
	return versions
}
