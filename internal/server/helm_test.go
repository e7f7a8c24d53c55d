package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/kube/install"
	"weft/internal/kube/install/installtest"
)

// runHelm runs the helm of the tests, and returns its output; the caller's KUBECONFIG names the cluster.
func runHelm(t *testing.T, args ...string) string {
	t.Helper()
	built, err := exec.Command("../../test/kubernetes/helm/build", "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(strings.TrimSpace(string(built)), "helm")
	if _, err := os.Stat(program); err != nil {
		t.Skip("the build of helm takes minutes, once: make helm")
	}
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir())
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// names returns "PLURAL NAMESPACE/NAME" of all objects, except for events, addresses of Services, and the Secrets in
// which helm keeps releases.
func (i *installation) names() []string {
	i.t.Helper()
	var all []string
	for _, collection := range i.collections() {
		plural := collection[strings.LastIndexByte(collection, '/')+1:]
		if plural == "events" || plural == "ipaddresses" { // the latter are the API server's, one for each Service
			continue
		}
		for _, o := range i.list(collection, "") {
			if !strings.HasPrefix(o.Metadata.Name, "sh.helm.release.") {
				all = append(all, plural+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// without returns the items of a list that another one does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// TestHelm: after an upgrade by helm, the cluster has the objects of the present values and none of the former ones.
// After `helm uninstall`, it has what it had before, and Pods start, while no control plane runs.
func TestHelm(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	i := &installation{cluster: c, t: t}
	shop := c.newShop(t)
	before := i.names()
	run := func(command, values string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		runHelm(t, command, "weft", "../../deploy/chart", "--namespace", c.namespace, "--skip-crds", "--values", file)
		var parsed map[string]any
		if err := yaml.Unmarshal([]byte(values), &parsed); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, o := range installtest.Objects(t, install.Options{Namespace: c.namespace, Values: parsed}) {
			meta := o["metadata"].(map[string]any)
			namespace, _ := meta["namespace"].(string)
			want = append(want, strings.ToLower(o.Kind())+"s "+namespace+"/"+meta["name"].(string))
		}
		got := without(i.names(), before)
		if more, less := without(got, want), without(want, got); len(more)+len(less) > 0 {
			t.Errorf("after the %s the cluster has too much, %q, and lacks %q", command, more, less)
		}
	}
	uninstalled := false
	t.Cleanup(func() {
		if !uninstalled {
			runHelm(t, "uninstall", "weft", "--namespace", c.namespace)
		}
	})
	run("install", `{cni: {enabled: true}, meshes: [{name: default, ingress: {enabled: true}, egress: {enabled: true}}],
		controlPlane: {config: "mode: zone\n", autoscaling: {enabled: true}}}`)
	pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web-1"}, "spec": object{
		"automountServiceAccountToken": false, "containers": []any{object{"name": "app", "image": "app"}}}}
	pods := "/api/v1/namespaces/" + shop.name + "/pods"
	if err := c.client.Create(t.Context(), pods, pod, nil); err == nil {
		t.Error("a Pod starts without the sidecar that it should have, while no control plane runs")
	}
	run("upgrade", `{controlPlane: {mode: global, podDisruptionBudget: {enabled: false}}}`)
	run("upgrade", `{meshes: [{name: default, egress: {enabled: true}}]}`)
	runHelm(t, "uninstall", "weft", "--namespace", c.namespace)
	uninstalled = true
	if left := without(i.names(), before); len(left) > 0 {
		t.Errorf("helm uninstall leaves %q", left)
	}
	if lost := without(before, i.names()); len(lost) > 0 {
		t.Errorf("helm uninstall removes %q", lost)
	}
	if err := c.client.Create(t.Context(), pods, pod, nil); err != nil {
		t.Errorf("no Pod starts in a cluster without weft: %v", err)
	}
}

// TestHelmNotes: helm prints the namespaces with zone proxies that are not listed, as a value to set; with this value,
// and on a global control plane, it prints nothing.
func TestHelmNotes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	shop := c.newShop(t)
	service := func(namespace, name string, labels object) {
		c.create(t, "/api/v1/namespaces/"+namespace+"/services", object{"apiVersion": "v1", "kind": "Service",
			"metadata": object{"name": name, "labels": labels}, "spec": object{"ports": []any{object{"port": 10001}}}})
	}
	service(c.namespace, "ingress", object{"k8s.kuma.io/zone-proxy-type": "ingress"}) // the system namespace is listed
	service(shop.name, "web", object{"app": "web"})
	notes := func(values ...string) string {
		t.Helper()
		args := []string{"install", "weft", "../../deploy/chart", "--namespace", c.namespace, "--skip-crds",
			"--dry-run=server"}
		for _, v := range values {
			args = append(args, "--set", v)
		}
		_, text, _ := strings.Cut(runHelm(t, args...), "\nNOTES:\n")
		return text
	}
	// Other tests leave the Services of their namespaces.
	namespaces := func(text string) []string {
		_, list, _ := strings.Cut(text, "--set 'controlPlane.zoneProxyNamespaces={")
		list, _, _ = strings.Cut(list, "}'")
		return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	if got := namespaces(notes()); slices.Contains(got, c.namespace) || slices.Contains(got, shop.name) {
		t.Errorf("helm prints the namespaces %q, without a zone proxy outside of %s", got, c.namespace)
	}
	service(shop.name, "egress", object{"k8s.kuma.io/zone-proxy-type": "egress"})
	got := namespaces(notes("controlPlane.zoneProxyNamespaces={edge}"))
	if slices.Contains(got, c.namespace) || !slices.Contains(got, shop.name) || !slices.Contains(got, "edge") {
		t.Errorf("helm prints the namespaces %q, want edge and %s", got, shop.name)
	}
	if text := notes("controlPlane.zoneProxyNamespaces={" + strings.Join(got, ",") + "}"); text != "" {
		t.Errorf("with the printed value, helm prints %q", text)
	}
	if text := notes("controlPlane.mode=global"); text != "" {
		t.Errorf("on a global control plane, helm prints %q", text)
	}
}
