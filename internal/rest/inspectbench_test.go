package rest

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/proxy"
	"weft/internal/push"
	"weft/internal/state"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// The size of the zone whose inspections are measured.
const (
	inspectedProxies  = 15_000
	inspectedServices = 300
)

// connectedZone returns the API of a zone in which every proxy is connected and serves, with an identity. Most proxies
// reach all services at their virtual IPs; every tenth has outbounds for three of them.
func connectedZone(b *testing.B) (*world, *push.Hub) {
	g := graph.NewState("east")
	hub := push.NewHub(g, xds.NewCatalog(), slog.New(slog.DiscardHandler))
	batch := mirror.Batch{Put: []resource.Any{
		kind.Meshes.Make("", "default", kind.Mesh{}),
		kind.MeshIdentities.Make("default", "identity", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"}}),
		kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{
			Rules: []kind.PermissionRule{{Default: kind.PermissionDefault{Allow: []kind.CallerMatch{
				{SpiffeID: &kind.IDMatch{Type: "Prefix", Value: "spiffe://default.east.mesh.local/"}}}}}}}),
		kind.MeshTimeouts.Make("default", "all", kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
			TargetRef: kind.DestinationRef{Kind: "Mesh"}}}}),
	}}
	for i := range inspectedServices {
		name := fmt.Sprint("service-", i)
		batch.Put = append(batch.Put, kind.MeshServices.Make("default", name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports: []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080},
				AppProtocol: kind.HTTP}}}))
	}
	for i := range inspectedProxies {
		batch.Put = append(batch.Put, connectedProxy(i)...)
	}
	hub.Apply(batch)
	for i := range inspectedProxies {
		b.Cleanup(hub.Proxies.Watch(state.ProxyKey{Mesh: "default", Name: proxyName(i)}, func(*proxy.Proxy) {}))
	}
	w := &world{store: newStore(b), view: view.New(g, newStore(b))}
	w.writer = admission.New(w.view.Store(), admission.Options{Zone: "east"})
	config := w.config()
	config.Inspector = hub.Inspector
	w.handler = New(config)
	return w, hub
}

func proxyName(i int) string { return fmt.Sprintf("proxy-%05d", i) }

// connectedProxy returns the rows of a proxy.
func connectedProxy(i int) []resource.Any {
	name, service := proxyName(i), fmt.Sprint("service-", i%inspectedServices)
	in := kind.Inbound{Port: 8080, Protocol: kind.HTTP, Tags: map[string]string{kind.ServiceTag: service}}
	n := kind.Networking{Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), Inbound: []kind.Inbound{in}}
	if i%10 > 0 {
		n.TransparentProxying = &kind.TransparentProxying{}
	} else {
		for j := range 3 {
			n.Outbound = append(n.Outbound, kind.Outbound{Port: uint32(10_000 + j), BackendRef: &kind.BackendRef{
				Kind: "MeshService", Name: fmt.Sprint("service-", (i+j)%inspectedServices), Port: 80}})
		}
	}
	dp := kind.Dataplanes.Make("default", name, kind.Dataplane{Networking: n})
	dp.Labels = map[string]string{kind.WorkloadLabel: service}
	kind.VouchOperator(nil, dp)
	return []resource.Any{dp,
		kind.DataplaneListenerStatuses.Make("default", name, kind.DataplaneListenerStatus{
			Inbounds: []kind.ServedInbound{{Inbound: n.Effective(in), Serial: "5e"}}}),
		kind.DataplaneInsights.Make("default", name, kind.DataplaneInsight{
			Subscriptions: []kind.Subscription{{ID: name, ControlPlaneInstanceID: "instance-1",
				ConnectTime: kind.Time{Time: time.Now()}}}}),
	}
}

// BenchmarkInspections measures the inspections of a zone of 15,000 connected proxies and 300 services. Each request
// follows a commit, so that no result of a former request is used.
func BenchmarkInspections(b *testing.B) {
	w, hub := connectedZone(b)
	for _, target := range []string{
		"/meshes/default/meshservices/service-7/_backing",
		"/meshes/default/dataplanes/" + proxyName(5_001) + "/_inspect",
	} {
		b.Run(target, func(b *testing.B) {
			began := cpu(b)
			for i := 0; b.Loop(); i++ {
				hub.Apply(mirror.Batch{Put: connectedProxy(i % inspectedProxies)[:1]})
				if r := w.do(http.MethodGet, target, "", nil); r.StatusCode != http.StatusOK {
					b.Fatal(r.Status, text(r))
				}
			}
			b.ReportMetric(float64(cpu(b)-began)/1e6/float64(b.N), "cpu-ms/op")
		})
	}
}
