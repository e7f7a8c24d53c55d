package check_test

import (
	"fmt"
	"testing"

	"weft/internal/table"
	"weft/kind"
)

// BenchmarkLook checks a mesh of 10,000 proxies and 100 services.
func BenchmarkLook(b *testing.B) {
	w := newScene("east")
	const services, proxies = 100, 10_000
	w.stage.Tables.DB.Commit(func(tx *table.Tx) {
		w.stage.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		w.stage.Tables.Put(tx, kind.MeshIdentities.Make("default", "all", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
		w.stage.Tables.Put(tx, kind.MeshTrafficPermissions.Make("default", "all", kind.MeshTrafficPermission{}))
		for i := range services {
			name := fmt.Sprintf("s-%d", i)
			w.stage.Tables.Put(tx, kind.MeshServices.Make("default", name, kind.MeshService{
				Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
				Ports:    []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}}},
			}))
		}
		for i := range proxies {
			name := fmt.Sprintf("p-%d", i)
			in := kind.Inbound{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 8080,
				Tags: map[string]string{kind.ServiceTag: fmt.Sprintf("s-%d", i%services)}}
			w.stage.Tables.Put(tx,
				kind.Dataplanes.Make("default", name,
					kind.Dataplane{Networking: kind.Networking{Address: in.Address, Inbound: []kind.Inbound{in},
						TransparentProxying: &kind.TransparentProxying{}}}))
			w.stage.Tables.Put(tx, kind.DataplaneListenerStatuses.Make("default", name,
				kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{{Inbound: in}}}))
			w.stage.Tables.Put(tx, kind.DataplaneInsights.Make("default", name,
				kind.DataplaneInsight{Subscriptions: []kind.Subscription{{ID: "1",
					ConnectTime: kind.Time{Time: now.AddDate(0, 0, -1)}, Version: kind.VersionOfEnvoy("1.40.0")}}}))
		}
	})
	w.snapshot = w.stage.Tables.DB.Snapshot()
	for b.Loop() {
		if report := w.run(); report.Dataplanes != proxies || len(report.Findings) < services {
			b.Fatalf("%d Dataplanes, %d findings", report.Dataplanes, len(report.Findings))
		}
	}
}
