package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	core "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft/internal/golden"
	"weft/internal/kube/convert"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// TestInjection: the patched Pod of each scenario. A scenario has the Pod and its Namespace, settings that differ from
// the defaults (fields of settings.Injector), rules of the Namespace (ResourceQuotas and LimitRanges), and
// ContainerPatches. Existing meshes are default, demo and team-a. Most patched Pods are differences from that of the
// scenario native.
func TestInjection(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		in := inputOf(t, scenario)
		result, err := Inject(in)
		if err != nil {
			golden.Set(scenario, "denied.txt", err.Error()+"\n")
			return
		}
		golden.Set(scenario, "warnings.txt", strings.Join(append(result.Warnings, ""), "\n"))
		patched := applied(t, in.Pod, result.Patch)
		golden.Set(scenario, "patched.yaml", "--- # Pod\n"+toYAML(t, patched))
		again := in
		again.Pod = patched
		second, err := Inject(again)
		if err != nil || second.Patch != nil {
			t.Errorf("the patched Pod gets the patch %s, %v", second.Patch, err)
		}
		if repeated, _ := Inject(in); string(repeated.Patch) != string(result.Patch) {
			t.Errorf("two patches of one Pod:\n%s\n%s", result.Patch, repeated.Patch)
		}
		var pod core.Pod
		if err := yaml.UnmarshalStrict([]byte(golden.Section(scenario, "patched.yaml")), &pod); err != nil &&
			!strings.Contains(golden.Section(scenario, "pod.yaml"), "unknown") {
			t.Errorf("the patched Pod is not one: %v", err)
		}
	})
}

func inputOf(t testing.TB, scenario *txtar.Archive) Input {
	t.Helper()
	pod, err := yaml.YAMLToJSON([]byte(golden.Section(scenario, "pod.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	in := input(pod)
	var namespace core.Namespace
	if err := yaml.UnmarshalStrict([]byte(golden.Section(scenario, "namespace.yaml")), &namespace); err != nil {
		t.Fatal(err)
	}
	in.Namespace = &convert.Namespace{Terminating: namespace.Status.Phase == core.NamespaceTerminating,
		Meta: convert.Meta{Name: namespace.Name, Labels: namespace.Labels, Annotations: namespace.Annotations}}
	if err := yaml.UnmarshalStrict([]byte(golden.Section(scenario, "settings.yaml")), in.Settings); err != nil {
		t.Fatal(err)
	}
	for _, doc := range resource.SplitYAML([]byte(golden.Section(scenario, "rules.yaml"))) {
		if strings.Contains(string(doc.Text), "kind: ResourceQuota") {
			in.Quotas = append(in.Quotas, decoded[core.ResourceQuota](t, doc.Text))
		} else {
			in.LimitRanges = append(in.LimitRanges, decoded[core.LimitRange](t, doc.Text))
		}
	}
	patches := map[string]*kind.ContainerPatch{}
	for _, doc := range resource.SplitYAML([]byte(golden.Section(scenario, "patches.yaml"))) {
		o, err := resource.Parse(doc.Text, kind.ByName)
		if err != nil {
			t.Fatal(err)
		}
		patch := o.(*resource.Object[kind.ContainerPatch])
		if problems := kind.ContainerPatches.Prepare(patch); len(problems) > 0 {
			t.Fatal(problems)
		}
		patches[patch.Name] = &patch.Spec
	}
	in.Patch = func(name string) *kind.ContainerPatch { return patches[name] }
	return in
}

func decoded[O any](t testing.TB, text []byte) (o O) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// input returns the input of a Pod in the labeled namespace demo.
func input(pod []byte) Input {
	return Input{
		Pod: pod, Settings: settings.InjectorDefaults(), System: "kuma-system",
		Namespace: &convert.Namespace{Meta: convert.Meta{Name: "demo",
			Labels: map[string]string{injectionLabel: "enabled"}}},
		ControlPlane: "https://kuma-control-plane.kuma-system.svc:5678",
		HasMesh: func(mesh string) bool {
			return slices.Contains([]string{"default", "demo", "team-a"}, mesh)
		},
		NotAdmitted: func(mesh, pod string, labels map[string]string) string {
			if labels["team"] == "other" {
				return "mesh " + mesh + " does not admit " + pod
			}
			return ""
		},
		Patch: func(string) *kind.ContainerPatch { return nil },
	}
}

// TestMeshOfAPod: the label of the Pod precedes its annotation, and both precede those of the Namespace. An annotation
// gets a warning.
func TestMeshOfAPod(t *testing.T) {
	mesh := func(name string) map[string]string {
		if name == "" {
			return nil
		}
		return map[string]string{meshLabel: name}
	}
	for _, c := range []struct {
		label, annotation, namespaceLabel, namespaceAnnotation, want string
	}{
		{"a", "b", "c", "d", "a"},
		{"", "b", "c", "d", "b"},
		{"", "", "c", "d", "c"},
		{"", "", "", "d", "d"},
		{"", "b", "", "", "b"},
		{"", "", "", "", "default"},
	} {
		pod, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": "web", "labels": mesh(c.label), "annotations": mesh(c.annotation)},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}}})
		if err != nil {
			t.Fatal(err)
		}
		in := input(pod)
		in.HasMesh = func(string) bool { return true }
		in.Namespace.Annotations = mesh(c.namespaceAnnotation)
		if c.namespaceLabel != "" {
			in.Namespace.Labels[meshLabel] = c.namespaceLabel
		}
		result, err := Inject(in)
		if err != nil {
			t.Fatal(err)
		}
		var patched core.Pod
		if err := json.Unmarshal(applied(t, pod, result.Patch), &patched); err != nil {
			t.Fatal(err)
		}
		if got := patched.Labels[meshLabel]; got != c.want {
			t.Errorf("%+v: the mesh is %s", c, got)
		}
		sidecar := patched.Spec.InitContainers[len(patched.Spec.InitContainers)-1]
		if !slices.Contains(sidecar.Args, "--mesh="+c.want) {
			t.Errorf("%+v: the sidecar has the arguments %v", c, sidecar.Args)
		}
		warnings := strings.Join(result.Warnings, "\n")
		for of, annotation := range map[string]string{"Pod": c.annotation, "Namespace": c.namespaceAnnotation} {
			want := annotation != ""
			if strings.Contains(warnings, "the annotation kuma.io/mesh of the "+of+" is deprecated") != want {
				t.Errorf("%+v: a warning about the annotation of the %s: want %t; the warnings are %q", c, of, want,
					warnings)
			}
		}
	}
}

// applied returns a Pod after a patch.
func applied(t testing.TB, pod, patch []byte) []byte {
	t.Helper()
	if patch == nil {
		return pod
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%v: %s", err, patch)
	}
	patched, err := decoded.Apply(pod)
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, patch, pod)
	}
	return patched
}

func toYAML(t testing.TB, text []byte) string {
	t.Helper()
	out, err := yaml.JSONToYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestPatchedPodsKeepEverything: for any Pod, a second injection changes nothing, and removing what was added gives the
// user's containers and volumes again, with fields that this release does not know.
func TestPatchedPodsKeepEverything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		pod := drawPod(r)
		text, err := json.Marshal(pod)
		if err != nil {
			r.Fatal(err)
		}
		in := input(text)
		in.Settings.NativeSidecars = rapid.Bool().Draw(r, "native")
		in.Settings.CNI = rapid.Bool().Draw(r, "cni")
		result, err := Inject(in)
		if err != nil {
			return // a denied Pod does not start
		}
		patched := applied(t, text, result.Patch)
		again := in
		again.Pod = patched
		second, err := Inject(again)
		if err != nil || second.Patch != nil {
			r.Fatalf("a second injection: %s, %v\n%s", second.Patch, err, patched)
		}
		var after map[string]any
		if err := json.Unmarshal(patched, &after); err != nil {
			r.Fatal(err)
		}
		var before map[string]any
		if err := json.Unmarshal(text, &before); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(users(before), users(after)); diff != "" {
			r.Fatalf("the user's parts differ:\n%s", diff)
		}
		// Another webhook adds a container at the beginning: it is repaired, once.
		added := applied(t, patched, []byte(`[{"op": "add", "path": "/spec/initContainers/0", "value": {"name": "other",
			"image": "i", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 81}}}}]`))
		again.Pod = added
		third, err := Inject(again)
		if err != nil {
			r.Fatal(err)
		}
		again.Pod = applied(t, added, third.Patch)
		if fourth, err := Inject(again); err != nil || fourth.Patch != nil {
			r.Fatalf("a repaired Pod: %s, %v", fourth.Patch, err)
		}
		var repaired core.Pod
		if err := json.Unmarshal(again.Pod, &repaired); err != nil {
			r.Fatal(err)
		}
		if in.Settings.NativeSidecars && repaired.Spec.InitContainers[1].Name != SidecarContainer {
			r.Fatalf("the second init container is %s", repaired.Spec.InitContainers[1].Name)
		}
	})
}

// users returns the user's containers without what calls of the kubelet have, and the user's volumes.
func users(pod map[string]any) map[string][]any {
	spec, _ := pod["spec"].(map[string]any)
	kept := map[string][]any{}
	for _, list := range []string{"containers", "initContainers", "volumes"} {
		items, _ := spec[list].([]any)
		for _, item := range items {
			o := item.(map[string]any)
			name := o["name"].(string)
			if ours(name) || slices.Contains([]string{sidecarVolume, initVolume, tokenVolume, spireVolume}, name) {
				continue
			}
			for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
				if p, ok := o[probe].(map[string]any); ok {
					o[probe] = map[string]any{"unknown": p["unknown"], "periodSeconds": p["periodSeconds"]}
				}
			}
			kept[list] = append(kept[list], o)
		}
	}
	return kept
}

func drawPod(r *rapid.T) map[string]any {
	container := func(label string, sidecar bool) map[string]any {
		c := map[string]any{"name": label, "image": "i", "futureField": map[string]any{"a": 1.0}}
		if sidecar {
			c["restartPolicy"] = "Always"
		}
		c["ports"] = []any{map[string]any{"name": "web", "containerPort": 8080.0}}
		for _, probe := range []string{"livenessProbe", "readinessProbe"} {
			handler := rapid.SampledFrom([]map[string]any{
				nil, {"httpGet": map[string]any{"port": "web", "path": "/x"}},
				{"tcpSocket": map[string]any{"port": 80.0}}, {"grpc": map[string]any{"port": 90.0, "service": "s"}},
				{"exec": map[string]any{"command": []any{"true"}}}, {"httpGet": map[string]any{"port": "gone"}},
				{"httpGet": map[string]any{"port": 80.0, "scheme": "HTTPS"}},
			}).Draw(r, label+probe)
			if handler == nil {
				continue
			}
			p := map[string]any{"unknown": true, "periodSeconds": 3.0}
			for k, v := range handler {
				p[k] = v
			}
			c[probe] = p
		}
		return c
	}
	spec := map[string]any{}
	list := func(name string, least, most int, sidecars bool) {
		var all []any
		for n := range rapid.IntRange(least, most).Draw(r, name) {
			label := fmt.Sprintf("%s-%d", strings.ToLower(name), n)
			all = append(all, container(label, sidecars && rapid.Bool().Draw(r, label)))
		}
		if all != nil || rapid.Bool().Draw(r, name+" is empty") {
			spec[name] = all
		}
	}
	list("containers", 1, 3, false)
	list("initContainers", 0, 3, true)
	if rapid.Bool().Draw(r, "volumes") {
		spec["volumes"] = []any{map[string]any{"name": "v", "futureVolume": map[string]any{}}}
	}
	metadata := map[string]any{"name": "p"}
	for _, key := range []string{"labels", "annotations"} {
		if rapid.Bool().Draw(r, key) {
			metadata[key] = map[string]any{"a/b": "c~d"}
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

// TestAddedContainersMustNotCollide: a container that another webhook adds after the injection, with a port of the
// sidecar, denies the Pod.
func TestAddedContainersMustNotCollide(t *testing.T) {
	in := input([]byte(`{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "web", "image": "i",
		"ports": [{"containerPort": 9902}]}]}}`))
	first, err := Inject(in)
	if err != nil {
		t.Fatal(err)
	}
	injected := applied(t, in.Pod, first.Patch)
	for port, denied := range map[int]bool{9901: false, 9902: false, 9903: true, 9001: true, 15001: true, 15053: true} {
		in.Pod = applied(t, injected, fmt.Appendf(nil, `[{"op": "add", "path": "/spec/containers/-", "value":
			{"name": "other", "image": "i", "ports": [{"containerPort": %d}]}}]`, port))
		_, err := Inject(in)
		want := fmt.Sprintf("spec.containers[1].ports[0].containerPort: %d is the port of the sidecar", port)
		if denied != (err != nil && strings.Contains(err.Error(), want)) {
			t.Errorf("a container with port %d: %v", port, err)
		}
	}
}
