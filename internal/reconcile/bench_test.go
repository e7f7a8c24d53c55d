package reconcile

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// BenchmarkTenThousandDataplanes measures a table of 10,000 Dataplanes of 300 services that proxies serve: the first
// commit, the memory, and the change of one listener status.
func BenchmarkTenThousandDataplanes(b *testing.B) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w := newWorld(b, "241.0.0.0/8")
	w.now = time.Now()
	rc := New(w.plan, nil, w.barrier, w.commit, slog.New(slog.DiscardHandler))
	rows := []resource.Any{kind.Meshes.Make("", "default", kind.Mesh{})}
	for i := range 300 {
		name := fmt.Sprintf("s-%d", i)
		rows = append(rows, kind.MeshServices.Make("default", name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 8080}},
		}))
	}
	for i := range 10_000 {
		name, address := fmt.Sprintf("d-%d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		rows = append(rows, w.dataplane(name, address, fmt.Sprintf("s-%d", i%300)), w.serves(name, address))
	}
	before, began := heap(), time.Now()
	changes := w.put(rows...)
	rc.Observe(rows, nil, []*table.Changes{changes}, w.now)
	took := time.Since(began)
	grown := heap() - before
	sick := func(unhealthy bool) resource.Any {
		o := w.serves("d-1", "10.0.0.1").(*resource.Object[kind.DataplaneListenerStatus])
		o.Spec.Inbounds[0].Unhealthy = unhealthy
		return o
	}
	for i := 0; b.Loop(); i++ {
		o := sick(i%2 == 0)
		rc.Observe([]resource.Any{o}, nil, []*table.Changes{w.put(o)}, w.now)
	}
	b.ReportMetric(float64(took.Milliseconds()), "ms/first")
	b.ReportMetric(float64(grown)/1e6, "MB")
	runtime.KeepAlive(rows)
}

// BenchmarkACertificateAmongTenThousand measures the renewal of one certificate in a mesh with membership rules and
// 10,000 proxies.
func BenchmarkACertificateAmongTenThousand(b *testing.B) {
	w := newWorld(b, "241.0.0.0/8")
	New(w.plan, nil, w.barrier, w.commit, slog.New(slog.DiscardHandler))
	rows := []resource.Any{allows("a")}
	for i := range 10_000 {
		name := fmt.Sprintf("d-%d", i)
		rows = append(rows, ofTeam(name, "a"), holds(name, w.now.Add(time.Hour)))
	}
	w.put(rows...)
	for i := 0; b.Loop(); i++ {
		w.put(holds("d-1", w.now.Add(time.Duration(i)*time.Second)))
	}
}

// BenchmarkACertificateAmongTenThousandThatChange measures the renewal of one certificate in a mesh whose 10,000
// proxies all wait for their next SPIFFE ID.
func BenchmarkACertificateAmongTenThousandThatChange(b *testing.B) {
	w := newWorld(b, "241.0.0.0/8")
	rc := New(w.plan, nil, w.barrier, w.commit, slog.New(slog.DiscardHandler))
	changing := func(i int, until time.Duration) resource.Any {
		name := fmt.Sprintf("d-%d", i)
		return kind.DataplaneCertificatesList.Make("default", name, kind.DataplaneCertificates{
			Certificates: []kind.WorkloadCertificate{{SpiffeIDs: kind.SpiffeIDsOf("spiffe://d/first/" + name),
				Root: "r", Until: kind.Time{Time: w.now.Add(until)}}},
			Next: &kind.NextIdentity{SpiffeIDs: kind.SpiffeIDsOf("spiffe://d/second/" + name),
				MeshIdentity: "id", Since: kind.Time{Time: w.now}},
		})
	}
	rows := []resource.Any{kind.Meshes.Make("", "default", kind.Mesh{})}
	for i := range 10_000 {
		rows = append(rows, changing(i, time.Hour))
	}
	w.put(rows...)
	w.reconcile(kind.ChangingIdentitiesList.Name, "")
	for i := 0; b.Loop(); i++ {
		o := changing(i%10_000, time.Hour+time.Duration(i)*time.Second)
		rc.Observe([]resource.Any{o}, nil, []*table.Changes{w.put(o)}, w.now)
	}
}
