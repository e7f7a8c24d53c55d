package node_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/cni"
	"weft/test/kubernetes/shop"
)

// withCNI installs the CNI plugin, with further values of the chart, and returns when each Pod of the DaemonSet is
// ready.
func (w *world) withCNI(values ...string) {
	w.t.Helper()
	w.install(append(values, "cni.enabled=true", "cni.chained=true", "cni.netDir="+filepath.Dir(w.Network()),
		"cni.binDir="+w.Plugins())...)
	w.kubectl("rollout", "status", "daemonset/kuma-cni-node", "-n", "kube-system", "--timeout", "3m")
}

// withoutCNI removes the DaemonSet, and returns when its Pods have ended.
func (w *world) withoutCNI() {
	w.t.Helper()
	w.kubectl("delete", "daemonset", "kuma-cni-node", "-n", "kube-system", "--ignore-not-found")
	w.wait("pod", "delete", "-n", "kube-system", "-l", "app=kuma-cni")
}

// network returns the configuration of the network of Pods.
func (w *world) network() string {
	w.t.Helper()
	text, err := os.ReadFile(w.Network())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// TestCNI: with the CNI plugin, Pods of a namespace that enforces the Pod security standard "restricted" talk mTLS. A
// Pod that starts while the plugin is not installed does not run, and an event says why. The plugin stays while the
// DaemonSet is updated, and is there again after the owner of the network has written its configuration. Without the
// DaemonSet, the node is as it was.
func TestCNI(t *testing.T) {
	w := mesh(t)
	before := w.network()
	w.restore()
	w.withCNI()
	w.namespace("restricted", "kuma.io/sidecar-injection=enabled", "pod-security.kubernetes.io/enforce=restricted")
	w.apply(shop.Server("restricted", "web", 1) + shop.Client("restricted", "client") +
		shop.Permission("restricted", "web", "client"))
	w.wait("pod/client", "condition=Ready", "-n", "restricted")
	s := &shop.Shop{Node: w.Node, Namespace: "restricted", Client: w.podIP("restricted", "client")}
	w.eventually("the client reaches web with mutual TLS", s.CheckVerified)
	w.wait("deployment/web", "condition=Available", "-n", "restricted")
	pod := w.kubectl("get", "pods", "-n", "restricted", "-l", "app=web", "-o",
		"jsonpath={.items[0].status.podIP} {.items[0].spec.initContainers[*].name}")
	address, containers, _ := strings.Cut(pod, " ")
	if containers != "kuma-validation kuma-sidecar" {
		t.Errorf("the init containers are %s", containers)
	}
	if response, err := http.Get("http://" + address + ":8080/"); err == nil {
		response.Body.Close()
		t.Errorf("a client without a certificate gets %s", response.Status)
	}

	chained := w.network()
	if err := os.WriteFile(w.Network(), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	w.eventually("the plugin is chained again", func(context.Context) error {
		if now := w.network(); now != chained {
			return fmt.Errorf("the configuration is\n%s", now)
		}
		return nil
	})
	installer := w.kubectl("get", "pods", "-n", "kube-system", "-l", "app=kuma-cni", "-o", "name")
	w.kubectl("rollout", "restart", "daemonset/kuma-cni-node", "-n", "kube-system")
	w.wait(installer, "delete", "-n", "kube-system")
	if now := w.network(); now != chained {
		t.Errorf("without its Pod, the DaemonSet has left\n%s", now)
	}
	w.kubectl("rollout", "status", "daemonset/kuma-cni-node", "-n", "kube-system", "--timeout", "3m")

	w.withoutCNI()
	if now := w.network(); now != before {
		t.Errorf("the configuration of the network was\n%s\nand now is\n%s", before, now)
	}
	if _, err := os.Stat(filepath.Join(w.Plugins(), cni.Type)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program of the plugin is left on the node: %v", err)
	}

	w.apply(shop.Client("restricted", "late"))
	w.wait("pod/late", "jsonpath={.status.initContainerStatuses[0].lastState.terminated.exitCode}=1", "-n",
		"restricted")
	if started := w.kubectl("get", "pod", "late", "-n", "restricted", "-o",
		"jsonpath={.status.initContainerStatuses[1].started}{.status.containerStatuses[0].started}"); started !=
		"falsefalse" {
		t.Errorf("containers of a Pod without its redirection have started: %s", started)
	}
	w.eventually("an event reports the Pod", func(ctx context.Context) error {
		events, err := w.Kubectl(ctx, "", "get", "events", "-n", "restricted", "--field-selector",
			"reason=NotRedirected", "-o", "jsonpath={.items[*].involvedObject.name}")
		if err == nil && events != "late" {
			err = fmt.Errorf("the event is about %q", events)
		}
		return err
	})
	w.withCNI()
	w.kubectl("delete", "pod", "late", "-n", "restricted", "--wait")
	w.apply(shop.Client("restricted", "late"))
	w.wait("pod/late", "condition=Ready", "-n", "restricted")
	w.withoutCNI()
}
