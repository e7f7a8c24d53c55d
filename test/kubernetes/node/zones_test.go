package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/demo"
	"weft/internal/traffic"
	"weft/test/kubernetes/cluster"
	"weft/test/kubernetes/shop"
)

// Addresses of machines in the network of the node.
const (
	globalMachine  = "172.31.0.1"
	serverMachine  = "172.31.0.3"
	ingressMachine = "172.31.0.4"
	clientMachine  = "172.31.0.5"
	egressMachine  = "172.31.0.6"
	balancer       = "172.31.0.9"
)

// Addresses of the control planes' APIs.
const (
	globalAPI   = "http://127.0.0.1:5681"
	machinesAPI = "http://127.0.0.1:15681"
)

// machinesConfig moves the ports of the second control plane of the node's network.
const machinesConfig = `{apiServer: {http: {port: 15681}, https: {port: 0}}, dpServer: {port: 15678}, ` +
	`diagnostics: {serverPort: 15680}}`

// machines are a global control plane and a zone of machines, whose programs have addresses of their own in the network
// of the node. Its cluster is the zone default.
type machines struct {
	*world
	whole *testing.T // beside that of a subtest
	dir   string
}

// startMachines starts global, with tokens and its CA for zones, and the zone of machines.
func (w *world) startMachines() *machines {
	w.t.Helper()
	m := &machines{w, w.t, w.t.TempDir()}
	for _, address := range []string{globalMachine, serverMachine, ingressMachine, clientMachine, egressMachine} {
		m.must(exec.Command("ip", "address", "add", address+"/32", "dev", "lo").Run())
	}
	m.program("global", shop.Weft(), "cp", "run", "--mode", "global", "--data-dir", m.path("global/data"))
	m.awaitAPI(globalAPI)
	for _, zone := range []string{"default", "machines"} {
		m.file(zone+".token", m.weft(globalAPI, "generate", "zone-token", "--zone", zone, "--scope", "cp"))
	}
	m.program("machines", shop.Weft(), "cp", "run", "--config-file", m.file("machines.yaml", machinesConfig),
		"--zone", "machines", "--data-dir", m.path("machines/data"), "--global-address",
		"grpcs://"+globalMachine+":5685", "--global-ca-file", m.path("global/data/ca.crt"), "--zone-token-file",
		m.path("machines.token"))
	m.awaitAPI(machinesAPI)
	return m
}

func (m *machines) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) path(name string) string { return filepath.Join(m.dir, name) }

// file writes a file, and returns its path.
func (m *machines) file(name, content string) string {
	m.t.Helper()
	m.must(os.WriteFile(m.path(name), []byte(content), 0o600))
	return m.path(name)
}

// program starts a program whose files are in a folder of its own, until the end of the test.
func (m *machines) program(name, path string, args ...string) *cluster.Process {
	m.t.Helper()
	m.must(os.MkdirAll(m.path(name), 0o755))
	p, err := cluster.StartProcess(m.path(name), name, append([]string{path}, args...)...)
	m.must(err)
	m.whole.Cleanup(func() {
		p.Kill()
		if log, err := os.ReadFile(p.Log); m.whole.Failed() && err == nil {
			m.whole.Logf("%s:\n%s", name, log[max(0, len(log)-4000):])
		}
	})
	return p
}

// weft runs weft against the API of a control plane, and returns its output.
func (m *machines) weft(api string, args ...string) string {
	m.t.Helper()
	out, err := shop.RunWeft(m.t.Context(), m.Node, append([]string{"--api", api}, args...)...)
	m.must(err)
	return strings.TrimSpace(out)
}

func (m *machines) put(api, name, documents string) {
	m.t.Helper()
	m.weft(api, "apply", "-f", m.file(name+".yaml", documents))
}

func (m *machines) awaitAPI(api string) {
	m.t.Helper()
	m.eventually(api+" responds", func(ctx context.Context) error {
		_, err := shop.RunWeft(ctx, m.Node, "--api", api, "get", "meshes")
		return err
	})
}

// proxy starts weft-dp with a Dataplane, and returns when it is ready.
func (m *machines) proxy(name, readiness, networking string) {
	m.t.Helper()
	envoy := os.Getenv("WEFT_ENVOY")
	if envoy == "" {
		envoy = filepath.Join(filepath.Dir(shop.Weft()), "../../../.tools/envoy/envoy")
	}
	document := m.file(name+".dp.yaml", fmt.Sprintf(
		"{type: Dataplane, mesh: default, name: %[1]s, labels: {kuma.io/workload: %[1]s}, networking: %[2]s}", name,
		networking))
	token := m.file(name+".token", m.weft(machinesAPI, "generate", "dataplane-token", "--mesh", "default",
		"--dataplane-file", document))
	p := m.program(name, filepath.Join(filepath.Dir(shop.Weft()), "weft-dp"), "run", "--cp-address",
		"https://127.0.0.1:15678", "--ca-cert-file", m.path("machines/data/ca.crt"), "--dataplane-file", document,
		"--dataplane-token-file", token, "--envoy", envoy, "--readiness-port", readiness)
	m.must(p.Ready("http://127.0.0.1:"+readiness+"/ready", http.DefaultClient))
}

// joinCluster installs the control plane of the cluster as a zone of global, with zone proxies.
func (m *machines) joinCluster(values ...string) {
	m.t.Helper()
	const mount = "/var/run/secrets/kuma.io/zone-token"
	m.must(shop.InstallControlPlane(m.t.Context(), m.Node, append([]string{
		shop.Small, "controlPlane.kdsGlobalAddress=grpcs://" + globalMachine + ":5685",
		"controlPlane.tls.kdsZoneClient.secretName=global-ca",
		"controlPlane.extraSecrets.token.name=zone-token", "controlPlane.extraSecrets.token.mountPath=" + mount,
		"controlPlane.envVars.KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH=" + mount + "/token",
		"meshes[0].name=default", "meshes[0].ingress.enabled=true", "meshes[0].egress.enabled=true",
	}, values...)...))
	for _, name := range []string{"kuma-control-plane", "kuma-default-ingress", "kuma-default-egress"} {
		m.kubectl("rollout", "status", "deployment/"+name, "-n", "kuma-system", "--timeout", "3m")
	}
}

// call sends a request, and returns an error unless a service responds to a client.
func call(ctx context.Context, get func(context.Context) ([]byte, error), service, client string) (string, error) {
	var of demo.Response
	body, err := get(ctx)
	if err == nil {
		err = json.Unmarshal(body, &of)
	}
	if err == nil && (of.Service != service || of.Client != client) {
		err = fmt.Errorf("%s responds, and sees the client %q; want %s and %s", of.Service, of.Client, service, client)
	}
	return of.Instance, err
}

// fromPod sends a request from a Pod.
func fromPod(pod, url string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		got, err := shop.Get(ctx, pod, url)
		return got.Body, errors.Join(err, got.Err())
	}
}

// fromMachine sends a request through an outbound of the client's machine.
func fromMachine(port string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+clientMachine+":"+port, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return body, err
	}
}

const (
	machineIdentity = `
type: MeshIdentity
mesh: default
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
---
type: MeshTrafficPermission
mesh: default
name: clients
spec: {rules: [{default: {allow: [
  {spiffeID: {type: Exact, value: "spiffe://default.machines.mesh.local/workload/client"}},
  {spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/ns/zones/sa/client"}}]}}]}
---
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}
`
	multiZone = `
type: MeshMultiZoneService
mesh: default
name: web
spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}
`
	// everyWeb are the services "web" of both zones.
	everyWeb = `{"kind": "MeshService", "labels": {"kuma.io/display-name": "web"}},
      {"kind": "MeshMultiZoneService", "labels": {"kuma.io/display-name": "web"}}`
	podPermission = `
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: machines, namespace: zones, labels: {kuma.io/mesh: default}}
spec: {rules: [{default: {allow: [
  {spiffeID: {type: Prefix, value: "spiffe://default.machines.mesh.local/"}},
  {spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/ns/zones/sa/client"}}]}}]}
`
)

// TestZones: a cluster that ran alone joins a global control plane, beside a zone of machines. Requests cross between
// Pods and machines through the zone ingresses of the chart and of the machines, and through zone egresses, and none is
// lost while the address of the cluster's ingress changes. Afterwards the cluster runs alone again.
func TestZones(t *testing.T) {
	w := mesh(t)
	w.restore()
	t.Cleanup(func() { // before that
		_, err := w.Kubectl(context.Background(), "", "delete", "deployment", "-n", "kuma-system", "--ignore-not-found",
			"kuma-default-ingress", "kuma-default-egress")
		if err != nil {
			t.Error(err)
		}
	})
	w.namespace("zones", "kuma.io/sidecar-injection=enabled")
	m := w.startMachines()
	for name, file := range map[string]string{"zone-token": "token=" + m.path("default.token"),
		"global-ca": "ca.crt=" + m.path("global/data/ca.crt")} {
		m.kubectl("create", "secret", "generic", name, "-n", "kuma-system", "--from-file", file)
	}
	const nodePort = "meshes[0].ingress.service.type=NodePort"
	m.joinCluster(nodePort)
	m.apply(shop.Server("zones", "web", 2) + strings.Replace(shop.Client("zones", "client"),
		`{"kind": "MeshService", "name": "web"}`, everyWeb, 1) + podPermission)

	m.put(globalAPI, "multi-zone", multiZone)
	m.put(machinesAPI, "identity", machineIdentity)
	m.program("app", "/usr/bin/env", "PORT=18080", "NAME=machine", filepath.Join(m.Dir, "application"), "serve")
	m.proxy("web", "19001", "{address: "+serverMachine+", inbound: [{port: 20080, servicePort: 18080, serviceAddress: "+
		"127.0.0.1, protocol: http, tags: {kuma.io/service: web}}]}")
	m.proxy("ingress", "19002", "{zoneIngress: {address: "+ingressMachine+", port: 10001, advertisedAddress: "+
		ingressMachine+", advertisedPort: 10001}}")
	m.proxy("client", "19003", "{address: "+clientMachine+", outbound: ["+
		"{address: "+clientMachine+", port: 20001, backendRef: {kind: MeshService, labels: {kuma.io/display-name: web"+
		", kuma.io/zone: default, k8s.kuma.io/namespace: zones}, port: 80}}, "+
		"{address: "+clientMachine+", port: 20002, backendRef: {kind: MeshMultiZoneService, name: web, port: 80}}]}")
	m.wait("deployment/web", "condition=Available", "-n", "zones")
	m.wait("pod/client", "condition=Ready", "-n", "zones")
	pod := m.podIP("zones", "client")

	const toMachines = "kri_msvc_default_machines__web_80"
	const podID = "spiffe://default.default.mesh.local/ns/zones/sa/client"
	const machineID = "spiffe://default.machines.mesh.local/workload/client"
	toMachine := func(ctx context.Context) (string, error) {
		return call(ctx, fromPod(pod, "http://web.svc.machines.mesh.local"), "machine", podID)
	}
	toPod := func(ctx context.Context) (string, error) { return call(ctx, fromMachine("20001"), "web", machineID) }
	reached := func(what string, calls ...func(context.Context) (string, error)) {
		m.t.Helper()
		for _, call := range calls {
			m.eventually(what, func(ctx context.Context) error { _, err := call(ctx); return err })
		}
	}
	reached("a Pod reaches the machine, and the machine a Pod", toMachine, toPod)

	m.run(t, "a service of both zones", func(*testing.T) {
		fromBoth := map[string]func(context.Context) ([]byte, error){
			podID: fromPod(pod, "http://web.mzsvc.mesh.local"), machineID: fromMachine("20002")}
		own := map[string]string{podID: "web", machineID: "machine"}
		for client, get := range fromBoth {
			reached("its own zone responds to "+client, func(ctx context.Context) (string, error) {
				return call(ctx, get, own[client], client)
			})
		}
		m.kubectl("scale", "deployment/web", "-n", "zones", "--replicas", "0")
		reached("the machine responds to the Pod", func(ctx context.Context) (string, error) {
			return call(ctx, fromBoth[podID], "machine", podID)
		})
		m.kubectl("scale", "deployment/web", "-n", "zones", "--replicas", "2")
		m.wait("deployment/web", "condition=Available", "-n", "zones")
		reached("a Pod responds again", toPod)
	})
	m.run(t, "the commands of an operator", func(t *testing.T) {
		for api, arguments := range map[string][]string{
			"kubernetes:": {"explain", "--from", "client.zones", "--to", toMachines},
			machinesAPI:   {"explain", "--from", "client", "--to", "web.zones"},
		} {
			if out := m.weft(api, arguments...); !strings.Contains(out, "allowed") {
				t.Errorf("%s at %s says:\n%s", arguments, api, out)
			}
		}
		for _, api := range []string{globalAPI, machinesAPI, "kubernetes:"} {
			m.eventually("nothing is wrong at "+api, func(ctx context.Context) error {
				out, err := shop.RunWeft(ctx, m.Node, "--api", api, "check") // a finding is an exit code
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, out)
				}
				return err
			})
		}
		out := m.weft(globalAPI, "inspect", "zones")
		for _, zone := range []string{"default", "machines"} {
			if !strings.Contains(out, zone) {
				t.Errorf("weft inspect zones lacks %s:\n%s", zone, out)
			}
		}
	})
	m.run(t, "the address of the ingress changes", func(*testing.T) {
		run := traffic.Start(50, 20*time.Second, toPod)
		m.joinCluster("meshes[0].ingress.service.type=LoadBalancer")
		m.kubectl("patch", "service", "kuma-default-ingress", "-n", "kuma-system", "--subresource", "status", "-p",
			`{"status":{"loadBalancer":{"ingress":[{"ip":"`+balancer+`"}]}}}`)
		m.advertises(balancer + ":10001")
		port := m.kubectl("get", "service", "kuma-default-ingress", "-n", "kuma-system", "-o",
			"jsonpath={.spec.ports[0].nodePort}")
		m.kubectl("patch", "deployment", "kuma-default-ingress", "-n", "kuma-system", "-p",
			`{"spec":{"template":{"metadata":{"annotations":{"kuma.io/ingress-public-address":"`+globalMachine+
				`","kuma.io/ingress-public-port":"`+port+`"}}}}}`)
		m.kubectl("rollout", "status", "deployment/kuma-default-ingress", "-n", "kuma-system", "--timeout", "3m")
		m.advertises(globalMachine + ":" + port)
		m.verdict("the address of a zone ingress changes", run.Stop())
	})
	m.run(t, "through zone egresses", func(*testing.T) {
		m.proxy("egress", "19004", "{zoneEgress: {address: "+egressMachine+", port: 10002}}")
		there, back := traffic.Start(25, 20*time.Second, toMachine), traffic.Start(25, 20*time.Second, toPod)
		m.put(globalAPI, "egresses", "{type: Mesh, name: default, routing: {zoneEgress: true}}")
		for _, way := range [][]string{{"kubernetes:", "client.zones", toMachines},
			{machinesAPI, "client", "web.zones"}} {
			m.eventually(way[1]+" dials an egress", func(ctx context.Context) error {
				out, err := shop.RunWeft(ctx, m.Node, "--api", way[0], "explain", "--from", way[1], "--to", way[2])
				if err == nil && !strings.Contains(out, "egress") {
					err = errors.New(out)
				}
				return err
			})
		}
		reached("both directions", toMachine, toPod)
		m.verdict("from a Pod to a machine, egresses are used", there.Stop())
		m.verdict("from a machine to a Pod, egresses are used", back.Stop())
	})
}

// run runs a subtest, whose failure ends this subtest alone. Programs that it starts go on until the end of the test.
func (m *machines) run(t *testing.T, name string, subtest func(*testing.T)) {
	t.Run(name, func(sub *testing.T) {
		of := *m.world
		whole := m.world
		of.t = sub
		m.world = &of
		defer func() { m.world = whole }()
		subtest(sub)
	})
}

// advertises waits until global knows an address of the cluster's ingress.
func (m *machines) advertises(address string) {
	m.t.Helper()
	m.eventually("other zones dial "+address, func(ctx context.Context) error {
		out, err := shop.RunWeft(ctx, m.Node, "--api", machinesAPI, "inspect", "service", "web.zones", "-o", "json")
		if err == nil && !strings.Contains(out, address) {
			err = errors.New("no ingress has the address: " + out)
		}
		return err
	})
}
