package convert

import (
	"fmt"
	"slices"
	"testing"

	"weft/internal/kube/podmeta"
	"weft/kind"
	"weft/resource"
)

// TestSelects: a selector selects Pods with all of its labels. Where only ignored labels differ, the Pod has an Ignored
// inbound. A selector that has only ignored labels selects no other Pod: without them, it would select every Pod.
// (Adding inbounds in runtime.)
func TestSelects(t *testing.T) {
	settings := Settings{IgnoredLabels: []string{"hash"}}
	for _, c := range []struct {
		selector map[string]string
		want     Selection
	}{
		{nil, NotSelected},
		{map[string]string{"app": "web"}, Selected},
		{map[string]string{"app": "web", "hash": "blue"}, Selected},
		{map[string]string{"app": "web", "hash": "green"}, SelectedButIgnored},
		{map[string]string{"app": "api", "hash": "blue"}, NotSelected},
		{map[string]string{"hash": "blue"}, Selected},
		{map[string]string{"hash": "green"}, NotSelected},
	} {
		pod := map[string]string{"app": "web", "hash": "blue", "tier": "front"}
		if got := settings.Selects(&Service{Selector: c.selector}, pod); got != c.want {
			t.Errorf("the selector %v gives %d, want %d", c.selector, got, c.want)
		}
	}
}

// TestMeshOfASidecar: a Pod stays in the mesh with which its sidecar was started, whatever its label says later.
func TestMeshOfASidecar(t *testing.T) {
	settings := Settings{DefaultMesh: "prod"}
	for sidecar, want := range map[string]string{
		`"args": ["--name=web-1.shop", "--mesh=demo"]`:                                             "demo",
		`"env": [{"name": "KUMA_DATAPLANE_MESH", "value": "demo"}]`:                                "demo",
		`"args": ["--mesh=demo"], "env": [{"name": "KUMA_DATAPLANE_MESH", "value": "other"}]`:      "demo",
		`"args": ["--name=web-1.shop"]`:                                                            "label",
		`"args": []}, {"name": "app", "args": ["--mesh=of-the-application", "--mesh=another-one"]`: "label",
	} {
		pod, err := DecodePod([]byte(`{"metadata": {"labels": {"kuma.io/mesh": "label"}, "annotations": ` +
			`{"kuma.io/sidecar-injected": "true"}}, "spec": {"containers": [{"name": "kuma-sidecar", ` +
			sidecar + `}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := settings.MeshOf(pod, &Around{}); got != want {
			t.Errorf("%s: the mesh is %s, want %s", sidecar, got, want)
		}
	}
	if got := settings.MeshOf(&Pod{}, &Around{}); got != "prod" {
		t.Errorf("a Pod that names no mesh is in %s, want prod", got)
	}
}

// TestMeshOfAPod: the label of the object precedes its annotation, and both precede those of the Namespace. The mesh of
// the stored Dataplane of this Pod precedes all of them, and that of a former Pod of its name counts for nothing.
func TestMeshOfAPod(t *testing.T) {
	settings := Settings{DefaultMesh: "prod"}
	stored := func(uid string) *resource.Object[kind.Dataplane] {
		dp := kind.Dataplanes.Make("stored", "web-1.shop", kind.Dataplane{})
		dp.Labels = map[string]string{kind.PodUIDLabel: uid}
		return dp
	}
	mesh := func(name string) map[string]string { return map[string]string{podmeta.MeshKey: name} }
	for _, c := range []struct {
		own, namespace Meta
		stored         *resource.Object[kind.Dataplane]
		want, service  string
	}{
		{Meta{Labels: mesh("a"), Annotations: mesh("b")}, Meta{Labels: mesh("c"), Annotations: mesh("d")}, nil, "a",
			"a"},
		{Meta{Annotations: mesh("b")}, Meta{Labels: mesh("c"), Annotations: mesh("d")}, nil, "b", "b"},
		{Meta{}, Meta{Labels: mesh("c"), Annotations: mesh("d")}, nil, "c", "c"},
		{Meta{}, Meta{Annotations: mesh("d")}, nil, "d", "d"},
		{Meta{}, Meta{}, nil, "prod", "prod"},
		{Meta{Labels: mesh("a")}, Meta{}, stored("u1"), "stored", "a"},
		{Meta{Annotations: mesh("b")}, Meta{}, stored("u0"), "b", "b"},
	} {
		pod, namespace := &Pod{Meta: c.own}, &Namespace{Meta: c.namespace}
		pod.UID = "u1"
		if got := settings.MeshOf(pod, &Around{Namespace: namespace, Stored: c.stored}); got != c.want {
			t.Errorf("the mesh of a Pod with %v in a Namespace with %v is %s, want %s", c.own, c.namespace, got, c.want)
		}
		if got := settings.MeshOfService(&Service{Meta: c.own}, namespace); got != c.service {
			t.Errorf("the mesh of a Service with %v in a Namespace with %v is %s, want %s", c.own, c.namespace, got,
				c.service)
		}
	}
}

// TestAdvertisedAddressOfAFormerPod: while its load balancer has no address, a zone ingress keeps the address that the
// stored resource of this Pod has. The address of a former Pod of its name is not taken over, nor one for a Service
// without an address outside the cluster.
func TestAdvertisedAddressOfAFormerPod(t *testing.T) {
	const namespace = "kuma-system"
	settings := Settings{DefaultMesh: "default", SystemNamespace: namespace}
	const ofMesh, ofAll = `"k8s.kuma.io/zone-proxy-type": "ingress"`, `"kuma.io/ingress": "enabled"`
	pod := func(labels, annotations string) *Pod {
		p, err := DecodePod([]byte(`{"metadata": {"name": "in", "namespace": "` + namespace + `", "uid": "u1", "labels": ` +
			`{"app": "in"` + labels + `}, "annotations": {` + annotations + `}}, "spec": {"containers": [{"name": "in", "ports": ` +
			`[{"containerPort": 10001}]}]}, "status": {"podIP": "10.42.0.1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	service := func(of, labels string) Serves {
		s, err := DecodeService([]byte(`{"metadata": {"name": "in", "namespace": "` + namespace + `", "labels": {` +
			labels + `}}, "spec": {"type": "` + of + `", "selector": {"app": "in"}, "ports": [{"port": 10001, "targetPort": 10001}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return Serves{Service: s}
	}
	for _, c := range []struct {
		of, uid, advertised, want string
	}{
		{"LoadBalancer", "u1", "203.0.113.1", "203.0.113.1:30001"},
		{"LoadBalancer", "u0", "203.0.113.1", ""},
		{"LoadBalancer", "", "203.0.113.1", ""},
		{"LoadBalancer", "u1", "", ""},
		{"NodePort", "u1", "203.0.113.1", "203.0.113.1:30001"},
		{"NodePort", "u0", "203.0.113.1", ""},
		{"ClusterIP", "u1", "203.0.113.1", ""},
	} {
		around := func(labels string) *Around {
			return &Around{Namespace: &Namespace{}, Services: []Serves{service(c.of, labels)},
				HasMesh: func(string) bool { return true }, ReadyNodes: func() []*Node { return nil },
				Routed: func(string) RoutedProtocols { return RoutedProtocols{} }}
		}
		labels := map[string]string{kind.PodUIDLabel: c.uid}
		a := around(ofMesh)
		a.Stored = kind.Dataplanes.Make("default", "in."+namespace, kind.Dataplane{Networking: kind.Networking{
			ZoneIngress: &kind.ZoneIngressSection{Address: "10.42.0.9", Port: 10001, AdvertisedAddress: c.advertised,
				AdvertisedPort: 30001}}})
		a.Stored.Labels = labels
		got := ""
		if dp := settings.Proxy(pod(", "+ofMesh, ""), a).Dataplane; dp != nil && dp.Spec.Networking.ZoneIngress != nil {
			z := dp.Spec.Networking.ZoneIngress
			got = fmt.Sprintf("%s:%d", z.AdvertisedAddress, z.AdvertisedPort)
		}
		if got != c.want {
			t.Errorf("%+v: the Pod of a mesh advertises %q", c, got)
		}

		a = around("")
		a.StoredIngress = kind.ZoneIngresses.Make("", "in."+namespace, kind.ZoneIngress{
			Networking: kind.ZoneIngressNetworking{Address: "10.42.0.9", Port: 10001, AdvertisedAddress: c.advertised,
				AdvertisedPort: 30001}})
		a.StoredIngress.Labels = labels
		got = ""
		if ingress := settings.Proxy(pod("", ofAll), a).ZoneIngress; ingress != nil &&
			ingress.Spec.Networking.AdvertisedAddress != "" {
			n := &ingress.Spec.Networking
			got = fmt.Sprintf("%s:%d", n.AdvertisedAddress, n.AdvertisedPort)
		}
		if got != c.want {
			t.Errorf("%+v: the Pod of every mesh advertises %q", c, got)
		}
	}
}

// TestNotRedirected: a Pod whose validation has failed gets an event, until the validation succeeds.
func TestNotRedirected(t *testing.T) {
	settings := Settings{DefaultMesh: "default"}
	around := Around{Namespace: &Namespace{}, HasMesh: func(string) bool { return true }}
	for status, want := range map[string]bool{
		`{"name": "kuma-validation", "state": {"terminated": {"exitCode": 1}}}`:                                        true,
		`{"name": "kuma-validation", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}`:          true,
		`{"name": "kuma-validation", "state": {"running": {}}}`:                                                        false,
		`{"name": "kuma-validation", "state": {"terminated": {}}, "lastState": {"terminated": {"exitCode": 1}}}`:       false,
		`{"name": "migration", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}`:                false,
		`{"name": "kuma-validation", "state": {"terminated": {"exitCode": 1}}}, {"name": "kuma-sidecar", "state": {}}`: true,
	} {
		pod, err := DecodePod([]byte(`{"metadata": {"name": "web", "annotations": {"kuma.io/sidecar-injected": "true"}}, ` +
			`"status": {"podIP": "10.0.0.1", "initContainerStatuses": [` + status + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, event := range settings.Proxy(pod, &around).Events {
			reasons = append(reasons, event.Reason)
		}
		if slices.Contains(reasons, NotRedirected) != want {
			t.Errorf("%s: the events are %v", status, reasons)
		}
	}
}

// TestServesVersion: a definition serves a kind where it is established, has the version and is not deleted.
func TestServesVersion(t *testing.T) {
	definition := func(versions, established, deleted string) string {
		return `{"metadata": {` + deleted + `}, "spec": {"versions": [` + versions + `]}, "status": {"conditions": ` +
			`[{"type": "Established", "status": "` + established + `"}]}}`
	}
	const older, served, stored = `{"name": "v1alpha2", "served": true}`, `{"name": "v1", "served": true}`,
		`{"name": "v1", "served": false}`
	for _, c := range []struct {
		definition string
		want       bool
	}{
		{definition(older+","+served, "True", ""), true},
		{definition(older, "True", ""), false},
		{definition(older+","+stored, "True", ""), false},
		{definition(served, "False", ""), false},
		{definition(served, "True", `"deletionTimestamp": "2030-01-01T00:00:00Z"`), false},
	} {
		if got, err := ServesVersion([]byte(c.definition), "v1"); got != c.want || err != nil {
			t.Errorf("%s serves v1: %v (%v), want %v", c.definition, got, err, c.want)
		}
	}
}

// TestInjectionWarningsAreEvents: the warnings of an injection are events of the Pod, one each, since the controller
// that created the Pod has dropped them.
func TestInjectionWarningsAreEvents(t *testing.T) {
	around := Around{Namespace: &Namespace{}, HasMesh: func(string) bool { return true }}
	pod, err := DecodePod([]byte(`{"metadata": {"name": "web", "annotations": {"kuma.io/sidecar-injected": "true",
		"kuma.io/sidecar-warnings": "port 9001 is taken\nno effect"}}, "status": {"podIP": "10.0.0.1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, event := range (&Settings{DefaultMesh: "default"}).Proxy(pod, &around).Events {
		if event.Reason == InjectionWarning && event.Warning && event.On == pod.Ref() {
			messages = append(messages, event.Message)
		}
	}
	if want := []string{"port 9001 is taken", "no effect"}; !slices.Equal(messages, want) {
		t.Errorf("the events are %q, want %q", messages, want)
	}
}
