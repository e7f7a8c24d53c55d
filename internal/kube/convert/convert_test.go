package convert

import (
	"slices"
	"testing"
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
