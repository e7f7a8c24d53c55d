package node_test

import (
	"context"
	"strings"
	"testing"

	"weft/test/kubernetes/shop"
)

// TestDrillADrainedNode: the servers move to a second node, which then is drained as kubectl does it, with a
// PodDisruptionBudget of the servers, and with one of two replicas of the control plane. No request fails.
func TestDrillADrainedNode(t *testing.T) {
	w := mesh(t)
	first := w.Name()
	second, err := w.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drain := []string{"drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "5m"}
	t.Cleanup(func() { // the other tests run on the first node
		for _, command := range [][]string{{"uncordon", first}, drain} {
			if _, err := w.Kubectl(context.Background(), "", command...); err != nil {
				t.Error(err)
			}
		}
	})
	w.restore()
	w.upgrade(1, "info")        // another number of replicas changes no replica
	w.kubectl("cordon", second) // the clients stay on the first node
	s := w.open("drain", shop.Server("drain", "web", 2)+`
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: drain}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
`)
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	w.wait("pod/stranger", "condition=Ready", "-n", s.Namespace)
	w.lossless("servers and a control plane move to another node, which is drained", s, func() {
		w.kubectl("uncordon", second)
		w.kubectl("cordon", first)
		w.kubectl("rollout", "restart", "deployment/web", "-n", s.Namespace)
		w.upgrade(2, "info")
		w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "4m")
		w.run(s.Namespace, "app=web", second, 2)
		w.run("kuma-system", "app=kuma-control-plane", second, 1)
		w.kubectl("uncordon", first)
		w.kubectl(drain...)
		w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "4m")
		if err := w.rolledOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.run(s.Namespace, "app=web", first, 2)
		w.run("kuma-system", "app=kuma-control-plane", first, 2)
	})
}

// run fails the test unless a node has a number of Pods with a label, without those that end.
func (w *world) run(namespace, label, node string, want int) {
	w.t.Helper()
	pods, got := w.kubectl("get", "pods", "-n", namespace, "-l", label, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.metadata.deletionTimestamp}{"\n"}{end}`), 0
	for pod := range strings.Lines(pods) {
		if strings.TrimSpace(pod) == node {
			got++
		}
	}
	if got != want {
		w.t.Fatalf("%s has %d Pods with %s, want %d of\n%s", node, got, label, want, pods)
	}
}
