package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weft/test/kubernetes/shop"
)

// hostPathPod is a Pod with the agent's socket from a folder of the Node.
const hostPathPod = `
apiVersion: v1
kind: Pod
metadata: {name: by-host-path, namespace: spire-csi, labels: {kuma.io/sidecar-injection: disabled}}
spec:
  containers: [{name: app, image: "weft-test/application:latest"}]
  volumes: [{name: spire-agent-socket, hostPath: {path: ` + spireFolder + `}}]
`

// startDriver runs the CSI driver by which Pods have the socket of the node's agent.
func (s *spire) startDriver() {
	s.t.Helper()
	if err := s.StartSPIFFEDriver(s.t.Context(), spireFolder); err != nil {
		s.t.Cleanup(s.collect)
		s.t.Fatal(err)
	}
}

// TestSPIREByCSI: by default, sidecars and zone proxies have the socket of SPIRE's agent by a volume of the SPIFFE CSI
// driver. Namespaces that enforce the Pod security standard "restricted" admit them, and no folder of the Node. The
// volume leads to the socket of an agent that is restarted, which replaces all certificates while no request fails.
func TestSPIREByCSI(t *testing.T) {
	w := mesh(t)
	const namespace, restricted = "spire-csi", "pod-security.kubernetes.io/enforce=restricted"
	s := w.startSPIRE("40s")
	for _, account := range []string{"web", "client", "stranger"} {
		s.register(namespace, account, spireID(namespace, account))
	}
	s.register("kuma-system", "kuma-spire-egress", spireID("kuma-system", "kuma-spire-egress"))
	s.startDriver()
	w.removeSPIREMesh(namespace)
	w.restore()
	defer w.withoutCNI()
	w.removeZoneProxies()
	w.apply(spireMesh + external("spire"))
	w.kubectl("label", "namespace", "kuma-system", restricted)
	t.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "", "label", "namespace", "kuma-system",
			"pod-security.kubernetes.io/enforce-"); err != nil {
			t.Error(err)
		}
	})
	w.withCNI("dataPlane.spire.enabled=true", "meshes[0].name=spire", "meshes[0].egress.enabled=true")
	w.namespace("outside")
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=spire", restricted)
	w.apply(shop.Server("outside", "outside", 1) + ofSPIRE(shop.Server(namespace, "web", 1),
		caller(namespace, "client", "spire"), shop.Client(namespace, "stranger"),
		shop.Permission(namespace, "web", "client")))
	w.kubectl("rollout", "status", "deployment/kuma-spire-egress", "-n", "kuma-system", "--timeout", "3m")
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	if _, err := w.Kubectl(t.Context(), hostPathPod, "create", "-f", "-"); err == nil ||
		!strings.Contains(err.Error(), "hostPath") {
		t.Errorf("the namespace admits a folder of the Node: %v", err)
	}
	for pod, of := range map[string]string{"app=kuma-spire-egress": "kuma-system", "app=client": namespace} {
		if got := w.kubectl("get", "pods", "-n", of, "-l", pod, "-o",
			"jsonpath={.items[0].spec.volumes[*].csi.driver}"); got != "csi.spiffe.io" {
			t.Errorf("the driver of the volume of %s is %q", pod, got)
		}
	}

	pod := w.podIP(namespace, "client")
	toWeb := fromPod(pod, shop.Web).named("a Pod to Pods", spireID(namespace, "client"), "web")
	outside := fromPod(pod, "http://outside-spire.extsvc.mesh.local").named("a Pod to a server outside", "", "outside")
	w.reached(toWeb, outside)
	w.strangerIsDenied(namespace)
	w.losslessFlows("SPIRE's agent is restarted", []flow{toWeb, outside}, func() {
		s.agents[0].Kill()
		killed := time.Now()
		if err := s.agents[0].Start(); err != nil {
			t.Fatal(err)
		}
		s.renewed(killed, clusterAPI)
	})
}
