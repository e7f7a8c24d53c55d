package push

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// patchOf is a MeshProxyPatch of the proxies with a name, which sets the name of the statistics of clusters of an
// origin.
func patchOf(name, target, origin, statistics string) resource.Any {
	return kind.MeshProxyPatches.Make(mesh, name, kind.MeshProxyPatch{
		TargetRef: &kind.TargetRef{Kind: "Dataplane", Name: target},
		Default: kind.ProxyPatchConf{AppendModifications: []kind.Modification{{
			Cluster: &kind.ClusterModification{Operation: kind.PatchChange, Match: &kind.ClusterMatch{Origin: origin},
				Change: kind.Change{Value: "altStatName: " + statistics}},
		}}},
	})
}

// redirectedServer is a server of the service web that reaches every service.
func redirectedServer(name, address string) resource.Any {
	o := server(name, address, "web", 8080)
	o.(*resource.Object[kind.Dataplane]).Spec.Networking.TransparentProxying = &kind.TransparentProxying{}
	return o
}

// patchedCluster returns a cluster of a proxy's configuration, with its resource.
func patchedCluster(t *testing.T, hub *Hub, proxy, name string) (*clusterv3.Cluster, *xds.Resource) {
	t.Helper()
	resources, _ := configOf(hub.Inspector.config, hub.reader(), state.ProxyKey{Mesh: mesh, Name: proxy})
	i := slices.IndexFunc(resources, func(r *xds.Resource) bool { return r.Type == xds.Cluster && r.Name == name })
	if i < 0 {
		t.Fatalf("%s has no cluster %s", proxy, name)
	}
	m, err := resources[i].Message()
	if err != nil {
		t.Fatal(err)
	}
	return m.(*clusterv3.Cluster), resources[i]
}

// TestPatchesReachTheProxiesThatTheyTarget: modifications of what proxies share make a group of the proxies that have
// them, and copies of what they change. Others keep their resources, and modifications of a proxy's own make no group.
func TestPatchesReachTheProxiesThatTheyTarget(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), redirectedServer("web-1", "10.0.0.1"), redirectedServer("web-2", "10.0.0.2"))
	group := func(name string) proxy.Group {
		return hub.state.Proxies.Proxy.Get(hub.reader(), state.ProxyKey{Mesh: mesh, Name: name}).Group
	}
	const cluster, inbound = "kri_msvc_default_default__web_8080", "self_inbound_10.0.0.1_8080"
	_, shared := patchedCluster(t, hub, "web-2", cluster)
	plain := group("web-1")
	put(hub, patchOf("own", "web-1", "inbound", "in"))
	if group("web-1") != plain {
		t.Error("a modification of own resources makes a proxy group")
	}
	if c, _ := patchedCluster(t, hub, "web-1", inbound); c.AltStatName != "in" {
		t.Errorf("the own cluster is %v", c)
	}
	put(hub, patchOf("shared", "web-1", "outbound", "out"))
	if group("web-1") == plain || group("web-2") != plain {
		t.Error("a modification of shared resources makes no group, or makes one of the others")
	}
	if c, _ := patchedCluster(t, hub, "web-1", cluster); c.AltStatName != "out" {
		t.Errorf("the modified cluster is %v", c)
	}
	if _, other := patchedCluster(t, hub, "web-2", cluster); other.Version != shared.Version {
		t.Error("the resources of a proxy that is not targeted change")
	}
	of := resource.Key{Kind: kind.MeshProxyPatches.Name, Mesh: mesh, Name: "shared"}
	if effect := hub.Inspector.PatchEffect(of); effect.Proxies != 1 || effect.Matches != 1 || len(effect.Problems) > 0 {
		t.Errorf("the effect of the policy is %+v", effect)
	}
	key := state.ProxyKey{Mesh: mesh, Name: "web-1"}
	causes := hub.Rows.Causes(key, xds.Cluster, cluster)
	if want := (kind.Cause{Kind: of.Kind, Name: of.Name}); !slices.Contains(causes, want) {
		t.Errorf("the causes of the cluster are %v", causes)
	}
	notes := hub.Inspector.Applied(key).WholeProxy[0].Notes
	if want := "appendModifications[1] changes 1 resources, filters or virtual hosts"; !slices.Contains(notes, want) {
		t.Errorf("the notes are %q", notes)
	}
}

// TestARejectedPatchIsTakenBack: a proxy has the resource without modifications whose modified version was rejected,
// until the policy is written again.
func TestARejectedPatchIsTakenBack(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	const cluster = "kri_msvc_default_default__web_8080"
	put(hub, web("web"), redirectedServer("web-1", "10.0.0.1"), patchOf("p", "web-1", "outbound", "out"))
	_, modified := patchedCluster(t, hub, "web-1", cluster)
	cause := kind.Cause{Kind: kind.MeshProxyPatches.Name, Name: "p"}
	nack := func(version string) resource.Any {
		return kind.DataplaneInsights.Make(mesh, "web-1", kind.DataplaneInsight{NACKs: []kind.NACK{{Type: "cluster",
			Name: cluster, Version: version, Message: "no", Causes: []kind.Cause{cause}}}})
	}
	put(hub, nack("another version"))
	if c, _ := patchedCluster(t, hub, "web-1", cluster); c.AltStatName != "out" {
		t.Errorf("after the rejection of another version the cluster is %v", c)
	}
	put(hub, nack(modified.Version))
	if c, _ := patchedCluster(t, hub, "web-1", cluster); c.AltStatName != "" {
		t.Errorf("after the rejection the cluster is %v", c)
	}
	put(hub, kind.DataplaneInsights.Make(mesh, "web-1", kind.DataplaneInsight{}))
	if c, _ := patchedCluster(t, hub, "web-1", cluster); c.AltStatName != "" {
		t.Error("the modification returns once the proxy accepts the resource without it")
	}
	put(hub, patchOf("p", "web-1", "outbound", "out"))
	if c, _ := patchedCluster(t, hub, "web-1", cluster); c.AltStatName != "out" {
		t.Error("the policy was written again, and has no effect")
	}
}
