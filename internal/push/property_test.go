package push

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"pgregory.net/rapid"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// The worlds are small, so that every change meets every other one: a few names, all of them used by all kinds.
var (
	proxyNames    = []string{"d1", "d2", "d3", "d4"}
	serviceNames  = []string{"s1", "s2", "s3"}
	retainedNames = []string{"s1-443", "s2-443"}
	policyNames   = []string{"p1", "p2"}
	workloads     = []string{"red", "blue"}
)

const mesh = "default"

// remoteServices has the labels of services of other zones, by their names in this zone. remoteNames are these names,
// and zoneAddressNames those of the zones' addresses.
var (
	remoteServices   = remoteLabels("west", "north")
	remoteNames      = slices.Sorted(maps.Keys(remoteServices))
	hostNames        = []string{"a.example", "b.example"}
	zoneAddressNames = []string{received(&kind.MeshZoneAddresses.Info, "west", "west"),
		received(&kind.MeshZoneAddresses.Info, "north", "north")}
)

func received(info *resource.Info, name, zone string) string {
	return kind.SyncedName(info, mesh, name, kind.Owner{Zone: zone})
}

func remoteLabels(zones ...string) map[string]map[string]string {
	labels := map[string]map[string]string{}
	for _, zone := range zones {
		for _, name := range serviceNames[:2] {
			labels[received(&kind.MeshServices.Info, name, zone)] = map[string]string{
				kind.DisplayName: name, kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone,
			}
		}
	}
	return labels
}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func drawDataplane(t *rapid.T, name string) resource.Any {
	dp := kind.Dataplane{Networking: kind.Networking{Address: pick(t, "address", "10.0.0."+name[1:], "10.0.0."+name[1:],
		hostNames[0])}}
	for i := range rapid.IntRange(0, 3).Draw(t, "inbounds") {
		dp.Networking.Inbound = append(dp.Networking.Inbound, kind.Inbound{
			Port:     uint32(8000 + rapid.IntRange(0, 2).Draw(t, "port")),
			Name:     fmt.Sprintf("in%d", i),
			Protocol: pick(t, "protocol", kind.TCP, kind.HTTP, kind.GRPC),
			State:    pick(t, "state", kind.Ready, kind.Ready, kind.NotReady, kind.Ignored),
			Tags:     map[string]string{kind.ServiceTag: pick(t, "tag", workloads...)},
		})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "outbounds") {
		out := kind.Outbound{Port: uint32(10001 + i)}
		if rapid.IntRange(0, 3).Draw(t, "at another address") == 0 {
			out.Address, out.Port = pick(t, "outbound address", vips...), pick[uint32](t, "outbound port", 80, 8000)
		}
		if rapid.Bool().Draw(t, "by tag") {
			out.Tags = map[string]string{kind.ServiceTag: pick(t, "to", workloads...)}
		} else {
			out.BackendRef = drawReference(t)
		}
		dp.Networking.Outbound = append(dp.Networking.Outbound, out)
	}
	if rapid.IntRange(0, 2).Draw(t, "ingress") == 0 {
		dp.Networking.ZoneIngress = &kind.ZoneIngressSection{Address: "10.0.0." + name[1:],
			Port: pick[uint32](t, "ingress port", 10001, 10002, 8000, 15006)}
	}
	if rapid.IntRange(0, 2).Draw(t, "egress") == 0 {
		dp.Networking.ZoneEgress = &kind.ZoneEgressSection{Address: "10.0.0." + name[1:],
			Port: pick[uint32](t, "egress port", 10003, 10004, 10001, 15001)}
	}
	if rapid.IntRange(0, 3).Draw(t, "administration") == 0 {
		dp.Networking.Admin = &kind.Admin{Port: pick[uint32](t, "admin port", 9901, 10001, 8000)}
	}
	switch rapid.IntRange(0, 3).Draw(t, "transparent") {
	case 1:
		dp.Networking.TransparentProxying = &kind.TransparentProxying{}
	case 2:
		dp.Networking.TransparentProxying = &kind.TransparentProxying{IPFamilyMode: "IPv4",
			ReachableBackends: &kind.ReachableBackends{
				Refs: []kind.BackendRef{*drawReference(t)},
			}}
	}
	o := kind.Dataplanes.Make(mesh, name, dp)
	o.Labels = map[string]string{kind.WorkloadLabel: pick(t, "workload", workloads...)}
	return o
}

func drawReference(t *rapid.T) *kind.BackendRef {
	ref := &kind.BackendRef{Kind: pick(t, "to", "MeshService", "MeshMultiZoneService", "MeshExternalService"),
		Port: pick[uint32](t, "to port", 0, 80, 81, 443)}
	if rapid.Bool().Draw(t, "by label") {
		ref.Labels = map[string]string{kind.DisplayName: pick(t, "display name", serviceNames...)}
	} else {
		ref.Name = pick(t, "ref", serviceNames...)
	}
	return ref
}

func drawServing(t *rapid.T, name string) resource.Any {
	serving := kind.DataplaneListenerStatus{Draining: rapid.IntRange(0, 5).Draw(t, "draining") == 0}
	for port := range 3 {
		if rapid.Bool().Draw(t, "serves") {
			serving.Inbounds = append(serving.Inbounds, kind.ServedInbound{
				Inbound: kind.Inbound{Address: "10.0.0." + name[1:], Port: uint32(8000 + port), Name: "old",
					Protocol: kind.HTTP, ServiceAddress: "127.0.0.1", ServicePort: 80},
				Serial:    pick(t, "serial", "", "5e"),
				Unhealthy: rapid.IntRange(0, 4).Draw(t, "unhealthy") == 0,
			})
		}
	}
	if rapid.Bool().Draw(t, "serves an ingress") {
		serving.Ingresses = []kind.ZoneIngressSection{{Address: "10.0.0." + name[1:], Port: 10001}}
	}
	if rapid.Bool().Draw(t, "serves an egress") {
		serving.Egresses = []kind.ServedEgress{{ZoneEgressSection: kind.ZoneEgressSection{Address: "10.0.0." + name[1:],
			Port: 10003}}}
	}
	return kind.DataplaneListenerStatuses.Make(mesh, name, serving)
}

func drawService(t *rapid.T, name string) resource.Any {
	service := kind.MeshService{}
	switch rapid.IntRange(0, 2).Draw(t, "selector") {
	case 0:
		service.Selector.DataplaneTags = map[string]string{kind.ServiceTag: pick(t, "selects", workloads...)}
	case 1:
		service.Selector.DataplaneLabels =
			&kind.LabelSelector{MatchLabels: map[string]string{kind.WorkloadLabel: pick(t, "labeled", workloads...)}}
	case 2:
		service.Selector.DataplaneRef = &kind.NameRef{Name: pick(t, "ref", proxyNames...)}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "ports") {
		service.Ports = append(service.Ports, kind.ServicePort{
			Port:        uint32(pick(t, "base", 80, 8000) + i),
			TargetPort:  &kind.PortRef{Number: uint32(8000 + rapid.IntRange(0, 2).Draw(t, "target"))},
			AppProtocol: pick(t, "app protocol", kind.TCP, kind.HTTP),
			SNIs:        pick(t, "snis", snisOf(name, 80+i, "a"), snisOf(name, 80+i, "b", "a"), nil),
		})
	}
	o := kind.MeshServices.Make(mesh, name, service)
	o.Labels = map[string]string{kind.DisplayName: name}
	return o
}

// drawRemote draws a service of another zone. Several of them have the same name in their own zone.
func drawRemote(t *rapid.T, name string) resource.Any {
	o := drawService(t, name).(*resource.Object[kind.MeshService])
	o.Labels = remoteServices[name]
	o.Spec.State = pick(t, "available", "Available", "Unavailable")
	if rapid.IntRange(0, 3).Draw(t, "identities") > 0 {
		id := "spiffe://" + pick(t, "domain", "one.local", "two.local") + "/workload/" + pick(t, "is", workloads...)
		o.Spec.Identities = []kind.ServiceIdentity{{Type: kind.SpiffeIdentity, Value: id}}
	}
	return o
}

func drawMultiZone(t *rapid.T, name string) resource.Any {
	service := kind.MeshMultiZoneService{Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{}}}
	if rapid.Bool().Draw(t, "of a name") {
		service.Selector.MeshService.MatchLabels = map[string]string{kind.DisplayName: pick(t, "display name",
			serviceNames...)}
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "ports") {
		service.Ports = append(service.Ports, kind.ServicePort{
			Port: uint32(80 + i), AppProtocol: pick(t, "app protocol", kind.TCP, kind.HTTP),
			SNIs: pick(t, "snis", []kind.SNI{{Value: fmt.Sprintf("a.%s.%d.default.mzms", name, 80+i)}}, nil),
		})
	}
	return kind.MeshMultiZoneServices.Make(mesh, name, service)
}

func drawMultiZoneStatus(t *rapid.T, name string) resource.Any {
	return kind.MeshMultiZoneServiceStatuses.Make(mesh, name,
		kind.MeshMultiZoneServiceStatus{VIPs: drawVIPs(t, "243.0.0."+name[1:])})
}

func drawZoneAddress(t *rapid.T, name string) resource.Any {
	row := kind.MeshZoneAddress{}
	for i := range rapid.IntRange(0, 2).Draw(t, "ingresses") {
		row.Ingresses = append(row.Ingresses, kind.ZoneProxyAddress{
			Name: fmt.Sprint("zi-", i), Address: pick(t, "at", "192.168.0.1", "192.168.0.2", hostNames[0],
				hostNames[1]), Port: 10001, Healthy: rapid.Bool().Draw(t, "healthy"),
		})
	}
	return kind.MeshZoneAddresses.Make(mesh, name, row)
}

func snisOf(name string, port int, formats ...string) []kind.SNI {
	var snis []kind.SNI
	for _, format := range formats {
		snis = append(snis, kind.SNI{Value: fmt.Sprintf("%s.%s.%d.default.ms", format, name, port)})
	}
	return snis
}

func drawPermission(t *rapid.T, name string) resource.Any {
	policy := kind.MeshTrafficPermission{}
	if rapid.Bool().Draw(t, "targeted") {
		policy.TargetRef = &kind.TargetRef{Kind: "Dataplane", Name: pick(t, "target", proxyNames...),
			SectionName: pick(t, "section", "", "in0")}
	}
	caller := kind.CallerMatch{SpiffeID: &kind.IDMatch{Type: pick(t, "match", "Exact", "Prefix"),
		Value: "spiffe://default.default.mesh.local/workload/" + pick(t, "caller", workloads...)}}
	rule := kind.PermissionRule{Default: kind.PermissionDefault{Allow: []kind.CallerMatch{caller}}}
	if rapid.Bool().Draw(t, "of one external service") {
		port := sni.Port{Kind: kind.MeshExternalServices.Name, Mesh: mesh,
			Name: pick(t, "external service", serviceNames...), Number: 443}
		rule.Matches = []kind.PermissionMatch{{SNI: &kind.SNIMatch{Type: "Exact", Value: sni.V1.Name(port)}}}
	}
	policy.Rules = []kind.PermissionRule{rule}
	return kind.MeshTrafficPermissions.Make(mesh, name, policy)
}

func drawIdentity(t *rapid.T, name string) resource.Any {
	selector := &kind.LabelSelector{MatchLabels: map[string]string{}}
	if rapid.Bool().Draw(t, "some") {
		selector.MatchLabels[kind.WorkloadLabel] = pick(t, "selected", workloads...)
	}
	return kind.MeshIdentities.Make(mesh, name, kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: selector},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	})
}

func drawExternal(t *rapid.T, name string) resource.Any {
	service := kind.MeshExternalService{
		Match: kind.ExternalMatch{Port: pick[uint32](t, "port", 443, 444),
			Protocol: pick(t, "protocol", kind.TCP, kind.HTTP)},
		Endpoints: []kind.ExternalEndpoint{{Address: pick(t, "address", "192.0.2.1", "api.example.com"), Port: 443}},
	}
	if rapid.Bool().Draw(t, "tls") {
		service.TLS = &kind.ExternalTLS{Enabled: true, Verification: &kind.ExternalVerification{}}
		if rapid.Bool().Draw(t, "authority") {
			service.TLS.Verification.CACert = &kind.DataSource{Type: "Secret",
				SecretRef: &kind.SecretRef{Kind: "Secret", Name: "ca"}}
		}
	}
	return kind.MeshExternalServices.Make(mesh, name, service)
}

func drawExternalStatus(t *rapid.T, name string) resource.Any {
	return kind.MeshExternalServiceStatuses.Make(mesh, name,
		kind.MeshExternalServiceStatus{VIP: &drawVIPs(t, "242.0.0."+name[1:])[0]})
}

// drawEgresses draws the zone egresses of the zone.
func drawEgresses(t *rapid.T, zone string) resource.Any {
	row := kind.MeshEgressAddress{}
	for _, name := range proxyNames[:2] {
		if rapid.Bool().Draw(t, "is an egress") {
			row.Egresses = append(row.Egresses, kind.ZoneProxyAddress{
				Name: name, Address: "10.0.0." + name[1:], Port: 10003,
				Healthy: rapid.IntRange(0, 3).Draw(t, "healthy") > 0,
			})
		}
	}
	return kind.MeshEgressAddresses.Make(mesh, zone, row)
}

func drawMaterial(t *rapid.T, name string) resource.Any {
	return kind.ExternalMaterials.Make(mesh, name, kind.ExternalMaterial{
		Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.2", Port: 443}},
		TLS:       &kind.ExternalTLS{Enabled: true}, CACert: []byte(pick(t, "ca", "one", "two")),
	})
}

func drawRetainedExternal(t *rapid.T, name string) resource.Any {
	service := strings.TrimSuffix(name, "-443")
	return kind.RetainedExternalServices.Make(mesh, name, kind.RetainedExternalService{
		Zone: "default", Service: service, Port: 443, Protocol: pick(t, "protocol", kind.HTTP, kind.TCP),
		SNIs:     []string{"a1." + service + ".443.default.mes"},
		Material: kind.ExternalMaterial{Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.3", Port: 443}}},
	})
}

func drawTrust(t *rapid.T, name string) resource.Any {
	return kind.MeshTrusts.Make(mesh, name, kind.MeshTrust{
		TrustDomain: pick(t, "domain", "one.local", "two.local"),
		CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: pick(t, "root", "root a", "root b")}}},
	})
}

func drawMesh(t *rapid.T, name string) resource.Any {
	rules := func(list string) []kind.MembershipRule {
		return pick(t, list, nil, nil,
			[]kind.MembershipRule{{Tags: map[string]string{kind.ServiceTag: pick(t, "member", workloads...)}}})
	}
	return kind.Meshes.Make("", name, kind.Mesh{
		DataplaneProxyMembership: &kind.Membership{Allowed: rules("allowed"), Blocked: rules("blocked")},
		Routing: &kind.MeshRouting{
			DefaultForbidMeshExternalServiceAccess: rapid.Bool().Draw(t, "forbid"),
			ZoneEgress:                             rapid.Bool().Draw(t, "by egress"),
		},
	})
}

// drawRoute draws a route that leads to several services: the resources of each are a part of several destinations.
func drawRoute(t *rapid.T, name string) resource.Any {
	policy := kind.MeshHTTPRoute{}
	if rapid.Bool().Draw(t, "of one proxy") {
		policy.TargetRef = &kind.TargetRef{Kind: "Dataplane", Name: pick(t, "target", proxyNames...)}
	}
	rule := kind.HTTPRouteRule{Matches: []kind.HTTPMatch{{Path: &kind.PathMatch{Type: kind.PathPrefix, Value: "/a"}}}}
	for range rapid.IntRange(1, 2).Draw(t, "backends") {
		rule.Default.BackendRefs = append(rule.Default.BackendRefs, kind.RouteBackendRef{
			Kind: "MeshService", Name: pick(t, "backend", serviceNames...), Port: 80})
	}
	policy.To = []kind.HTTPRouteTo{{Rules: []kind.HTTPRouteRule{rule},
		TargetRef: kind.RoutedRef{Kind: "MeshService", Name: pick(t, "routed", serviceNames...)}}}
	return kind.MeshHTTPRoutes.Make(mesh, name, policy)
}

// drawBalancing draws a policy that groups endpoints by a label of the Dataplanes, or one about clusters alone.
func drawBalancing(t *rapid.T, name string) resource.Any {
	conf := kind.LoadBalancingConf{LoadBalancer: &kind.LoadBalancer{Type: pick(t, "type", "Random", "RoundRobin")}}
	if rapid.Bool().Draw(t, "grouped") {
		conf.LocalityAwareness = &kind.LocalityAwareness{LocalZone: &kind.LocalZone{
			AffinityTags: []kind.AffinityTag{{Key: kind.WorkloadLabel}}}}
	}
	about := kind.DestinationRef{Kind: "Mesh"}
	if rapid.Bool().Draw(t, "of one service") {
		about = kind.DestinationRef{Kind: "MeshService", Name: pick(t, "about", serviceNames...)}
	}
	return kind.MeshLoadBalancingStrategies.Make(mesh, name, kind.MeshLoadBalancingStrategy{
		To: []kind.ToItem[kind.LoadBalancingConf]{{TargetRef: about, Default: conf}}})
}

func drawEvicted(t *rapid.T, name string) resource.Any {
	return kind.EvictedProxiesList.Make(mesh, name, kind.EvictedProxies{Proxies: []kind.EvictedProxy{
		{Name: pki.InstanceDNSName(mesh, "default", pick(t, "evicted", proxyNames...))},
	}})
}

func drawStatus(t *rapid.T, name string) resource.Any {
	return kind.MeshServiceStatuses.Make(mesh, name,
		kind.MeshServiceStatus{VIPs: drawVIPs(t, "241.0.0."+name[1:])})
}

// vips are virtual IPs that several services have, as those of headless Services do. The addresses of proxies are among
// them.
var vips = []string{"241.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1"}

func drawVIPs(t *rapid.T, usual string) []kind.VIP {
	drawn := []kind.VIP{{IP: usual}}
	if rapid.Bool().Draw(t, "shared VIP") {
		drawn[0].IP = pick(t, "vip", vips...)
	}
	if other := pick(t, "second vip", vips...); other != drawn[0].IP && rapid.Bool().Draw(t, "two VIPs") {
		drawn = append(drawn, kind.VIP{IP: other})
	}
	return drawn
}

// drawn has the kinds of a random world, each with its names.
var drawn = []struct {
	kind  string
	names []string
	draw  func(*rapid.T, string) resource.Any
}{
	{"Dataplane", proxyNames, drawDataplane},
	{"DataplaneListenerStatus", proxyNames, drawServing},
	{"MeshService", serviceNames, drawService},
	{"MeshServiceStatus", serviceNames, drawStatus},
	{"MeshService", remoteNames, drawRemote},
	{"MeshZoneAddress", zoneAddressNames, drawZoneAddress},
	{"MeshMultiZoneService", serviceNames, drawMultiZone},
	{"MeshMultiZoneServiceStatus", serviceNames, drawMultiZoneStatus},
	{"MeshTrafficPermission", policyNames, drawPermission},
	{"MeshHTTPRoute", policyNames, drawRoute},
	{"MeshLoadBalancingStrategy", policyNames, drawBalancing},
	{"MeshIdentity", policyNames, drawIdentity},
	{"MeshTrust", policyNames, drawTrust},
	{"MeshExternalService", serviceNames, drawExternal},
	{"ExternalMaterial", serviceNames, drawMaterial},
	{"RetainedExternalService", retainedNames, drawRetainedExternal},
	{"MeshExternalServiceStatus", serviceNames, drawExternalStatus},
	{"MeshEgressAddress", []string{"default"}, drawEgresses},
	{"Mesh", []string{mesh}, drawMesh},
	{"EvictedProxies", []string{"default"}, drawEvicted},
	{"ResolvedName", hostNames, drawResolved},
}

// drawResolved draws a host name with addresses, a former one among them, or with ingresses that are dialed until it
// has addresses.
func drawResolved(t *rapid.T, name string) resource.Any {
	row := kind.ResolvedName{}
	for i := range rapid.IntRange(0, 2).Draw(t, "addresses") {
		a := kind.ResolvedAddress{Address: pick(t, "address", "10.0.0.1", "192.168.0.3", "127.0.0.1")}
		if i > 0 {
			a.Until = kind.Time{Time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
		}
		row.Addresses = append(row.Addresses, a)
	}
	if len(row.Addresses) == 0 && rapid.Bool().Draw(t, "former") {
		row.Former = []kind.FormerIngresses{{Mesh: mesh, Zone: pick(t, "zone", "west", "north"),
			Ingresses: []kind.IngressEndpoint{{Address: "192.168.0.4", Port: 10001}}}}
	}
	return kind.ResolvedNames.Make("", name, row)
}

func drawBatch(t *rapid.T) mirror.Batch {
	puts := map[resource.Key]resource.Any{}
	for range rapid.IntRange(1, 5).Draw(t, "changes") {
		k := pick(t, "kind", drawn...)
		name := pick(t, "name", k.names...)
		key := resource.Key{Kind: k.kind, Mesh: mesh, Name: name}
		if k.kind == kind.Meshes.Name || k.kind == kind.ResolvedNames.Name {
			key.Mesh = ""
		}
		puts[key] = nil
		if rapid.IntRange(0, 4).Draw(t, "delete") > 0 {
			puts[key] = k.draw(t, name)
		}
	}
	var b mirror.Batch
	for key, o := range puts {
		if o == nil {
			b.Removed = append(b.Removed, key)
		} else {
			b.Put = append(b.Put, o)
		}
	}
	return b
}

// The resources that attached proxies are sent, after any changes, are those that a restarted control plane would send.
func TestResourceSetsEqualARebuildAfterAnyChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hub := NewHub(graph.NewState("default"), xds.NewCatalog(), slog.New(slog.DiscardHandler))
		hub.Use(t.Context(), Callbacks{
			Waiter: never{}, Replicas: alone{},
			RetainSNIRoutes: func(context.Context, []*resource.Object[kind.RetainedSNIRoute]) error { return nil },
			RetainExternalServices: func(context.Context, []*resource.Object[kind.RetainedExternalService]) error {
				return nil
			},
			KeepIngresses: func(context.Context, []*resource.Object[kind.ResolvedName]) error { return nil },
			Announce:      func(context.Context, []*resource.Object[kind.DataplaneCertificates]) error { return nil },
			Keep:          func(context.Context, []*resource.Object[kind.RetainedEndpoints]) error { return nil },
		})
		stops := map[state.ProxyKey]func(){}
		told := map[state.ProxyKey]*proxy.Proxy{}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) { hub.Apply(drawBatch(t)) },
			"attach or leave": func(t *rapid.T) {
				key := state.ProxyKey{Mesh: mesh, Name: pick(t, "proxy", proxyNames...)}
				if stop := stops[key]; stop != nil {
					stop()
					delete(stops, key)
					return
				}
				stops[key] = hub.Proxies.Watch(key, func(p *proxy.Proxy) { told[key] = p })
			},
			"begin or end a round of additions": func(_ *rapid.T) {
				if hub.Additions.open = !hub.Additions.open; !hub.Additions.open {
					hub.Additions.end()
				}
			},
			"": func(t *rapid.T) {
				compareUsers(t, hub.publisher.sets.groups)
				if hub.Additions.open { // additions wait
					compareRemoved(t, hub, stops)
					return
				}
				for key := range stops {
					compareToRebuild(t, hub, key, told[key])
				}
				sets, names := hub.publisher.sets, hub.publisher.hostNames
				if len(stops) == 0 &&
					len(sets.groups.open)+len(names.sent)+len(sets.ingresses.open)+len(sets.egresses.open)+
						len(hub.Proxies.used) > 0 {
					t.Fatalf("no proxy is attached, but %d groups, names of %d, %d meshes of ingresses, %d of "+
						"egresses and %d proxies are kept",
						len(sets.groups.open), len(names.sent), len(sets.ingresses.open), len(sets.egresses.open),
						len(hub.Proxies.used))
				}
			},
		})
	})
}

// compareUsers checks that the index of endpoint lists has the lists of all published sets, and no others.
func compareUsers(t *rapid.T, groups *sharedSets[proxy.Group, service.List]) {
	want := map[service.List]map[*sharedSet[service.List]]int{}
	for _, of := range groups.open {
		for _, list := range of.shared.lists() {
			if want[list] == nil {
				want[list] = map[*sharedSet[service.List]]int{}
			}
			want[list][of]++
		}
	}
	if !maps.EqualFunc(groups.users, want, maps.Equal) {
		t.Errorf("the sets use the endpoint lists %v, and the index has %v", want, groups.users)
	}
}

// compareRemoved checks that the resource sets have nothing that a rebuild does not have.
func compareRemoved(t *rapid.T, hub *Hub, attached map[state.ProxyKey]func()) {
	for key := range attached {
		want, exists := rebuiltConfig(hub, key)
		if !exists {
			continue
		}
		got := sentTo(hub, key)
		changed, removed := difference(got, want)
		for _, k := range removed {
			t.Errorf("%s: while additions wait the resource sets have %s %s, a rebuild does not", key, k.Type, k.Name)
		}
		for _, r := range changed {
			i := slices.IndexFunc(got, func(had *xds.Resource) bool { return compareNames(had, r) == 0 })
			if i >= 0 && !(envoy.HasEndpoints(got[i]) && envoy.OnlyAddsEndpoints(got[i], r)) {
				t.Errorf("%s: while additions wait %s %s is not as a rebuild has it, and the difference is more than "+
					"a further endpoint", key, r.Type, r.Name)
			}
		}
	}
}

// rebuiltConfig returns the configuration of a proxy, of which each value is computed.
func rebuiltConfig(hub *Hub, key state.ProxyKey) ([]*xds.Resource, bool) {
	resources, ok := configOf(hub.Inspector.config, table.Eval(hub.state.Tables.DB.Snapshot().UnsharedCopy()), key)
	return withoutKeys(resources), ok
}

// sentTo returns what the client of a proxy is sent.
func sentTo(hub *Hub, key state.ProxyKey) (sent []*xds.Resource) {
	p := hub.Proxies.used[key]
	for _, f := range hub.Proxies.setsOf(p) {
		sent = append(sent, f.Resources()...)
	}
	return inOrder(slices.DeleteFunc(sent, func(r *xds.Resource) bool {
		return slices.ContainsFunc(p.own.Excluded, func(e *xds.Resource) bool { return compareNames(e, r) == 0 })
	}))
}

// wantDistinctAddresses fails where Envoy would reject a listener, since another one has its address.
func wantDistinctAddresses(t *rapid.T, key state.ProxyKey, sent []*xds.Resource) {
	var known []*listenerv3.Listener
	for _, r := range sent {
		if r.Type != xds.Listener {
			continue
		}
		message, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		l := message.(*listenerv3.Listener)
		for _, other := range known {
			if sameSocket(l, other) {
				t.Errorf("%s: %s has the address of %s: %v", key, l.Name, other.Name, l.Address)
			}
		}
		known = append(known, l)
	}
}

func sameSocket(a, b *listenerv3.Listener) bool {
	at, with := a.GetAddress().GetSocketAddress(), b.GetAddress().GetSocketAddress()
	if at == nil || with == nil || at.GetPortValue() != with.GetPortValue() {
		return false
	}
	binds := func(l *listenerv3.Listener) bool { return l.BindToPort == nil || l.BindToPort.Value }
	wildcard := func(a, b string) bool {
		return a == "0.0.0.0" && !strings.Contains(b, ":") || a == "::" && strings.Contains(b, ":")
	}
	return at.Address == with.Address ||
		binds(a) && binds(b) && (wildcard(at.Address, with.Address) || wildcard(with.Address, at.Address))
}

func compareToRebuild(t *rapid.T, hub *Hub, key state.ProxyKey, told *proxy.Proxy) {
	wantNoFaults(t, hub)
	want, exists := rebuiltConfig(hub, key)
	if exists != (told != nil) {
		t.Fatalf("%s: exists is %v, but its watcher was told %v", key, exists, told)
	}
	if !exists {
		return
	}
	got := sentTo(hub, key)
	wantDistinctAddresses(t, key, got)
	changed, removed := difference(got, want)
	for _, r := range changed {
		t.Errorf("%s: a rebuild has %s %s %s, the resource sets do not", key, r.Type, r.Name, r.Version)
	}
	for _, k := range removed {
		t.Errorf("%s: the resource sets have %s %s, a rebuild does not", key, k.Type, k.Name)
	}
}
