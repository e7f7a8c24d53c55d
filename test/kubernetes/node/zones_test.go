package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/demo"
	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

const (
	machineIdentity = `
type: MeshIdentity
mesh: default
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
`
	// machineService is the service of the machines, and its clients.
	machineService = `
type: MeshTrafficPermission
mesh: default
name: clients
spec: {rules: [{default: {allow: [
  {spiffeID: {type: Exact, value: "spiffe://default.machines.mesh.local/workload/client"}},
  {spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/ns/NAMESPACE/sa/client"}}]}}]}
---
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}
`
	// multiZone has the servers of both zones.
	multiZone = `
type: MeshMultiZoneService
mesh: default
name: NAME
spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}
`
	machineID = "spiffe://default.machines.mesh.local/workload/client"
)

// permission allows clients, by their SPIFFE IDs, to call the servers of a namespace.
func permission(namespace string, clients ...string) string {
	text := fmt.Sprintf(`
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: clients, namespace: %s, labels: {kuma.io/mesh: default}}
spec:
  rules:
  - default:
      allow:
`, namespace)
	for _, id := range clients {
		text += fmt.Sprintf("      - spiffeID: {type: Exact, value: %q}\n", id)
	}
	return text
}

// clientOfEveryWeb is shop.Client, which calls the services "web" of all zones.
func clientOfEveryWeb(namespace, name string) string {
	return strings.Replace(shop.Client(namespace, name), `{"kind": "MeshService", "name": "web"}`,
		`{"kind": "MeshService", "labels": {"kuma.io/display-name": "web"}},
      {"kind": "MeshMultiZoneService", "labels": {"kuma.io/display-name": "web"}}`, 1)
}

// respondsAs is a shop.Server web whose responses have another name.
func respondsAs(name, server string) string {
	return strings.Replace(server, "value: web}", "value: "+name+"}", 1)
}

// zones are a cluster, which is the zone default, and a zone of machines. Both have a service web and a client, and
// global a service of both zones.
type zones struct {
	*machines
	shop   *shop.Shop
	server agent // of web on a machine
	egress agent // on a machine, once a drill has started it

	toMachine, toPod, inCluster flow
	podToBoth, machineToBoth    flow
}

// openZones has a cluster that ran alone join a global control plane, beside a zone of machines, until the end of the
// test. The object of the server is available under a condition.
func openZones(t *testing.T, namespace, server, object, available string) *zones {
	t.Helper()
	w := mesh(t)
	w.restoreAlone()
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled")
	z := &zones{machines: w.startMachines()}
	z.access(w, "default")
	z.joinCluster(w, nodePort)
	z.put(machinesAPI, "identity", machineIdentity)
	z.populate(namespace, server, object, available)
	return z
}

// populate runs the services and the clients, and returns when the requests of all succeed. The client on a machine has
// these further backends.
func (z *zones) populate(namespace, server, object, available string, further ...string) {
	z.t.Helper()
	z.shop = &shop.Shop{Node: z.Node, Namespace: namespace}
	podID, machineID := z.of(z.shop.ID("client")), z.of(machineID)
	z.apply(z.of(server + clientOfEveryWeb(namespace, "client") + permission(namespace, podID, machineID)))
	z.put(globalAPI, "multi-zone", z.of(strings.ReplaceAll(multiZone, "NAME", "web")))
	z.put(machinesAPI, "service", z.of(strings.ReplaceAll(machineService, "NAMESPACE", namespace)))
	z.server = z.machines.server("machine", "19001", serverMachine, "18080")
	z.proxy("ingress", "19002", ingressAt(ingressMachine))
	z.proxy("client", "19003", clientOn(clientMachine, append([]string{webOfCluster("default", namespace),
		"{kind: MeshMultiZoneService, name: web, port: 80}"}, further...)...))
	z.wait(object, available, "-n", namespace)
	z.wait("pod/client", "condition=Ready", "-n", namespace)
	z.shop.Client = z.podIP(namespace, "client")
	pod := func(name, url string, services ...string) flow {
		return fromPod(z.shop.Client, url).named(name, podID, services...)
	}
	machine := func(name, port string, services ...string) flow {
		return fromMachine(clientMachine, port).named(name, machineID, services...)
	}
	z.toMachine = pod("a Pod to machines", webOfMachines, "machine", "another")
	z.inCluster = pod("a Pod to Pods", shop.Web, "web")
	z.podToBoth = pod("a Pod to both zones", "http://web.mzsvc.mesh.local", "web", "machine", "another")
	z.toPod = machine("a machine to Pods", "20001", "web")
	z.machineToBoth = machine("a machine to both zones", "20002", "web", "machine", "another")
	z.reached(z.flows()...)
}

// webOfMachines is the URL of the service of the machines, as Pods have it.
const webOfMachines = "http://web.svc.machines.mesh.local"

// webOfCluster is the reference to the service of a cluster, as machines have it.
func webOfCluster(zone, namespace string) string {
	return fmt.Sprintf("{kind: MeshService, labels: {kuma.io/display-name: web, kuma.io/zone: %s, "+
		"k8s.kuma.io/namespace: %s}, port: 80}", zone, namespace)
}

// clientOn is the networking of a client on a machine, whose ports from 20001 on lead to these backends.
func clientOn(address string, backends ...string) string {
	var outbounds []string
	for i, backend := range backends {
		outbounds = append(outbounds, fmt.Sprintf("{address: %s, port: %d, backendRef: %s}", address, 20001+i, backend))
	}
	return fmt.Sprintf("{address: %s, outbound: [%s]}", address, strings.Join(outbounds, ", "))
}

// flows are the traffic of all clients.
func (z *zones) flows() []flow {
	return []flow{z.toMachine, z.toPod, z.inCluster, z.podToBoth, z.machineToBoth}
}

// flow is the traffic of a client to a service.
type flow struct {
	name     string
	get      traffic.Send // sends one request, and returns the text of the response
	stream   stream
	services []string // may respond
	clients  []string // SPIFFE IDs of which the server's proxy verifies one
}

// stream is traffic at a constant rate, whose results are by the text of the response.
type stream interface {
	Start(context.Context, shop.Load) error
	Stop(context.Context) (traffic.Tally, error)
}

// fromPod is the traffic of a Pod, by its address.
func fromPod(pod, url string) flow {
	return flow{stream: shop.Stream{Pod: pod, URL: url}, get: func(ctx context.Context) (string, error) {
		got, err := shop.Get(ctx, pod, url)
		return string(got.Body), errors.Join(err, got.Err())
	}}
}

// fromMachine is the traffic through an outbound of a machine.
func fromMachine(address, port string) flow {
	get := traffic.Get("http://" + address + ":" + port)
	return flow{stream: &localStream{send: get}, get: get}
}

// localStream is traffic of this process.
type localStream struct {
	send traffic.Send
	run  *traffic.Run
}

func (s *localStream) Start(_ context.Context, l shop.Load) error {
	s.run = traffic.Start(l.PerSecond, l.Timeout, s.send)
	return nil
}

func (s *localStream) Stop(context.Context) (traffic.Tally, error) { return s.run.Stop(), nil }

func (f flow) named(name, client string, services ...string) flow {
	f.name, f.clients, f.services = name, []string{client}, services
	return f
}

// by is the flow where this service alone may respond.
func (f flow) by(service string) flow {
	f.services = []string{service}
	return f
}

// sentHere is the flow whose requests this process sends, each by the relay in the Pod.
func (f flow) sentHere() flow {
	f.stream = &localStream{send: f.get}
	return f
}

// check returns an error unless one of the services has responded to one of the clients.
func (f flow) check(of demo.Response) error {
	if !slices.Contains(f.services, of.Service) || !slices.Contains(f.clients, of.Client) {
		return fmt.Errorf("%s responds, and its proxy sees the client %q; want one of %s, and of %s", of.Service,
			of.Client, f.services, f.clients)
	}
	return nil
}

// call sends a request, and returns the response.
func (f flow) call(ctx context.Context) (of demo.Response, err error) {
	text, err := f.get(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(text), &of)
	}
	if err == nil {
		err = f.check(of)
	}
	return of, err
}

// reached returns when a request of each flow has succeeded.
func (w *world) reached(flows ...flow) {
	w.t.Helper()
	for _, f := range flows {
		w.eventually(fmt.Sprintf("%s, by %s", f.name, f.services), func(ctx context.Context) error {
			_, err := f.call(ctx)
			return err
		})
	}
}

// explained returns when `weft explain` of the client's requests to the other zone accepts, from the cluster and from
// the machines.
func (z *zones) explained(what string, cluster, machine func(string) error) {
	z.t.Helper()
	z.explainedFor("client", what, cluster, machine)
}

// explainedFor is the same for the clients of a name.
func (z *zones) explainedFor(client, what string, cluster, machine func(string) error) {
	z.t.Helper()
	for _, way := range []struct {
		api, from, to string
		check         func(string) error
	}{
		{clusterAPI, client + "." + z.shop.Namespace, "kri_msvc_" + z.meshName() + "_machines__web_80", cluster},
		{machinesAPI, client, "kri_msvc_" + z.meshName() + "_default__web." + z.shop.Namespace + "_80", machine},
	} {
		z.eventually(what+", from "+way.from, func(ctx context.Context) error {
			out, err := shop.RunWeft(ctx, z.Node, "--api", way.api, "--mesh", z.meshName(), "explain", "--from",
				way.from, "--to", way.to)
			if err == nil {
				err = way.check(out)
			}
			return err
		})
	}
}

// contains returns a check of a text.
func contains(part string) func(string) error {
	return func(text string) error {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%s is not in %s", part, text)
		}
		return nil
	}
}

// lacks returns the opposite check.
func lacks(part string) func(string) error {
	return func(text string) error {
		if strings.Contains(text, part) {
			return fmt.Errorf("%s is in %s", part, text)
		}
		return nil
	}
}

// TestZones: a cluster that ran alone joins a global control plane, beside a zone of machines. Requests cross between
// Pods and machines through the zone ingresses of the chart and of the machines, and the commands of an operator show
// both zones. Afterwards the cluster runs alone again.
func TestZones(t *testing.T) {
	z := openZones(t, "zones", shop.Server("zones", "web", 2), "deployment/web", "condition=Available")
	z.run("each zone serves its own clients", func() {
		z.reached(z.podToBoth.by("web"), z.machineToBoth.by("machine"))
	})
	z.run("the commands of an operator", func() {
		z.explained("it is allowed", contains("allowed"), contains("allowed"))
		for _, api := range []string{globalAPI, machinesAPI, clusterAPI} {
			z.nothingIsWrong(api)
		}
		out := z.weft(globalAPI, "inspect", "zones")
		for _, zone := range []string{"default", "machines"} {
			if !strings.Contains(out, zone) {
				z.t.Errorf("weft inspect zones lacks %s:\n%s", zone, out)
			}
		}
	})
}

// nothingIsWrong returns when `weft check` has no finding.
func (w *world) nothingIsWrong(api string) {
	w.t.Helper()
	w.eventually("nothing is wrong at "+api, func(ctx context.Context) error {
		out, err := shop.RunWeft(ctx, w.Node, "--api", api, "check") // a finding is an exit code
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}
