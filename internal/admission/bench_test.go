package admission_test

import (
	"fmt"
	"testing"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// BenchmarkPut writes a Dataplane, each time with another port, and once more without a change.
func BenchmarkPut(b *testing.B) {
	rows := memory.New(memory.Options{})
	defer rows.Close()
	w := admission.New(rows, admission.Options{Zone: "east"})
	put := func(document string) {
		o, err := resource.Parse([]byte(document), kind.ByName)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Put(b.Context(), o, admission.Change{}); err != nil {
			b.Fatal(err)
		}
	}
	put(`{type: Mesh, name: m}`)
	dataplane := func(port int) resource.Any {
		o, err := resource.Parse(fmt.Appendf(nil,
			`{type: Dataplane, mesh: m, name: web-1, labels: {app: web, team: shop},
			networking: {address: 10.0.0.1, inbound: [
			{port: %d, protocol: http, tags: {kuma.io/service: web, version: v1}},
			{port: 9090, name: admin, protocol: http, tags: {kuma.io/service: web-admin}}],
			outbound: [{port: 10001, backendRef: {kind: MeshService, name: backend, port: 80}},
			{port: 10002, backendRef: {kind: MeshService, name: reports, port: 80}}]}}`, port), kind.ByName)
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	for name, documents := range map[string][]resource.Any{
		"changed": {dataplane(8080), dataplane(8081)}, "unchanged": {dataplane(8080)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := w.Put(b.Context(), documents[i%len(documents)], admission.Change{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
