package push

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/envoy"
	"weft/internal/proxy"
	"weft/internal/service"
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
		return hub.Inspector.config.group.shared.Get(r, group).resources()
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

// TestProxiesShareTheListenersOfRedirectedConnections: proxies with the same ports for redirected connections have the
// same encoded listeners, and others do not.
func TestProxiesShareTheListenersOfRedirectedConnections(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	redirected := func(name string, inbound uint32) *resource.Object[kind.Dataplane] {
		return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.7", TransparentProxying: &kind.TransparentProxying{RedirectPortInbound: inbound},
		}})
	}
	put(hub, redirected("a", 0), redirected("b", 15006), redirected("c", 16006))
	captures := func(name string) (all []*xds.Resource) {
		own := hub.Inspector.config.own.Get(hub.reader(), state.ProxyKey{Mesh: mesh, Name: name})
		for _, o := range own.Resources {
			if strings.HasPrefix(o.Name, envoy.CapturePrefix) {
				all = append(all, o)
			}
		}
		return all
	}
	hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: "a"}, func(*proxy.Proxy) {})
	hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: "b"}, func(*proxy.Proxy) {})
	ofUsed := func(name string) []*xds.Resource {
		return hub.Proxies.used[state.ProxyKey{Mesh: mesh, Name: name}].own.Resources
	}
	if a, b := ofUsed("a"), ofUsed("b"); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("two proxies with the same ports do not share their %d and %d resources", len(a), len(b))
	}
	if a, c := captures("a"), captures("c"); len(c) == 0 || len(a) != len(c) || slices.EqualFunc(a, c, sameResource) {
		t.Errorf("a proxy with another port has the listeners of another one, %d", len(c))
	}
}

// TestProxiesShareThePartsOfTheirInbounds: proxies with inbounds on one port have the same encoded contents of slots.
func TestProxiesShareThePartsOfTheirInbounds(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	inbound := func(name, address string, port uint32) *resource.Object[kind.Dataplane] {
		return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
			Address: address, Inbound: []kind.Inbound{{
				Port: port, Tags: map[string]string{kind.ServiceTag: "web", kind.ProtocolTag: "http"},
			}},
		}})
	}
	put(hub, inbound("a", "10.0.0.1", 8080), inbound("b", "10.0.0.2", 8080), inbound("c", "10.0.0.3", 8081))
	slots := func(name string) (all []*xds.Resource) {
		key := state.ProxyKey{Mesh: mesh, Name: name}
		hub.Proxies.Watch(key, func(*proxy.Proxy) {})
		for _, o := range hub.Proxies.used[key].own.Resources {
			if o.Type == xds.Extension {
				all = append(all, o)
			}
		}
		return all
	}
	a, b, c := slots("a"), slots("b"), slots("c")
	if len(a) != 2 || !slices.Equal(a, b) {
		t.Errorf("two proxies with the same port do not share the contents of 2 slots: %v, %v", a, b)
	}
	if len(c) != 2 || slices.EqualFunc(a, c, sameResource) {
		t.Errorf("a proxy with another port has the contents of another one: %v", c)
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
		for _, o := range hub.Inspector.config.group.shared.Get(r, group).resources() {
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

// routeOf is a MeshHTTPRoute that leads the requests to "web" below /a to backends.
func routeOf(name, to string, backends ...string) resource.Any {
	route := kind.HTTPRouteRule{Matches: []kind.HTTPMatch{{Path: &kind.PathMatch{Type: kind.PathPrefix, Value: "/a"}}}}
	for _, backend := range backends {
		route.Default.BackendRefs = append(route.Default.BackendRefs,
			kind.RouteBackendRef{Kind: "MeshService", Name: backend, Port: 8080})
	}
	return kind.MeshHTTPRoutes.Make(mesh, name, kind.MeshHTTPRoute{To: []kind.HTTPRouteTo{{
		TargetRef: kind.RoutedRef{Kind: "MeshService", Name: to}, Rules: []kind.HTTPRouteRule{route},
	}}})
}

// TestGroupsShareResourcesOfEqualRoutes: groups with different policies share the route of a destination where the
// policies route it alike, and others do not. The clusters and endpoint lists of backends are there, also outside the
// reach of the group.
func TestGroupsShareResourcesOfEqualRoutes(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	webOf := func(name string) resource.Any {
		return kind.MeshServices.Make(mesh, name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 8080, AppProtocol: kind.HTTP}},
		})
	}
	put(hub, webOf("web"), webOf("other"), routeOf("a", "web", "other"), routeOf("b", "web", "other"),
		routeOf("c", "web", "web"), routeOf("d", "other", "web"))
	r := hub.reader()
	group := hub.state.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: mesh, Name: "client"}).Group
	group.Reach = `[{"n":"web"}]`
	shared := func(policies ...string) (route *xds.Resource, clusters, lists []string) {
		var keys []resource.Key
		for _, name := range policies {
			keys = append(keys, kind.MeshHTTPRoutes.Key(mesh, name))
		}
		group.Policies = proxy.PolicySetOf(keys)
		of := hub.Inspector.config.group.shared.Get(r, group)
		for _, o := range of.resources() {
			switch o.Type {
			case xds.Route:
				route = o
			case xds.Cluster:
				clusters = append(clusters, o.Name)
			}
		}
		for _, list := range of.lists() {
			lists = append(lists, list.String())
		}
		slices.Sort(lists)
		return route, clusters, slices.Compact(lists)
	}
	const web, other = "kri_msvc_default_default__web_8080", "kri_msvc_default_default__other_8080"
	route, clusters, lists := shared("a")
	if want := []string{other, web}; !slices.Equal(clusters, want) || !slices.Equal(lists, want) {
		t.Errorf("a group that reaches web has the clusters %v and the endpoints %v, want %v", clusters, lists, want)
	}
	for _, equal := range [][]string{{"b"}, {"a", "b"}, {"a", "c"}, {"b", "d"}} {
		if got, _, _ := shared(equal...); got != route {
			t.Errorf("a group with the policies %v does not share the route of the one with a", equal)
		}
	}
	for _, another := range [][]string{nil, {"c"}, {"d"}} {
		if got, _, _ := shared(another...); got == route {
			t.Errorf("a group with the policies %v shares the route of the one with a", another)
		}
	}
	without, clusters, _ := shared()
	if got, _, _ := shared("d"); got != without || !slices.Equal(clusters, []string{web}) {
		t.Errorf("a policy about another destination has another route, or its clusters: %v", clusters)
	}
}

// TestGroupsShareListsOfEqualViews: groups whose clients' values make no difference for a destination share its
// endpoint list, and those of other clients have a view of their own. All share the cluster.
func TestGroupsShareListsOfEqualViews(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	onNode := server("web-1", "10.0.0.1", "web", 8080)
	onNode.Envelope().Labels = map[string]string{"node": "1"}
	put(hub, web("web"), onNode, serving("web-1", "10.0.0.1", 8080),
		kind.MeshLoadBalancingStrategies.Make(mesh, "near", kind.MeshLoadBalancingStrategy{
			To: []kind.ToItem[kind.LoadBalancingConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"},
				Default: kind.LoadBalancingConf{LocalityAwareness: &kind.LocalityAwareness{
					LocalZone: &kind.LocalZone{AffinityTags: []kind.AffinityTag{{Key: "node"}}}}}}},
		}))
	r := hub.reader()
	group := hub.state.Proxies.Proxy.Get(r, state.ProxyKey{Mesh: mesh, Name: "client"}).Group
	group.Reach = "*"
	shared := func(node string) (*xds.Resource, service.List) {
		group.Affinity = service.AffinityOf(map[string]string{"node": node})
		of := hub.Inspector.config.group.shared.Get(r, group)
		for _, o := range of.resources() {
			if o.Type == xds.Cluster && o.Name == "kri_msvc_default_default__web_8080" {
				return o, of.lists()[0]
			}
		}
		t.Fatal("the group has no cluster")
		return nil, service.List{}
	}
	cluster1, list1 := shared("1")
	cluster2, list2 := shared("2")
	cluster3, list3 := shared("3")
	if list1 == list2 || list2 != list3 || list1.String() != list2.String() {
		t.Errorf("the lists are %+v, %+v and %+v", list1, list2, list3)
	}
	if cluster1 != cluster2 || cluster2 != cluster3 {
		t.Error("the groups do not share the cluster")
	}
}
