package rest

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// large returns a mesh of 15,000 Dataplanes of 300 services, all connected and serving.
func large(b *testing.B) *world {
	w := newWorld(b, newStore(b))
	own := admission.Change{ControlPlane: true}
	write := func(o resource.Any) {
		if _, err := w.writer.Put(b.Context(), o, own); err != nil {
			b.Fatal(err)
		}
	}
	write(kind.Meshes.Make("", "default", kind.Mesh{}))
	for i := range 300 {
		name := fmt.Sprintf("service-%d", i)
		write(kind.MeshServices.Make("default", name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 80}},
		}))
	}
	for i := range 15_000 {
		name, service := fmt.Sprintf("proxy-%05d", i), fmt.Sprintf("service-%d", i%300)
		in := kind.Inbound{Port: 80, Tags: map[string]string{kind.ServiceTag: service, "version": fmt.Sprint(i % 7)}}
		dp := kind.Dataplanes.Make("default", name,
			kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{in}}})
		dp.Labels = map[string]string{"team": fmt.Sprint(i % 10)}
		write(dp)
		write(kind.DataplaneInsights.Make("default", name, kind.DataplaneInsight{
			Subscriptions: []kind.Subscription{{ID: name, ControlPlaneInstanceID: "instance-1",
				ConnectTime: kind.Time{Time: time.Now()}}},
			Certificate: &kind.Certificate{SpiffeID: "spiffe://default/" + name, Issuer: "identity"},
		}))
		in.Address = "10.0.0.1"
		write(kind.DataplaneListenerStatuses.Make("default", name,
			kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{{Inbound: in}}}))
	}
	return w
}

// BenchmarkReads measures the reads of users and dashboards with 15,000 Dataplanes.
func BenchmarkReads(b *testing.B) {
	w := large(b)
	for _, target := range []string{
		"/meshes/default/dataplanes/proxy-05000",
		"/meshes/default/dataplanes?size=100",
		"/meshes/default/dataplanes?size=100&offset=default/proxy-05000",
		"/meshes/default/dataplanes?size=1000",
		"/meshes/default/dataplanes?filter[labels.team]=3",
		"/meshes/default/dataplanes?tag=version:3",
		"/meshes/default/dataplanes?name=99",
		"/meshes/default/dataplanes/_overview?size=100",
		"/meshes/default/dataplanes/_overview?filter[status]=offline",
		"/dataplanes?size=50&sort=-modificationTime",
		"/dataplanes/_overview?size=50&sort=status",
		"/dataplanes/_overview?size=50&filter[service]=service-7",
		"/dataplanes/_overview?size=50&filter[certificate]=none",
		"/dataplanes?size=50&filter[address]=10.0.0.9",
		"/meshes/default/service-insights?size=50&sort=status",
		"/_search?q=proxy-05",
		"/_search?q=10.0.0.9",
		"/_search?q=spiffe://default/proxy-05000",
		"/_search?q=team=3",
		"/_search?q=kri_dp_default_east__proxy-05000_",
		"/_search?q=nothing",
		"/mesh-insights",
		"/meshes/default/service-insights?size=100",
		"/global-insight",
	} {
		b.Run(target, func(b *testing.B) {
			began := cpu(b)
			for b.Loop() {
				if r := w.do(http.MethodGet, target, "", nil); r.StatusCode != http.StatusOK {
					b.Fatal(r.Status, text(r))
				}
			}
			b.ReportMetric(float64(cpu(b)-began)/1e6/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpu returns the CPU time of this process, which other processes do not change.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
