package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weft/internal/demo"
	"weft/internal/kube/kubetest"
	"weft/internal/testwait"
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

// granted lets every client call every server of a namespace, and the routes of a kind in another namespace refer to
// them.
func granted(producer, kind, consumer string) string {
	return fmt.Sprintf(`
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: all, namespace: %[1]s, labels: {kuma.io/mesh: default}}
spec: {rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/ns/"}}]}}]}
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: consumer, namespace: %[1]s}
spec:
  from: [{group: gateway.networking.k8s.io, kind: %[2]s, namespace: %[3]s}]
  to: [{group: "", kind: Service}]
`, producer, kind, consumer)
}

// gatewayAPI installs the definitions of the Gateway API.
func (w *world) gatewayAPI() {
	w.t.Helper()
	for _, file := range kubetest.GatewayAPI(w.t) {
		w.kubectl("apply", "--server-side", "-f", file)
	}
}

// consumer makes a namespace with a client of the server "web" in another one, and returns the address of its Pod.
func (w *world) consumer(namespace, producer string) string {
	w.t.Helper()
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled")
	w.apply(strings.Replace(shop.Client(namespace, "client"), `"name": "web"`,
		`"name": "web", "namespace": "`+producer+`"`, 1))
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	return w.podIP(namespace, "client")
}

// TestGatewayAPI: a request that no rule of an HTTPRoute matches gets 404. The route of another namespace replaces it
// for the clients there, and for no others.
func TestGatewayAPI(t *testing.T) {
	w := mesh(t)
	w.gatewayAPI()
	s := w.open("producer", shop.Server("producer", "web", 1)+shop.Server("producer", "next", 1))
	w.apply(granted("producer", "HTTPRoute", "consumer"))
	consumer := w.consumer("consumer", "producer")
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

// connectionRoute is a route of connections for the Service "web" of the namespace "tls" to another one there, by host
// names if it is a TLSRoute.
func connectionRoute(kind, namespace, name, backend string, hostnames ...string) string {
	names := ""
	if len(hostnames) > 0 {
		names = fmt.Sprintf("\n  hostnames: [%s]", strings.Join(hostnames, ", "))
	}
	return fmt.Sprintf(`
---
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{group: "", kind: Service, name: web, namespace: tls, port: 443}]%s
  rules:
  - backendRefs: [{name: %s, namespace: tls, port: 443}]
`, kind, name, namespace, names, backend)
}

// closed matches the error of a client whose connection was closed.
var closed = regexp.MustCompile(`EOF$|connection reset by peer$`)

// servedBySNI requires which server responds to a Pod for each SNI of its own TLS, "closed" where the connection is
// closed. The SNI "" is a request without TLS, which the servers respond to with 400.
func (w *world) servedBySNI(what, pod string, want map[string]string) {
	w.t.Helper()
	w.eventually(what, func(ctx context.Context) error {
		for sni, server := range want {
			send := func() (shop.Response, error) { return shop.WithSNI(ctx, pod, "https://web.tls", sni) }
			if sni == "" {
				send = func() (shop.Response, error) { return shop.Get(ctx, pod, "http://web.tls:443") }
			}
			got, err := send()
			if err != nil {
				return err
			}
			by := demo.Response{Service: fmt.Sprint(got.Status)}
			switch {
			case closed.MatchString(got.Error):
				by.Service = "closed"
			case got.Error != "":
				by.Service = got.Error
			case got.Status == 200:
				if err := json.Unmarshal(got.Body, &by); err != nil {
					return err
				}
			}
			if by.Service != server {
				return fmt.Errorf("the SNI %q leads to %s, want %s", sni, by.Service, server)
			}
		}
		return nil
	})
}

// TestGatewayAPIRoutesConnections: connections of Pods that speak TLS of their own follow the SNI of their handshake to
// the backend of its TLSRoute, within mutual TLS. Others are closed. TLSRoutes take the place of a TCPRoute, which has
// it back with the last of them. The route of another namespace replaces them for the clients there, and for no others.
func TestGatewayAPIRoutesConnections(t *testing.T) {
	const one, two, other = "one.example.com", "a.two.example.com", "other.example.com"
	w := mesh(t)
	w.gatewayAPI()
	w.namespace("tls", "kuma.io/sidecar-injection=enabled")
	w.apply(shop.TLSServer("tls", "web") + shop.TLSServer("tls", "one") + shop.TLSServer("tls", "two") +
		shop.Client("tls", "client") + granted("tls", "TLSRoute", "tls-consumer"))
	w.wait("pod/client", "condition=Ready", "-n", "tls")
	client, consumer := w.podIP("tls", "client"), w.consumer("tls-consumer", "tls")
	conditions := func(route, want string) {
		t.Helper()
		w.eventually(route+" has the conditions "+want, func(ctx context.Context) error {
			got, err := w.Kubectl(ctx, "", "get", route, "-n", "tls", "-o", "jsonpath={range "+
				".status.parents[*].conditions[*]}{.type}={.status} {.reason} {end}")
			if got = strings.TrimSpace(got); err == nil && got != want {
				err = fmt.Errorf("it has %q", got)
			}
			return err
		})
	}
	const accepted = "Accepted=True Accepted ResolvedRefs=True ResolvedRefs"
	toWeb := map[string]string{one: "web", two: "web", other: "web", "": "400"}
	toTwo := map[string]string{one: "two", two: "two", other: "two", "": "400"}
	for _, pod := range []string{client, consumer} {
		w.servedBySNI("without routes, all connections reach web", pod, toWeb)
	}
	w.apply(connectionRoute("TCPRoute", "tls", "all", "two"))
	conditions("tcproute/all", accepted)
	w.servedBySNI("the TCPRoute routes all connections", client, toTwo)

	w.apply(connectionRoute("TLSRoute", "tls", "one", "one", one) +
		connectionRoute("TLSRoute", "tls", "two", "two", `"*.two.example.com"`, "two.example.com"))
	conditions("tlsroute/one", accepted)
	conditions("tlsroute/two", accepted)
	conditions("tcproute/all", "Accepted=False Conflicted ResolvedRefs=True ResolvedRefs")
	bySNI := map[string]string{one: "one", two: "two", "two.example.com": "two", other: "closed", "": "closed"}
	for _, pod := range []string{client, consumer} {
		w.servedBySNI("the SNI decides", pod, bySNI)
	}
	w.apply(connectionRoute("TLSRoute", "tls-consumer", "other", "web", other))
	w.servedBySNI("the route of its namespace decides", consumer, map[string]string{other: "web", one: "closed"})
	w.servedBySNI("the routes of the producer decide", client, bySNI)

	w.kubectl("patch", "tlsroute", "one", "-n", "tls", "--type", "json", "-p",
		`[{"op": "replace", "path": "/spec/rules/0/backendRefs/0/name", "value": "missing"}]`)
	conditions("tlsroute/one", "Accepted=True Accepted ResolvedRefs=False BackendNotFound")
	w.servedBySNI("connections to a missing backend are closed", client, map[string]string{one: "closed", two: "two"})
	w.kubectl("delete", "tlsroute", "one", "-n", "tls")
	w.servedBySNI("the other TLSRoute counts", client, map[string]string{one: "closed", two: "two"})
	w.kubectl("delete", "tlsroute", "two", "-n", "tls")
	w.servedBySNI("the TCPRoute counts again", client, toTwo)
	conditions("tcproute/all", accepted)
	w.kubectl("delete", "tcproute", "all", "-n", "tls")
	w.servedBySNI("without routes, all connections reach web again", client, toWeb)
	w.servedBySNI("the route of the consumer counts on", consumer, map[string]string{other: "web", one: "closed"})
	w.kubectl("delete", "tlsroute", "other", "-n", "tls-consumer")
	w.servedBySNI("without routes, all connections reach web again", consumer, toWeb)
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
	run := traffic.Start(rate, testwait.Timeout, func(ctx context.Context) (string, error) {
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
