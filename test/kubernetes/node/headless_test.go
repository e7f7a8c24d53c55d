package node_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"weft/test/kubernetes/shop"
)

// TestAHeadlessPort: clients reach a Pod behind a headless Service at the port of the Service, which is another one
// than that of the Pod. A client without a certificate is denied at both, although the Pod may call its own service.
func TestAHeadlessPort(t *testing.T) {
	w := mesh(t)
	const namespace = "headless"
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled")
	server := strings.Replace(shop.Server(namespace, "web", 1), "\n  selector: {app: web}\n",
		"\n  clusterIP: None\n  selector: {app: web}\n", 1)
	peers := strings.Replace(shop.Permission(namespace, "web", "web"), "{name: web,", "{name: peers,", 1)
	// The service of each Pod has a name of its own, so the client calls all services.
	client := strings.Replace(shop.Client(namespace, "client"), "kuma.io/reachable-backends:", "example.com/unused:", 1)
	w.apply(server + client + peers + shop.Permission(namespace, "web", "client"))
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	w.wait("deployment/web", "condition=Available", "-n", namespace)
	s := &shop.Shop{Node: w.Node, Namespace: namespace, Client: w.podIP(namespace, "client")}
	pod := strings.Fields(w.kubectl("get", "pods", "-n", namespace, "-l", "app=web", "-o",
		"jsonpath={.items[*].status.podIP}"))[0]
	w.eventually("the client reaches the port of the Service", func(ctx context.Context) error {
		return w.verifiedAt(ctx, s, "http://"+pod)
	})
	for _, port := range []string{"80", "8080"} {
		if response, err := http.Get("http://" + pod + ":" + port); err == nil {
			response.Body.Close()
			t.Errorf("a client without a certificate gets %s at the port %s", response.Status, port)
		}
	}
}
