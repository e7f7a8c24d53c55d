package push

import (
	"slices"
	"testing"
	"time"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// TestGroupsShareResources: groups that differ in their policies alone have the same encoded resources, and groups of
// other IP families the same clusters.
func TestGroupsShareResources(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), server("web-1", "10.0.0.1", "web", 8080), serving("web-1", "10.0.0.1", 8080))
	r := hub.reader()
	group := hub.state.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: mesh, Name: "client"}).Group
	group.Transparent, group.IPFamilies, group.Reach = true, "IPv4", "*"
	resources := func(group proxy.Group) []*xds.Resource {
		return hub.Inspector.config.group.shared.Get(r, group).Resources
	}
	all := resources(group)
	withPolicy, ofFamily := group, group
	withPolicy.Policies = proxy.PolicySetOf([]resource.Key{{Kind: "MeshTest", Mesh: mesh, Name: "a"}})
	ofFamily.IPFamilies = "IPv6"
	if len(all) == 0 || !slices.Equal(all, resources(withPolicy)) {
		t.Errorf("a group with a policy does not share the %d resources of the one without", len(all))
	}
	clusters := 0
	for _, o := range all {
		if o.Type == xds.Cluster {
			clusters++
			if !slices.Contains(resources(ofFamily), o) {
				t.Errorf("a group of another IP family does not share the cluster %s", o.Name)
			}
		}
	}
	if clusters == 0 {
		t.Error("the group has no cluster")
	}
}

// TestGroupsShareResourcesOfEqualConfs: groups with different policies share the resources of a destination for which
// the effective confs are equal, and others do not.
func TestGroupsShareResourcesOfEqualConfs(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), server("web-1", "10.0.0.1", "web", 8080), serving("web-1", "10.0.0.1", 8080),
		timeoutOf("a", "web", time.Second), timeoutOf("b", "web", time.Second), timeoutOf("c", "web", time.Minute),
		timeoutOf("d", "other", time.Minute))
	r := hub.reader()
	group := hub.state.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: mesh, Name: "client"}).Group
	group.Reach = "*"
	cluster := func(policies ...string) *xds.Resource {
		var keys []resource.Key
		for _, name := range policies {
			keys = append(keys, kind.MeshTimeouts.Key(mesh, name))
		}
		group.Policies = proxy.PolicySetOf(keys)
		for _, o := range hub.Inspector.config.group.shared.Get(r, group).Resources {
			if o.Type == xds.Cluster && o.Name == "kri_msvc_default_default__web_8080" {
				return o
			}
		}
		t.Fatalf("a group with the policies %v has no cluster", policies)
		return nil
	}
	of := cluster("a")
	for _, equal := range [][]string{{"b"}, {"a", "b"}, {"a", "c"}, {"b", "d"}} {
		if cluster(equal...) != of {
			t.Errorf("a group with the policies %v does not share the cluster of the one with a", equal)
		}
	}
	for _, other := range [][]string{nil, {"c"}, {"d"}} {
		if cluster(other...) == of {
			t.Errorf("a group with the policies %v shares the cluster of the one with a", other)
		}
	}
	if cluster("d") != cluster() {
		t.Error("a policy about another destination has another cluster")
	}
}
