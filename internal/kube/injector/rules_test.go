package injector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/api"
	"weft/internal/kube/inject"
	"weft/internal/kube/injector"
	"weft/internal/kube/kubetest"
	"weft/internal/testwait"
)

// rule creates a ResourceQuota or a LimitRange in a namespace. No controller counts, so the status of a quota is
// written here.
func (c *cluster) rule(t *testing.T, namespace, plural, doc string) {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
		t.Fatal(err)
	}
	path := namespaces + "/" + namespace + "/" + plural
	var stored map[string]any
	if err := c.Create(t.Context(), path, object, &stored); err != nil {
		t.Fatal(err)
	}
	if plural != "resourcequotas" {
		return
	}
	hard := stored["spec"].(map[string]any)["hard"].(map[string]any)
	used := map[string]any{}
	for name := range hard {
		used[name] = "0"
	}
	stored["status"] = map[string]any{"hard": hard, "used": used}
	name := stored["metadata"].(map[string]any)["name"].(string)
	if err := c.Update(t.Context(), path+"/"+name+"/status", stored, nil); err != nil {
		t.Fatal(err)
	}
}

const app = `{apiVersion: v1, kind: Pod, metadata: {generateName: web-}, spec: {containers: [{name: web, image: web:1,
	resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}}]}}`

// TestRulesOfNamespaces: the API server accepts an injected Pod in a namespace whose ResourceQuotas and LimitRanges
// bound containers, and which accepts the Pod without a sidecar.
func TestRulesOfNamespaces(t *testing.T) {
	c := start(t)
	for n, test := range []struct{ name, quota, limits, cpu, memory string }{
		{"a quota of limits", `{limits.cpu: "4", limits.memory: 4Gi, requests.cpu: "2", requests.memory: 2Gi}`, "",
			"1", "512Mi"},
		{"a quota of requests", `{cpu: "2", memory: 2Gi}`, "", "0", "512Mi"},
		{"a maximum", "", `{type: Container, max: {cpu: 400m, memory: 256Mi}}`, "400m", "256Mi"},
		{"bounds of all kinds", "", `{type: Container, min: {cpu: 60m, memory: 32Mi}, max: {cpu: "2", memory: 1Gi,
			ephemeral-storage: 500M}, maxLimitRequestRatio: {cpu: "5", memory: "4"}}`, "1", "512Mi"},
		{"a default below the request", "", `{type: Container, default: {cpu: 30m}, defaultRequest: {cpu: 20m}}`, "1",
			"512Mi"},
		{"a maximum of the Pod", "", `{type: Pod, max: {cpu: 600m, memory: 300Mi}}`, "400m", "172Mi"},
		{"both", `{limits.cpu: "4"}`, `{type: Container, max: {cpu: 300m}}`, "300m", "512Mi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			namespace := fmt.Sprintf("rules-%d", n)
			c.namespace(t, namespace, "enabled")
			if test.quota != "" {
				c.rule(t, namespace, "resourcequotas",
					"{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: "+test.quota+"}}")
			}
			if test.limits != "" {
				c.rule(t, namespace, "limitranges",
					"{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: ["+test.limits+"]}}")
			}
			var pod *core.Pod
			testwait.Until(t, "the API server injects", func() (err error) {
				if pod, err = c.pod(t, namespace, app); err == nil && sidecars(pod) != 1 {
					err = fmt.Errorf("the Pod has %d sidecars", sidecars(pod))
				}
				return err
			})
			limits := pod.Spec.InitContainers[1].Resources.Limits
			if got := limits.Cpu().String(); got != test.cpu {
				t.Errorf("the sidecar has a CPU limit of %s, want %s", got, test.cpu)
			}
			if got := limits.Memory().String(); got != test.memory {
				t.Errorf("the sidecar has a memory limit of %s, want %s", got, test.memory)
			}
		})
	}
}

// TestDenialIsOneLine: kubectl cuts the message of an event at its first line break, and the first words have the
// field.
func TestDenialIsOneLine(t *testing.T) {
	c := start(t)
	c.namespace(t, "denials", "enabled")
	testwait.Until(t, "the webhook denies", func() error {
		_, err := c.pod(t, "denials", strings.Replace(app, "image: web:1,",
			"image: web:1, ports: [{containerPort: 15006}],", 1))
		const want = "denied the request: spec.containers[0].ports[0].containerPort: 15006 is the port of the sidecar"
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			return fmt.Errorf("the API server says %v", err)
		}
		return nil
	})
}

// TestCAWithoutARejectingNamespace: a namespace whose quota allows no ConfigMap does not keep the CA from those after
// it, and gets the CA once it allows one.
func TestCAWithoutARejectingNamespace(t *testing.T) {
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Client: client}
	c.namespace(t, "full-system", "")
	c.namespace(t, "full-a", "enabled")
	c.namespace(t, "full-b", "enabled")
	c.rule(t, "full-a", "resourcequotas",
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {configmaps: "0"}}}`)
	testwait.Until(t, "the quota counts", func() error {
		err := c.Create(t.Context(), namespaces+"/full-a/configmaps", map[string]any{"apiVersion": "v1",
			"kind": "ConfigMap", "metadata": map[string]any{"generateName": "c-"}}, nil)
		if err == nil {
			return fmt.Errorf("the namespace accepts a ConfigMap")
		}
		return nil
	})
	run(t, func(ctx context.Context) {
		injector.KeepCA(ctx, c.Client, "full-system", func() ([]byte, error) { return []byte("ca"), nil }, nil)
	})
	has := func(namespace string) {
		t.Helper()
		testwait.Until(t, "the namespace "+namespace+" has the CA", func() error {
			return c.Get(t.Context(), namespaces+"/"+namespace+"/configmaps/"+inject.CAConfigMap, nil, nil)
		})
	}
	has("full-b")
	if err := c.Delete(t.Context(), namespaces+"/full-a/resourcequotas/q", "", ""); err != nil {
		t.Fatal(err)
	}
	has("full-a")
}
