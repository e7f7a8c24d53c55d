package push

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"

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

// oneMatch is the effect of a policy with one match.
const oneMatch = "it configures 1 proxy; of 1 selected proxy it changes 1: 1 resource, filter or virtual host"

// appliedOf returns the condition Applied of a MeshProxyPatch, with the warnings of its status as the reason's text.
func appliedOf(t *testing.T, hub *Hub, name string) kind.Condition {
	t.Helper()
	reports := hub.Inspector.reports()
	key := resource.Key{Kind: kind.MeshProxyPatches.Name, Mesh: mesh, Name: name}
	o, ok := hub.state.Tables.Find(reports.Reader(), key)
	if !ok {
		t.Fatalf("there is no policy %s", name)
	}
	status := reports.PolicyEffects().Status(o)
	applied := status.Conditions[len(status.Conditions)-1]
	applied.Message = strings.Join(append([]string{applied.Message}, status.Warnings...), "; ")
	return applied
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
	if applied := appliedOf(t, hub, "shared"); applied.Message != oneMatch {
		t.Errorf("the effect of the policy is %+v", applied)
	}
	key := state.ProxyKey{Mesh: mesh, Name: "web-1"}
	causes := hub.Rows.Causes(key, xds.Cluster, cluster)
	if want := (kind.Cause{Kind: of.Kind, Name: of.Name}); !slices.Contains(causes, want) {
		t.Errorf("the causes of the cluster are %v", causes)
	}
	notes := hub.Inspector.AppliedConfs(key).WholeProxy[0].Notes
	if want := "appendModifications[1] changes 1 resources, filters or virtual hosts"; !slices.Contains(notes, want) {
		t.Errorf("the notes are %q", notes)
	}
}

// TestListenersOfVirtualIPsHaveTheNamesOfAddresses: a service that takes the address of another one takes its listener,
// and a modification finds the listener by the name of the destination too.
func TestListenersOfVirtualIPsHaveTheNamesOfAddresses(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	vip := func(service, ip string) resource.Any {
		return kind.MeshServiceStatuses.Make(mesh, service, kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: ip}}})
	}
	shop := web("shop")
	shop.Envelope().Name = "shop"
	put(hub, web("web"), shop, redirectedServer("web-1", "10.0.0.1"), vip("web", "241.0.0.1"),
		vip("shop", "241.0.0.2"), kind.MeshProxyPatches.Make(mesh, "p", kind.MeshProxyPatch{
			Default: kind.ProxyPatchConf{AppendModifications: []kind.Modification{{
				Listener: &kind.ListenerModification{Operation: kind.PatchChange, Match: &kind.ListenerMatch{
					ClusterMatch: kind.ClusterMatch{Name: "kri_msvc_default_default__shop_8080"}},
					Change: kind.Change{Value: "statPrefix: shop"}}}}}}))
	key := state.ProxyKey{Mesh: mesh, Name: "web-1"}
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		resources, _ := hub.Inspector.Config(key)
		for _, r := range resources {
			m, err := r.Message()
			if l, ok := m.(*listenerv3.Listener); err == nil && ok && strings.HasPrefix(r.Name, "vip_") {
				got[r.Name] = l.StatPrefix
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s the listeners are %v, want %v", when, got, want)
		}
	}
	check("at first", map[string]string{"vip_241.0.0.1_8080": "", "vip_241.0.0.2_8080": "shop"})
	if causes := hub.Rows.Causes(key, xds.Listener, "vip_241.0.0.2_8080"); !slices.Equal(causes, []kind.Cause{
		{Kind: "MeshService", Name: "shop"}, {Kind: "MeshProxyPatch", Name: "p"}}) {
		t.Errorf("the causes are %v", causes)
	}
	put(hub, vip("web", "241.0.0.2"), vip("shop", "241.0.0.1"))
	check("after they swap", map[string]string{"vip_241.0.0.1_8080": "shop", "vip_241.0.0.2_8080": ""})
}

// modifying is a MeshProxyPatch with modifications of clusters: their names of statistics by origin.
func modifying(name string, target *kind.TargetRef, statistics map[string]string) resource.Any {
	var all []kind.Modification
	for _, origin := range slices.Sorted(maps.Keys(statistics)) {
		all = append(all, kind.Modification{Cluster: &kind.ClusterModification{Operation: kind.PatchChange,
			Match:  &kind.ClusterMatch{Origin: origin},
			Change: kind.Change{Value: "altStatName: " + statistics[origin]}}})
	}
	return kind.MeshProxyPatches.Make(mesh, name, kind.MeshProxyPatch{TargetRef: target,
		Default: kind.ProxyPatchConf{AppendModifications: all}})
}

// TestPatchesOfZoneProxies: a zone proxy has the modifications of the policies that target it. A ZoneIngress and a
// ZoneEgress have those of the whole mesh, of the resources that are of the mesh's services alone. Zone proxies with
// equal modifications share the resources.
func TestPatchesOfZoneProxies(t *testing.T) {
	const sni, external, other = "a.web.8080.default.ms", "kri_extsvc_default_default__api_443_external",
		"kri_extsvc_other_default__api_443_external"
	hub, _, _ := newHub(t, never{})
	labeled := func(o resource.Any, name string) resource.Any {
		o.Envelope().Labels = map[string]string{name: "enabled"}
		return o
	}
	for _, name := range []string{mesh, "other"} {
		identity, service := everybody(), externalService("api", "192.0.2.1")
		identity.Envelope().Mesh, service.Envelope().Mesh = name, name
		put(hub, kind.Meshes.Make("", name, kind.Mesh{}), identity, service,
			kind.MeshTrusts.Make(name, "identity", kind.MeshTrust{TrustDomain: name + ".default.mesh.local",
				CABundles: []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "root of " + name}}}}))
	}
	put(hub, withSNI(sni), zoneIngressOf("in-1", "10.0.0.1"), zoneIngressOf("in-2", "10.0.0.2"),
		zoneEgress("out-1", "10.0.0.4"), labeled(zoneEgress("out-2", "10.0.0.5"), "kuma.io/listener-zoneegress"),
		kind.ZoneIngresses.Make("", "old", kind.ZoneIngress{
			Networking: kind.ZoneIngressNetworking{Address: "10.0.0.3", Port: 10001}}),
		kind.ZoneEgresses.Make("", "old", kind.ZoneEgress{
			Networking: kind.ZoneEgressNetworking{Address: "10.0.0.6", Port: 10002}}))
	in1, in2, out1, out2 := watched(t, hub, "in-1"), watched(t, hub, "in-2"), watched(t, hub, "out-1"),
		watched(t, hub, "out-2")
	oldIn, oldOut := state.ZoneIngressProxy("old"), state.ZoneEgressProxy("old")
	t.Cleanup(hub.Proxies.Watch(oldIn, func(*proxy.Proxy) {}))
	t.Cleanup(hub.Proxies.Watch(oldOut, func(*proxy.Proxy) {}))
	named := func(name string) *kind.TargetRef { return &kind.TargetRef{Kind: "Dataplane", Name: name} }
	statistics := func() string {
		var texts []string
		for _, at := range []struct {
			key     state.ProxyKey
			cluster string
		}{{in1, sni}, {in2, sni}, {oldIn, sni}, {out1, external}, {out2, external}, {oldOut, external},
			{oldOut, other}} {
			_, cluster := clusterOf(t, hub, at.key, at.cluster)
			texts = append(texts, cmp.Or(cluster.AltStatName, "-"))
		}
		return strings.Join(texts, " ")
	}
	listeners := func() []string {
		var versions []string
		for _, key := range []state.ProxyKey{in1, in2, oldIn, out1, out2, oldOut} {
			config, _ := hub.Inspector.Config(key)
			versions = append(versions, versionsOf(slices.DeleteFunc(config, func(r *xds.Resource) bool {
				return r.Type != xds.Listener
			}))...)
		}
		return versions
	}
	before := listeners()
	for _, c := range []struct {
		name         string
		change       resource.Any
		want, effect string // the policy is "p"
	}{
		{"an ingress by name", modifying("p", named("in-1"), map[string]string{"ingress": "a"}), "a - - - - - -",
			oneMatch},
		{"another origin", modifying("p", named("in-1"), map[string]string{"egress": "a"}), "- - - - - - -",
			"its modifications match nothing of 1 selected proxy; appendModifications[0] matches nothing of 1 " +
				"selected proxy"},
		{"every origin", modifying("p", named("in-1"), map[string]string{"": "a"}), "a - - - - - -", oneMatch},
		{"egresses by label", modifying("p", &kind.TargetRef{Kind: "Dataplane",
			Labels: map[string]string{"kuma.io/listener-zoneegress": "enabled"}}, map[string]string{"egress": "b"}),
			"- - - - b - -",
			oneMatch},
		{"the mesh", modifying("p", nil, map[string]string{"ingress": "c", "egress": "d"}), "c c c d d d -",
			"it configures 5 proxies; of 7 selected proxies it changes 6: 6 resources, filters or virtual hosts"},
	} {
		put(hub, c.change)
		if got := statistics(); got != c.want {
			t.Errorf("%s: the clusters have %s, want %s", c.name, got, c.want)
		}
		if got := appliedOf(t, hub, "p").Message; got != c.effect {
			t.Errorf("%s: the effect is %s; want %s", c.name, got, c.effect)
		}
	}
	first, _ := clusterOf(t, hub, in1, sni)
	if second, _ := clusterOf(t, hub, in2, sni); first != second {
		t.Error("two ingresses with equal modifications have clusters of their own")
	}
	if after := listeners(); !slices.Equal(before, after) {
		t.Errorf("the listeners have changed: %v, before %v", after, before)
	}

	// A filter of the chains of external services is in a listener of every mesh; a discovered filter is of one.
	put(hub, kind.MeshProxyPatches.Make(mesh, "p", kind.MeshProxyPatch{Default: kind.ProxyPatchConf{
		AppendModifications: []kind.Modification{
			{Listener: &kind.ListenerModification{Operation: kind.PatchChange, Match: &kind.ListenerMatch{
				ClusterMatch: kind.ClusterMatch{Name: "self_egress_10.0.0.6_10002"}},
				Change: kind.Change{Value: "statPrefix: x"}}},
			{HTTPFilter: &kind.FilterModification{Operation: kind.PatchChange, Match: &kind.FilterMatch{
				Name: "envoy.filters.http.router", Origin: "egress", ListenerName: "self_egress_10.0.0.6_10002"},
				Change: kind.Change{Value: "typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters." +
					"http.router.v3.Router, startChildSpan: true}"}}}}}}))
	if after := listeners(); !slices.Equal(before, after) {
		t.Error("a policy of one mesh changes a listener of every mesh")
	}
	patched := map[string]bool{}
	config, _ := hub.Inspector.Config(oldOut)
	for _, r := range config {
		m, err := r.Message()
		if extension, ok := m.(*corev3.TypedExtensionConfig); err == nil && ok {
			router := &routerv3.Router{}
			patched[r.Name] = extension.TypedConfig.UnmarshalTo(router) == nil && router.StartChildSpan
		}
	}
	for name, is := range patched {
		if want := name == "self_router_kri_extsvc_default_default__api_443"; is != want {
			t.Errorf("%s is modified: %v, want %v", name, is, want)
		}
	}
	if got := appliedOf(t, hub, "p").Message; !strings.Contains(got, "appendModifications[0] is about resources by "+
		"which a ZoneIngress or ZoneEgress serves every mesh") {
		t.Errorf("the effect is %s", got)
	}

	// The modification is left out for one proxy of every mesh, until the policy is written again.
	put(hub, modifying("p", nil, map[string]string{"ingress": "c"}))
	cause := kind.Cause{Kind: kind.MeshProxyPatches.Name, Name: "p", Mesh: mesh}
	if causes := hub.Rows.Causes(oldIn, xds.Cluster, sni); !slices.Contains(causes, cause) {
		t.Fatalf("the causes are %v", causes)
	}
	put(hub, kind.ZoneIngressInsights.Make("", "old", kind.DataplaneInsight{Exceptions: []kind.Exception{{
		Policy: cause, State: kind.ExceptionAlone}}}))
	if got, want := statistics(), "c c - - - - -"; got != want {
		t.Errorf("with an exception the clusters have %s, want %s", got, want)
	}
	again := modifying("p", nil, map[string]string{"ingress": "c"})
	again.Envelope().Version = "2"
	put(hub, again)
	if got, want := statistics(), "c c c - - - -"; got != want {
		t.Errorf("after the policy is written again the clusters have %s", got)
	}
}

// TestAPatchThatIsNotAppliedSaysSo: where Envoy would reject the result of a MeshProxyPatch, the proxy keeps the
// resource without it, and the policy is not accepted.
func TestAPatchThatIsNotAppliedSaysSo(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	const value = "{name: b, typedConfig: {'@type': type.googleapis.com/" +
		"envoy.extensions.filters.http.buffer.v3.Buffer, maxRequestBytes: 9}}"
	filter := func(operation, value string) kind.Modification {
		return kind.Modification{HTTPFilter: &kind.FilterModification{Operation: operation,
			Change: kind.Change{Value: value}}}
	}
	put(hub, web("web"), redirectedServer("web-1", "10.0.0.1"))
	listeners := func() map[string]string {
		versions := map[string]string{}
		resources, _ := hub.Inspector.Config(state.ProxyKey{Mesh: mesh, Name: "web-1"})
		for _, r := range resources {
			if r.Type == xds.Listener {
				versions[r.Name] = r.Version
			}
		}
		return versions
	}
	before := listeners()
	put(hub, kind.MeshProxyPatches.Make(mesh, "p", kind.MeshProxyPatch{Default: kind.ProxyPatchConf{
		AppendModifications: []kind.Modification{filter(kind.PatchRemove, ""), filter(kind.PatchAddFirst, value)}}}))
	after := listeners()
	reports := hub.Inspector.reports()
	of := resource.Key{Kind: kind.MeshProxyPatches.Name, Mesh: mesh, Name: "p"}
	o, _ := hub.state.Tables.Find(reports.Reader(), of)
	accepted := reports.PolicyEffects().Status(o).Conditions[0]
	if accepted.Status != "False" || accepted.Reason != kind.InvalidResult ||
		!strings.Contains(accepted.Message, `the last HTTP filter is "b", which ends no chain`) {
		t.Errorf("the condition is %+v", accepted)
	}
	if !maps.Equal(before, after) {
		t.Errorf("the listeners are %v, want %v", after, before)
	}
}
