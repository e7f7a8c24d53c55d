package node_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// proxiesOfEveryMesh runs the Deployments of the example, a zone ingress and a zone egress of every mesh, until the end
// of the test.
func (w *world) proxiesOfEveryMesh() {
	w.t.Helper()
	w.applyEveryMesh()
	for _, role := range []string{"ingress", "egress"} {
		w.kubectl("rollout", "status", "deployment/kuma-"+role, "-n", "kuma-system", "--timeout", "3m")
	}
}

// applyEveryMesh applies the example with the image of the tests, until the end of the test.
func (w *world) applyEveryMesh() {
	w.t.Helper()
	text, err := os.ReadFile("../../../examples/kubernetes/zone-proxies.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	image := w.kubectl("get", "deployment/kuma-control-plane", "-n", "kuma-system", "-o",
		`jsonpath={.spec.template.spec.containers[0].env[?(@.name=="KUMA_RUNTIME_KUBERNETES_INJECTOR_SIDECAR_CONTAINER_IMAGE")].value}`)
	objects := strings.NewReplacer("registry.example/weft-dp:v1", image, "type: LoadBalancer", "type: NodePort").
		Replace(string(text))
	w.apply(objects)
	w.t.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), objects, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			w.t.Error(err)
		}
	})
}

// TestZoneProxiesOfEveryMesh: the Deployments of the example, which have the annotations of Kuma 2.x, run a zone
// ingress and a zone egress of every mesh with the tokens of their Pods. Their resources go with the Pods.
func TestZoneProxiesOfEveryMesh(t *testing.T) {
	w := mesh(t)
	w.proxiesOfEveryMesh()
	port := w.kubectl("get", "service/kuma-ingress", "-n", "kuma-system", "-o", "jsonpath={.spec.ports[0].nodePort}")
	all := func(ctx context.Context, format string) (string, error) {
		return w.Kubectl(ctx, "", "get", "zoneingresses,zoneegresses", "-n", "kuma-system", "-o", format)
	}
	w.eventually("the proxies are a ZoneIngress at the NodePort, and a ZoneEgress", func(ctx context.Context) error {
		got, err := all(ctx, "jsonpath={range .items[*]}{.kind}:{.spec.networking.port}:"+
			"{.spec.networking.advertisedPort} {end}")
		if want := "ZoneIngress:10001:" + port + " ZoneEgress:10002:"; err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("there are %s, want %s", got, want)
		}
		return err
	})
	w.nothingIsWrong(clusterAPI)
	w.kubectl("delete", "deployment/kuma-ingress", "deployment/kuma-egress", "-n", "kuma-system")
	w.eventually("the resources are gone with their Pods", func(ctx context.Context) error {
		got, err := all(ctx, "name")
		if err == nil && strings.TrimSpace(got) != "" {
			err = fmt.Errorf("there are %s", got)
		}
		return err
	})
}
