package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/test/kubernetes/shop"
)

// TestDrillFailures: parts of the cluster and the control plane are killed, restarted, slow, or reject what they
// should not, while Pods talk. No request fails, no proxy gets other endpoints or another configuration, and a Pod
// that starts afterwards joins the mesh.
func TestDrillFailures(t *testing.T) {
	w := mesh(t)
	w.restore()
	s := w.open("failures", shop.Server("failures", "web", 2))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	w.eventually("both servers are endpoints of the client", func(context.Context) error {
		return contains("membership_healthy: 2")(w.healthy(s))
	})
	for _, d := range []struct {
		name     string
		failure  func(*world)
		recovery func(*world) // nil: the failure ends by itself
	}{
		{"containerd is killed", (*world).restartContainerd, nil},
		{"etcd and the API server are killed", (*world).restartAPIServer, nil},
		{"the API server does not respond", (*world).freezeAPIServer, nil},
		{"the Node is not Ready", (*world).freezeKubelet, (*world).thawKubelet},
		{"a quota rejects Dataplanes", func(w *world) { w.exhaustQuota(s) }, func(w *world) { w.endQuota(s) }},
		{"the control plane and its webhooks are away", func(w *world) { w.removeControlPlane(s) },
			func(w *world) { w.upgrade(1, "info") }},
		{"the control plane is restarted", (*world).restartControlPlane, nil},
		{"the control plane is upgraded to two replicas", func(w *world) { w.upgrade(2, "debug") }, nil},
		{"two replicas of the control plane are restarted", (*world).restartControlPlane, nil},
		{"two replicas of the control plane are upgraded", func(w *world) { w.upgrade(2, "info") }, nil},
		{"the control plane is reduced to one replica", func(w *world) { w.upgrade(1, "info") }, nil},
		{"the control plane is upgraded", func(w *world) { w.upgrade(1, "debug") }, nil},
	} {
		t.Run(d.name, func(t *testing.T) {
			w := &world{w.Node, t}
			defer w.collect()
			w.lossless(d.name, s, func() {
				w.unchanged(s, func() { d.failure(w) })
				if d.recovery != nil {
					d.recovery(w)
				}
				w.oneMore(s)
			})
		})
	}
}

func (w *world) restartContainerd() {
	w.t.Helper()
	if err := w.RestartContainerd(); err != nil {
		w.t.Fatal(err)
	}
}

// restartAPIServer kills etcd and the API server, and starts them again when the control plane has noticed.
func (w *world) restartAPIServer() {
	w.t.Helper()
	noticed := w.leadershipIsLost()
	w.StopEtcd()
	w.StopAPI()
	defer func() { // also where the control plane does not notice
		w.t.Helper()
		if err := errors.Join(w.StartEtcd(), w.StartAPI()); err != nil {
			w.t.Fatal(err)
		}
	}()
	noticed()
}

// freezeAPIServer has the API server respond to nothing until the control plane has noticed.
func (w *world) freezeAPIServer() {
	w.t.Helper()
	noticed := w.leadershipIsLost()
	if err := w.FreezeAPI(); err != nil {
		w.t.Fatal(err)
	}
	defer func() { // also where the control plane does not notice
		w.t.Helper()
		if err := w.ThawAPI(); err != nil {
			w.t.Fatal(err)
		}
	}()
	noticed()
}

// freezeKubelet stops the kubelet until its Node, and with it each of its Pods, is not Ready.
func (w *world) freezeKubelet() {
	w.t.Helper()
	if err := w.Kubelet().Freeze(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.Kubelet().Thaw() }) // also where the Node stays Ready
	w.wait("node/"+w.Name(), "condition=Ready=Unknown")
	w.wait("pod", "condition=Ready=False", "--field-selector", "spec.nodeName="+w.Name(), "--all-namespaces")
}

func (w *world) thawKubelet() {
	w.t.Helper()
	if err := w.Kubelet().Thaw(); err != nil {
		w.t.Fatal(err)
	}
	w.wait("node/"+w.Name(), "condition=Ready")
	w.wait("deployment/kuma-control-plane", "condition=Available", "-n", "kuma-system")
	w.wait("deployment/coredns", "condition=Available", "-n", "kube-system")
}

// unchanged fails the test if the client's proxy got other endpoints, clusters or listeners during the event.
func (w *world) unchanged(s *shop.Shop, event func()) {
	w.t.Helper()
	before := w.stats(s)
	event()
	if after := w.stats(s); after != before {
		w.t.Errorf("the changes of the client's proxy are\n%s\nbefore, and\n%s\nafter", before, after)
	}
}

// stats has the counters of changed endpoints, clusters and listeners of the client's Envoy.
func (w *world) stats(s *shop.Shop) string {
	w.t.Helper()
	text, err := w.Stats(w.t.Context(), s.Namespace, "client",
		`\.membership_change$|_manager\.(cluster|listener)_(added|modified|removed)$`)
	if err != nil || !strings.Contains(text, ".membership_change: ") {
		w.t.Fatalf("%v: %q", err, text)
	}
	return text
}

// healthy has the numbers of healthy endpoints of the client's Envoy.
func (w *world) healthy(s *shop.Shop) string {
	w.t.Helper()
	text, err := w.Stats(w.t.Context(), s.Namespace, "client", `\.membership_healthy$`)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// oneMore adds a server, and returns when it responds to the client.
func (w *world) oneMore(s *shop.Shop) {
	w.t.Helper()
	before := w.servers(s)
	w.scale(s, len(before)+1)
	w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "3m")
	w.eventually("a new server responds", func(ctx context.Context) error {
		of, err := s.Call(ctx)
		if err == nil && slices.Contains(before, of.Instance) {
			err = fmt.Errorf("%s responds, which was there before", of.Instance)
		}
		return err
	})
}

func (w *world) scale(s *shop.Shop, replicas int) {
	w.t.Helper()
	w.kubectl("scale", "deployment/web", "-n", s.Namespace, "--replicas", fmt.Sprint(replicas))
}

// servers are the names of the servers' Pods.
func (w *world) servers(s *shop.Shop) []string {
	w.t.Helper()
	return strings.Fields(w.kubectl("get", "pods", "-n", s.Namespace, "-l", "app=web", "-o",
		"jsonpath={.items[*].metadata.name}"))
}

// leadershipIsLost returns a function that waits until the control plane has noticed the loss of the API server. Its
// log is read from the node.
func (w *world) leadershipIsLost() func() {
	w.t.Helper()
	count := func() int {
		log, err := w.Logs("kuma-system", "kuma-control-plane")
		if err != nil {
			w.t.Fatal(err)
		}
		return strings.Count(log, "this instance does not lead any more")
	}
	before := count()
	return func() {
		w.t.Helper()
		w.eventually("the control plane does not lead any more", func(context.Context) error {
			if count() == before {
				return errors.New("it leads")
			}
			return nil
		})
	}
}

// exhaustQuota lets no further Dataplane be created, until the control plane reports it for a new Pod.
func (w *world) exhaustQuota(s *shop.Shop) {
	w.t.Helper()
	dataplanes := strings.Fields(w.kubectl("get", "dataplanes", "-n", s.Namespace, "-o", "name"))
	w.kubectl("create", "quota", "dataplanes", "-n", s.Namespace, "--hard",
		fmt.Sprintf("count/dataplanes.kuma.io=%d", len(dataplanes)))
	w.wait("quota/dataplanes", `jsonpath={.status.used}`, "-n", s.Namespace)
	w.scale(s, len(w.servers(s))+1)
	w.event("exceeded quota", s.Namespace, "reason=FailedToGenerateKumaDataplane")
}

// event returns when an event of a namespace, by a field selector, contains a text.
func (w *world) event(text, namespace, selector string) {
	w.t.Helper()
	w.eventually("an event with "+selector, func(ctx context.Context) error {
		events, err := w.Kubectl(ctx, "", "get", "events", "-n", namespace, "--field-selector", selector, "-o",
			"jsonpath={.items[*].message}")
		if err == nil {
			err = contains(text)(events)
		}
		return err
	})
}

func (w *world) endQuota(s *shop.Shop) {
	w.t.Helper()
	w.kubectl("delete", "quota", "dataplanes", "-n", s.Namespace)
	w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "3m")
}

// removeControlPlane removes the control plane until a resource and a Pod were rejected because its webhooks are away.
func (w *world) removeControlPlane(s *shop.Shop) {
	w.t.Helper()
	w.upgrade(0, "info")
	err := w.Apply(w.t.Context(), shop.Permission(s.Namespace, "other", "client"))
	if err == nil || !strings.Contains(err.Error(), "webhook") {
		w.t.Errorf("a resource without webhooks: %v, want an error", err)
	}
	w.scale(s, len(w.servers(s))+1)
	w.event("webhook", s.Namespace, "reason=FailedCreate")
}

// upgrade applies the objects of the chart with other values, and returns when they have taken effect.
func (w *world) upgrade(replicas int, logLevel string) {
	w.t.Helper()
	w.install(fmt.Sprintf("controlPlane.replicas=%d", replicas), "controlPlane.logLevel="+logLevel)
}

func (w *world) restartControlPlane() {
	w.t.Helper()
	w.kubectl("rollout", "restart", "deployment/kuma-control-plane", "-n", "kuma-system")
	if err := w.rolledOut(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}
