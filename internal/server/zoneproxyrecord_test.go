package server

import (
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/settings"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// TestZoneProxiesThatRunAreRecorded: the first start with the list records the zone proxies of Pods in namespaces that
// it lacks, once.
func TestZoneProxiesThatRunAreRecorded(t *testing.T) {
	rows := memory.New(memory.Options{})
	defer rows.Close()
	s := &Server{settings: &settings.Settings{Store: settings.KubernetesAPI, ZoneName: "east"}, store: rows,
		writer: admission.New(rows, admission.Options{Zone: "east", Environment: kind.Kubernetes,
			SystemNamespace: "kuma-system"})}
	s.settings.Kubernetes.SystemNamespace = "kuma-system"
	s.settings.Pods.ZoneProxyNamespaces = []string{"listed"}
	put := func(o resource.Any) {
		t.Helper()
		if _, err := s.writer.Put(t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
			t.Fatal(err)
		}
	}
	put(kind.Meshes.Make("", "default", kind.Mesh{}))
	for _, namespace := range []string{"kuma-system", "listed", "tenant"} {
		dp := kind.Dataplanes.Make("default", "out."+namespace, kind.Dataplane{Networking: kind.Networking{
			ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}}})
		dp.Labels = map[string]string{kind.PodUIDLabel: "u", kind.NamespaceLabel: namespace}
		put(dp)
	}
	record := func() kind.Grace { return recordGrace(t, s, kind.GraceOfZoneProxies) }
	first := record()
	if len(first.Proxies) != 1 || first.Proxies[0] != (kind.GraceZoneProxy{Namespace: "tenant", Mesh: "default",
		Role: kind.EgressRole}) || time.Until(first.Until.Time) > graceTime {
		t.Errorf("recorded is %+v", first)
	}
	late := kind.Dataplanes.Make("default", "late.other", kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.2", Port: 10002}}})
	late.Labels = map[string]string{kind.PodUIDLabel: "u", kind.NamespaceLabel: "other"}
	put(late)
	if again := record(); len(again.Proxies) != 1 {
		t.Errorf("a later start records %+v", again)
	}
}

// recordGrace records what goes on for a while under a rule, as a start does, and returns the record of the rule.
func recordGrace(t *testing.T, s *Server, rule string) kind.Grace {
	t.Helper()
	if err := s.recordGraces(t.Context()); err != nil {
		t.Fatal(err)
	}
	row, err := s.store.Get(t.Context(), kind.Graces.Key("", rule))
	if err != nil {
		t.Fatal(err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*resource.Object[kind.Grace]).Spec
}
