package reconcile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"weft/internal/kube/convert"
	"weft/internal/table"
	"weft/kind"
)

// benchPod is a Pod of a Deployment, with the fields of a real one that are not read.
func benchPod(i int, ready bool) []byte {
	service := i / 100
	const form = `{"kind":"Pod","metadata":{"name":"web-%d-5c7d9f8b6-%05d","namespace":"ns-%d","uid":"%036d","labels":` +
		`{"app":"web-%d","pod-template-hash":"5c7d9f8b6","version":"v1","kuma.io/mesh":"default"},"annotations":{` +
		`"kuma.io/sidecar-injected":"true","kuma.io/envoy-admin-port":"9901","note":%q},"managedFields":[{"fieldsV1":` +
		`%q}]},"spec":{"nodeName":"n-%d","serviceAccountName":"web-%d","containers":[{"name":"app","ports":[{"name":` +
		`"http","containerPort":8080}]}],"initContainers":[{"name":"kuma-sidecar","restartPolicy":"Always"}]},` +
		`"status":{"phase":"Running","podIP":"10.%d.%d.%d","conditions":[{"type":"Ready","status":"True"}],` +
		`"containerStatuses":[{"name":"app","ready":%t}],"initContainerStatuses":[{"name":"kuma-sidecar","ready":true}]}}`
	return fmt.Appendf(nil, form, service, i, service%30, i, service, strings.Repeat("x", 500),
		strings.Repeat("y", 4000), i/30, service, 1+i/65536, i/256%256, i%256, ready)
}

// BenchmarkThirtyThousandPods: the Pods of 300 Services on 1,000 Nodes are listed, become Dataplanes, and one of them
// becomes ready or not. `objects-MB` are the rows of the objects, `derived-MB` the derived writes of Pods whose
// Dataplanes are stored, and `dataplanes-MB` these Dataplanes with what other stages derive from them.
func BenchmarkThirtyThousandPods(b *testing.B) {
	const pods = 30_000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	for b.Loop() {
		c := newCluster(b, kubernetesSettings())
		c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
		start := heap()
		began := time.Now()
		c.commit(func(tx *table.Tx) {
			o := c.kubernetes.Objects
			for i := range pods {
				pod, err := convert.FollowPod(benchPod(i, true))
				if err != nil {
					b.Fatal(err)
				}
				o.Pods.Put(tx, pod)
			}
			for i := range 300 {
				const form = `{"metadata":{"name":"web-%d","namespace":"ns-%d"},"spec":{"clusterIP":"10.200.0.%d",` +
					`"selector":{"app":"web-%d"},"ports":[{"port":80,"targetPort":"http","appProtocol":"http"}]}}`
				service, err := convert.DecodeService(fmt.Appendf(nil, form, i, i%30, i%256, i))
				if err != nil {
					b.Fatal(err)
				}
				o.Services.Put(tx, service)
			}
			for i := range 30 {
				o.Namespaces.Put(tx, &convert.Namespace{Meta: convert.Meta{Name: fmt.Sprint("ns-", i),
					Labels: map[string]string{convert.InjectionLabel: "enabled"}}})
			}
			for i := range 1000 {
				o.Nodes.Put(tx, &convert.Node{Meta: convert.Meta{Name: fmt.Sprint("n-", i)}, Ready: true})
			}
		})
		b.ReportMetric(time.Since(began).Seconds(), "list-s")
		rows := heap()
		b.ReportMetric(rows-start, "objects-MB")
		began = time.Now()
		c.synced(true)
		b.ReportMetric(time.Since(began).Seconds(), "convert-s")
		c.drain()
		if c.written < pods {
			b.Fatalf("%d writes", c.written)
		}
		c.rows, c.now = nil, c.now.Add(time.Hour) // the test's store is not measured
		b.ReportMetric(heap()-rows, "derived-and-dataplanes-MB")
		const changes = 1000
		began = time.Now()
		for i := range changes {
			pod, err := convert.FollowPod(benchPod(i*7, i%2 == 1))
			if err != nil {
				b.Fatal(err)
			}
			c.plan.State.Tables.DB.Commit(func(tx *table.Tx) { c.kubernetes.Objects.Pods.Put(tx, pod) })
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/changes, "µs/change")
	}
}
