package server

import (
	"testing"

	"weft/internal/admission"
	"weft/internal/settings"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestRoutesWithoutAGrantAreRecorded: the first start with the rule records the references of producers' routes that
// may need a grant, once.
func TestRoutesWithoutAGrantAreRecorded(t *testing.T) {
	rows := memory.New(memory.Options{})
	defer rows.Close()
	s := &Server{settings: &settings.Settings{ZoneName: "east"}, store: rows, writer: admission.New(rows,
		admission.Options{Zone: "east", Environment: kind.Kubernetes, SystemNamespace: "kuma-system"})}
	put := func(doc string) {
		t.Helper()
		o, err := resource.Parse([]byte(doc), kind.ByName)
		if err == nil {
			_, err = s.writer.Put(t.Context(), o, admission.Change{ControlPlane: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	route := func(name, to, refs string) {
		t.Helper()
		put(`{type: MeshTCPRoute, mesh: default, name: ` + name + `, spec: {to: [{targetRef: {kind: MeshService, name: ` +
			to + `}, rules: [{default: {backendRefs: [` + refs + `]}}]}]}}`)
	}
	put(`{type: Mesh, name: default}`)
	route("stored.shop", "web", `{kind: MeshService, name: pay, namespace: pay, port: 80}, `+
		`{kind: MeshService, name: web, port: 80}, {kind: MeshService, labels: {app: x}, port: 80}`)
	route("consumer.shop", "web, namespace: pay", `{kind: MeshService, name: other, namespace: pay, port: 80}`)
	record := func() kind.Grace { return recordGrace(t, s, kind.GraceOfRoutes) }
	if first := record(); len(first.Routes) != 2 || first.Routes[0].Route != "MeshTCPRoute default/stored.shop" {
		t.Errorf("recorded is %+v", first)
	}
	route("new.shop", "web", `{kind: MeshService, name: pay, namespace: pay, port: 80}`)
	if again := record(); len(again.Routes) != 2 {
		t.Errorf("a later start records %+v", again)
	}
}
