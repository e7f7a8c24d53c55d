package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/test/kubernetes/shop"
)

// spireMeshOfGlobal is the mesh with SPIRE as global has it, with a service outside of the mesh: the server of the
// machines, without its proxy.
const spireMeshOfGlobal = `
type: Mesh
name: spire
---
type: MeshIdentity
mesh: spire
name: spire
` + spireIdentity + `
---
type: MeshExternalService
mesh: spire
name: outside
spec:
  match: {type: HostnameGenerator, port: 80, protocol: http}
  endpoints: [{address: ` + globalMachine + `, port: 18080}]
`

// zonesOfSPIRE are zones with a further cluster, the zone east.
type zonesOfSPIRE struct {
	*zones
	east                                      *world
	eastToMachine, eastToPod, toEast          flow
	machineToEast, machineOutside, podOutside flow
}

// openZonesOfSPIRE opens the zones with a mesh whose identities one SPIRE server provides, by an agent of each
// cluster's node and one of the machines. In each zone, a client "stranger" has no permission.
func openZonesOfSPIRE(t *testing.T, namespace string) *zonesOfSPIRE {
	t.Helper()
	w := mesh(t)
	clusters := map[string]*world{"default": w, "east": w.beside()}
	s := w.startSPIRE("40s")
	s.startNodeAgent(clusters["east"])
	s.startAgent(w, spireMachines, kind.SpireSocket)
	for zone, of := range clusters {
		for _, account := range []string{"web", "client", "stranger"} {
			s.registerAt(of, namespace, account, spireID(namespace, account))
		}
		s.registerAt(of, "kuma-system", "kuma-spire-egress", spireID("kuma-system", "kuma-spire-egress"))
		of.removeSPIREMesh(namespace)
		of.restoreAlone("controlPlane.zone=" + zone)
		of.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=spire")
	}
	z := &zonesOfSPIRE{zones: &zones{machines: w.startMachines()}, east: clusters["east"]}
	z.spire = s
	z.put(globalAPI, "spire", spireMeshOfGlobal)
	for zone, of := range clusters {
		z.access(of, zone)
		z.joinCluster(of, "controlPlane.zone="+zone, nodePort)
	}
	z.eventually("the machines have the mesh", func(ctx context.Context) error {
		_, err := shop.RunWeft(ctx, z.Node, "--api", machinesAPI, "get", "mesh", "spire")
		if err != nil {
			findings, _ := shop.RunWeft(ctx, z.Node, "--api", globalAPI, "check") // a finding is an exit code
			err = fmt.Errorf("%w: global finds: %s", err, findings)
		}
		return err
	})
	z.populate(namespace, shop.Server(namespace, "web", 2), "deployment/web", "condition=Available",
		"{kind: MeshExternalService, labels: {kuma.io/display-name: outside}, port: 80}",
		webOfCluster("east", namespace))
	z.apply(ofSPIRE(strings.Replace(clientOfEveryWeb(namespace, "stranger"), `"refs": [`,
		`"refs": [{"kind": "MeshExternalService", "labels": {"kuma.io/display-name": "outside"}}, `, 1)))
	z.proxy("stranger", "19005", clientOn(otherMachine, webOfCluster("default", namespace),
		webOfCluster("east", namespace)))
	z.wait("pod/stranger", "condition=Ready", "-n", namespace)
	z.podOutside = fromPod(z.podIP(namespace, "stranger"), "http://outside.extsvc.mesh.local").
		named("a Pod to a server outside", "", "machine")
	z.machineOutside = fromMachine(clientMachine, "20003").named("a machine to a server outside", "", "machine")
	z.populateEast(namespace)
	return z
}

// populateEast runs the service and the clients of the cluster east, and returns when the requests of all succeed.
func (z *zonesOfSPIRE) populateEast(namespace string) {
	z.t.Helper()
	id, ofMachine := spireID(namespace, "client"), z.of(machineID)
	z.east.apply(ofSPIRE(respondsAs("web-east", shop.Server(namespace, "web", 1)),
		clientOfEveryWeb(namespace, "client"), clientOfEveryWeb(namespace, "stranger"),
		permission(namespace, id, ofMachine)))
	for _, pod := range []string{"client", "stranger"} {
		z.east.wait("pod/"+pod, "condition=Ready", "-n", namespace)
	}
	client := z.east.podIP(namespace, "client")
	z.eastToMachine = fromPod(client, webOfMachines).named("a Pod of east to machines", id, "machine")
	z.eastToPod = fromPod(client, webOfPods("default", namespace)).named("a Pod of east to Pods", id, "web")
	z.toEast = fromPod(z.shop.Client, webOfPods("east", namespace)).named("a Pod to Pods of east", id, "web-east")
	z.machineToEast = fromMachine(clientMachine, "20004").named("a machine to Pods of east", ofMachine, "web-east")
	z.reached(z.ofEast()...)
}

// webOfPods is the URL of the service of a cluster, as Pods have it.
func webOfPods(zone, namespace string) string {
	return fmt.Sprintf("http://web.%s.svc.%s.mesh.local", namespace, zone)
}

// ofEast are the flows from and to the cluster east.
func (z *zonesOfSPIRE) ofEast() []flow {
	return []flow{z.eastToMachine, z.eastToPod, z.toEast, z.machineToEast}
}

// all are the flows of all clients with a permission.
func (z *zonesOfSPIRE) all() []flow {
	return slices.Concat(z.flows(), z.ofEast(), []flow{z.podOutside, z.machineOutside})
}

// denied returns when the proxy of a server has denied a request of a flow. No request may succeed.
func (w *world) denied(f flow) {
	w.t.Helper()
	w.eventually(f.name+" is denied", func(ctx context.Context) error {
		text, err := f.get(ctx)
		if err == nil {
			w.t.Errorf("%s is served: %s", f.name, text)
			return nil
		}
		return contains("403")(err.Error())
	})
}

// restartSPIRE kills the SPIRE server, and starts it again once both agents have noticed. It returns when all proxies
// have certificates that it has issued since.
func (z *zonesOfSPIRE) restartSPIRE() {
	z.spire.server.Kill()
	killed := time.Now()
	for _, agent := range z.spire.agents {
		z.eventually(agent.Name+" misses the server", func(context.Context) error {
			log, err := os.ReadFile(agent.Log)
			return errors.Join(err, contains("connection refused")(string(log)))
		})
	}
	z.must(z.spire.server.Start())
	z.renewed(killed, clusterAPI, machinesAPI)
	(&world{z.east.Node, z.t}).renewed(killed, clusterAPI)
}

// TestDrillZonesOfSPIRE: two clusters and a zone of machines have one mesh with identities of one SPIRE server. Pods
// have the SPIFFE IDs of their ServiceAccounts, machines those of their workloads, and each zone a socket of an agent.
// Requests cross between all through the zone ingresses, and through zone egresses. A client without permission is
// denied in the other zone. A mesh without SPIRE stays as it is beside it. SPIRE is restarted, and replaces all
// certificates, while no request fails.
func TestDrillZonesOfSPIRE(t *testing.T) {
	const namespace = "spire-zones"
	z := openZonesOfSPIRE(t, namespace)
	t.Cleanup(z.collect)
	stranger, strangerOfEast := z.podIP(namespace, "stranger"), z.east.podIP(namespace, "stranger")
	z.run("a client without permission is denied in the other zones", func() {
		for _, f := range []flow{
			fromPod(stranger, webOfMachines).named("a Pod to machines", ""),
			fromPod(stranger, webOfPods("east", namespace)).named("a Pod to Pods of east", ""),
			fromPod(strangerOfEast, webOfMachines).named("a Pod of east to machines", ""),
			fromPod(strangerOfEast, webOfPods("default", namespace)).named("a Pod of east to Pods", ""),
			fromMachine(otherMachine, "20001").named("a machine to Pods", ""),
			fromMachine(otherMachine, "20002").named("a machine to Pods of east", ""),
		} {
			z.denied(f)
		}
		z.explained("the client is allowed", contains("allowed by"), contains("allowed by"))
		z.explainedFor("stranger", "it is denied", contains("denied: "), contains("denied: "))
	})
	z.run("zone egresses have certificates of SPIRE", func() {
		z.useEgresses()
		z.reached(z.all()...)
	})
	beside := z.besideSPIRE("beside-zones", namespace)
	z.run("nothing is wrong", func() {
		for _, api := range []string{globalAPI, machinesAPI, clusterAPI} {
			z.nothingIsWrong(api)
		}
		(&world{z.east.Node, z.t}).nothingIsWrong(clusterAPI)
	})
	flows := append(z.all(), fromPod(beside.Client, shop.Web).named("Pods of the mesh without SPIRE",
		beside.ID("client"), "web"))
	z.run("SPIRE is restarted, and replaces all certificates", func() {
		load := drillLoad()
		load.PerSecond /= 2 // most requests pass four proxies, and 2 cores carry all of them
		z.losslessFlowsAt(load, "zones: SPIRE is restarted, and replaces all certificates", flows, func() {
			z.restartSPIRE()
			z.reached(flows...)
			z.more(flows)
		})
	})
}
