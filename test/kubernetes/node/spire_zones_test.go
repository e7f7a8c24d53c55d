package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// openZonesOfSPIRE opens the zones with a mesh whose identities one SPIRE server provides, by an agent of the node and
// one of the machines. In each zone, a client "stranger" has no permission.
func openZonesOfSPIRE(t *testing.T, namespace string) *zones {
	t.Helper()
	w := mesh(t)
	s := w.startSPIRE("40s")
	s.startAgent(spireMachines, kind.SpireSocket)
	for _, account := range []string{"web", "client", "stranger"} {
		s.register(namespace, account, spireID(namespace, account))
	}
	s.register("kuma-system", "kuma-spire-egress", spireID("kuma-system", "kuma-spire-egress"))
	s.removeMesh(namespace)
	w.restoreAlone()
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=spire")
	z := &zones{machines: w.startMachines()}
	z.spire = s
	z.put(globalAPI, "spire", spireMeshOfGlobal)
	z.access(w, "default")
	z.joinCluster(w, nodePort)
	z.eventually("the machines have the mesh", func(ctx context.Context) error {
		_, err := shop.RunWeft(ctx, z.Node, "--api", machinesAPI, "get", "mesh", "spire")
		if err != nil {
			findings, _ := shop.RunWeft(ctx, z.Node, "--api", globalAPI, "check") // a finding is an exit code
			err = fmt.Errorf("%w: global finds: %s", err, findings)
		}
		return err
	})
	z.populate(namespace, shop.Server(namespace, "web", 2), "deployment/web", "condition=Available",
		"{kind: MeshExternalService, labels: {kuma.io/display-name: outside}, port: 80}")
	z.apply(ofSPIRE(strings.Replace(clientOfEveryWeb(namespace, "stranger"), `"refs": [`,
		`"refs": [{"kind": "MeshExternalService", "labels": {"kuma.io/display-name": "outside"}}, `, 1)))
	z.proxy("stranger", "19005", clientOn(otherMachine, webOfCluster(namespace)))
	z.wait("pod/stranger", "condition=Ready", "-n", namespace)
	return z
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
func (z *zones) restartSPIRE() {
	z.spire.server.Kill()
	killed := time.Now()
	for _, agent := range z.spire.agents {
		z.eventually(agent.Name+" misses the server", func(context.Context) error {
			log, err := os.ReadFile(agent.Log)
			return errors.Join(err, contains("connection refused")(string(log)))
		})
	}
	z.must(z.spire.server.Start())
	z.spire.renewed(killed, clusterAPI, machinesAPI)
}

// TestDrillZonesOfSPIRE: a cluster and a zone of machines have one mesh with identities of one SPIRE server. Pods have
// the SPIFFE IDs of their ServiceAccounts, machines those of their workloads, and each zone its own socket of an agent.
// Requests cross between both through the zone ingresses, and through zone egresses. A client without permission is
// denied in the other zone. A mesh without SPIRE stays as it is beside it. SPIRE is restarted, and replaces all
// certificates, while no request fails.
func TestDrillZonesOfSPIRE(t *testing.T) {
	const namespace = "spire-zones"
	z := openZonesOfSPIRE(t, namespace)
	t.Cleanup(z.collect)
	stranger := z.podIP(namespace, "stranger")
	outside := []flow{
		fromPod(stranger, "http://outside.extsvc.mesh.local").named("a Pod to a server outside", "", "machine"),
		fromMachine(clientMachine, "20003").named("a machine to a server outside", "", "machine"),
	}
	z.run("a client without permission is denied in the other zone", func() {
		z.denied(fromPod(stranger, webOfMachines).named("a Pod to machines", ""))
		z.denied(fromMachine(otherMachine, "20001").named("a machine to Pods", ""))
		z.explained("the client is allowed", contains("allowed by"), contains("allowed by"))
		z.explainedFor("stranger", "it is denied", contains("denied: "), contains("denied: "))
	})
	z.run("zone egresses have certificates of SPIRE", func() {
		z.useEgresses()
		z.reached(append(z.flows(), outside...)...)
	})
	beside := z.besideSPIRE("beside-zones", namespace)
	z.run("nothing is wrong", func() {
		for _, api := range []string{globalAPI, machinesAPI, clusterAPI} {
			z.nothingIsWrong(api)
		}
	})
	flows := append(z.flows(), append(outside, fromPod(beside.Client, shop.Web).
		named("Pods of the mesh without SPIRE", beside.ID("client"), "web"))...)
	z.run("SPIRE is restarted, and replaces all certificates", func() {
		z.losslessFlows("zones: SPIRE is restarted, and replaces all certificates", flows, func() {
			z.restartSPIRE()
			z.reached(flows...)
			z.more(flows)
		})
	})
}
