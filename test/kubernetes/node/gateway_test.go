package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/demo"
	"weft/internal/kube/kubetest"
	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

// backendRoute is an HTTPRoute for the Service "web" of the namespace "producer" that sends requests below a path to
// a Service of that namespace.
func backendRoute(namespace, path, backend string) string {
	return fmt.Sprintf(`
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %s}
spec:
  parentRefs: [{group: "", kind: Service, name: web, namespace: producer, port: 80}]
  rules:
  - matches: [{path: {type: PathPrefix, value: %s}}]
    backendRefs: [{name: %s, namespace: producer, port: 80}]
`, namespace, path, backend)
}

// granted lets every client call every server of the namespace "producer", and the routes of "consumer" refer to them.
const granted = `
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: all, namespace: producer, labels: {kuma.io/mesh: default}}
spec: {rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/ns/"}}]}}]}
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: consumer, namespace: producer}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: consumer}]
  to: [{group: "", kind: Service}]
`

// TestGatewayAPI: a request that no rule of an HTTPRoute matches gets 404. The route of another namespace replaces it
// for the clients there, and for no others.
func TestGatewayAPI(t *testing.T) {
	w := mesh(t)
	for _, file := range kubetest.GatewayAPI(t) {
		w.kubectl("apply", "--server-side", "-f", file)
	}
	s := w.open("producer", shop.Server("producer", "web", 1)+shop.Server("producer", "next", 1))
	w.namespace("consumer", "kuma.io/sidecar-injection=enabled")
	w.apply(granted + strings.Replace(shop.Client("consumer", "client"), `"name": "web"`,
		`"name": "web", "namespace": "producer"`, 1))
	w.wait("pod/client", "condition=Ready", "-n", "consumer")
	consumer := w.podIP("consumer", "client")
	requires := func(pod, path, want string) {
		t.Helper()
		w.eventually(fmt.Sprintf("a request from %s for %s: %s", pod, path, want), func(ctx context.Context) error {
			got, err := shop.Get(ctx, pod, shop.Web+".producer"+path)
			of := demo.Response{Service: fmt.Sprint(got.Status)}
			if got.Status == 200 && err == nil {
				err = json.Unmarshal(got.Body, &of)
			}
			if err == nil && of.Service != want {
				err = fmt.Errorf("%s %s, want %s", of.Service, got.Error, want)
			}
			return err
		})
	}
	requires(s.Client, "/a", "web")
	requires(consumer, "/a", "web")
	w.apply(backendRoute("producer", "/a", "next"))
	for _, client := range []string{s.Client, consumer} {
		requires(client, "/a", "next")
		requires(client, "/b", "404")
	}
	w.apply(backendRoute("consumer", "/b", "next"))
	requires(consumer, "/b", "next")
	requires(consumer, "/a", "404")
	requires(s.Client, "/b", "404")
	requires(s.Client, "/a", "next")
	w.kubectl("delete", "httproute", "web", "-n", "producer")
	requires(s.Client, "/b", "web")
	requires(consumer, "/a", "404")
}

// TestDrillADelegatedGateway: clients without the mesh reach the proxy of a delegated gateway, in its Pod and by its
// Service. The requests that it sends on reach the servers with mutual TLS and the SPIFFE ID of the gateway. None is
// lost while the servers are restarted.
func TestDrillADelegatedGateway(t *testing.T) {
	w := mesh(t)
	const namespace = "delegated"
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled")
	w.apply(shop.Server(namespace, "web", 2) + shop.DelegatedGateway(namespace, "gateway") +
		shop.Permission(namespace, "web", "gateway"))
	w.wait("deployment/web", "condition=Available", "-n", namespace)
	w.wait("pod/gateway", "condition=Ready", "-n", namespace)
	if inbounds := w.kubectl("get", "dataplane", "gateway", "-n", namespace, "-o",
		"jsonpath={.spec.networking.inbound}"); inbounds != "" {
		t.Errorf("the Dataplane of the gateway has the inbounds %s, want none", inbounds)
	}
	s := &shop.Shop{Node: w.Node, Namespace: namespace}
	through := func(address string) flow {
		return fromPod(address, shop.Web).named("through the gateway at "+address, s.ID("gateway"), "web")
	}
	service := w.kubectl("get", "service", "gateway", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
	w.reached(through(w.podIP(namespace, "gateway")), through(service))
	rate := 50
	if *drills {
		rate = 200
	}
	former := w.servers(s)
	run := traffic.Start(rate, 20*time.Second, func(ctx context.Context) (string, error) {
		of, err := through(service).call(ctx)
		return of.Instance, err
	})
	w.kubectl("rollout", "restart", "deployment/web", "-n", namespace)
	w.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout", "5m")
	for _, pod := range former {
		w.wait("pod/"+pod, "delete", "-n", namespace)
	}
	w.verdict("servers behind a delegated gateway are restarted", run.Stop())
}
