package node_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/traffic"
	"weft/test/kubernetes/shop"
)

var installation struct {
	sync.Once
	err error
}

// mesh returns the node with a control plane, whose mesh has identities.
func mesh(t *testing.T) *world {
	t.Helper()
	w := start(t)
	installation.Do(func() {
		began := time.Now()
		if installation.err = shop.InstallControlPlane(t.Context(), w.Node, shop.Small); installation.err == nil {
			t.Logf("the control plane is available after %.1f s", time.Since(began).Seconds())
			installation.err = w.Apply(t.Context(), shop.Identity)
		}
	})
	if installation.err != nil {
		t.Cleanup(w.collect)
		t.Fatal(installation.err)
	}
	return w
}

// install applies the objects of the chart with other values than those of mesh, NAME=VALUE, until the end of the test.
// It returns when all replicas of the control plane have them.
func (w *world) install(values ...string) {
	w.t.Helper()
	if err := w.installed(w.t.Context(), values...); err != nil {
		w.t.Fatal(err)
	}
}

// restore gives the other tests the control plane of mesh, with values of the chart, at the end of this test.
func (w *world) restore(values ...string) {
	w.t.Cleanup(func() {
		if err := w.installed(context.Background(), values...); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) installed(ctx context.Context, values ...string) error {
	if err := shop.ApplyControlPlane(ctx, w.Node, append([]string{shop.Small}, values...)...); err != nil {
		return err
	}
	return w.rolledOut(ctx)
}

// rolledOut returns when all replicas of the control plane are those of the last change, and no other one is left: a
// replica reviews Pods until it has ended.
func (w *world) rolledOut(ctx context.Context) error {
	const namespace, label = "kuma-system", "app=kuma-control-plane"
	if _, err := w.Kubectl(ctx, "", "rollout", "status", "deployment/kuma-control-plane", "-n", namespace, "--timeout",
		"3m"); err != nil {
		return err
	}
	ending, err := w.Kubectl(ctx, "", "get", "pods", "-n", namespace, "-l", label, "-o",
		"jsonpath={range .items[?(@.metadata.deletionTimestamp)]}pod/{.metadata.name} {end}")
	for _, pod := range strings.Fields(ending) {
		err = errors.Join(err, w.Wait(ctx, pod, "delete", "-n", namespace))
	}
	return err
}

// open makes a namespace with a server "web", a client that it allows, and one that it denies, and returns when the
// client reaches the server with mutual TLS.
func (w *world) open(namespace, server string) *shop.Shop {
	w.t.Helper()
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled")
	w.apply(server + shop.Client(namespace, "client") + shop.Client(namespace, "stranger") +
		shop.Permission(namespace, "web", "client"))
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	s := &shop.Shop{Node: w.Node, Namespace: namespace, Client: w.podIP(namespace, "client")}
	w.eventually("the client reaches web with mutual TLS", s.CheckVerified)
	return s
}

// podIP is the address of a Pod.
func (w *world) podIP(namespace, pod string) string {
	w.t.Helper()
	address, err := w.PodIP(w.t.Context(), namespace, pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return address
}

func (w *world) eventually(what string, attempt func(context.Context) error) {
	w.t.Helper()
	if err := shop.Eventually(w.t.Context(), what, attempt); err != nil {
		w.t.Fatal(err)
	}
}

// lossless sends requests to web during the event that the name states, and fails the test where one failed.
func (w *world) lossless(name string, s *shop.Shop, event func()) (tally traffic.Tally) {
	w.t.Helper()
	if err := s.Start(w.t.Context(), drillLoad()); err != nil {
		w.t.Fatal(err)
	}
	defer func() { // also where the event ends the test
		w.t.Helper()
		var err error
		if tally, err = s.Stop(context.Background()); err != nil {
			w.t.Error(err)
			return
		}
		w.verdict(name, tally)
	}()
	event()
	return tally
}

// drillLoad is the load of this run.
func drillLoad() shop.Load {
	if *drills {
		return shop.Drill
	}
	return shop.Test
}

// verdict adds the results of requests to the report, and fails the test where one failed.
func (w *world) verdict(name string, tally traffic.Tally) {
	w.t.Helper()
	results.Add(traffic.Drill{Name: name, Tally: tally})
	verdict, err := tally.Verdict()
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
		return
	}
	w.t.Logf("%s: %s, by %d servers", name, verdict, len(tally.Responses))
}

// strangerIsDenied returns when web responds to the Pod stranger with 403.
func (w *world) strangerIsDenied(namespace string) {
	w.t.Helper()
	w.wait("pod/stranger", "condition=Ready", "-n", namespace)
	stranger := w.podIP(namespace, "stranger")
	w.eventually("the stranger is denied", func(ctx context.Context) error {
		got, err := shop.Get(ctx, stranger, shop.Web)
		if err == nil && got.Status != http.StatusForbidden {
			err = fmt.Errorf("%d: %s%s, want 403", got.Status, got.Body, got.Error)
		}
		return err
	})
}

// TestTraffic: Pods of a namespace with injection talk mTLS. The server's proxy verifies the client, and denies the one
// that no permission allows, and a connection without TLS. The probes of the kubelet pass.
func TestTraffic(t *testing.T) {
	w := mesh(t)
	s := w.open("traffic", shop.Server("traffic", "web", 2))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	w.strangerIsDenied(s.Namespace)
	pod := strings.Fields(w.kubectl("get", "pods", "-n", s.Namespace, "-l", "app=web", "-o",
		"jsonpath={.items[*].status.podIP}"))[0]
	if response, err := http.Get("http://" + pod + ":8080/"); err == nil {
		response.Body.Close()
		t.Errorf("a client without a certificate gets %s", response.Status)
	}
}

// TestJobsWithOrdinarySidecars: a Job ends whose sidecar is an ordinary container, which the kubelet does not end: the
// control plane tells its agent that the other containers have ended. One container more may succeed or fail.
func TestJobsWithOrdinarySidecars(t *testing.T) {
	w := mesh(t)
	w.restore()
	w.install("controlPlane.envVars.KUMA_EXPERIMENTAL_SIDECAR_CONTAINERS=false")
	s := w.open("ordinary", shop.Server("ordinary", "web", 1))
	for name, end := range map[string]struct{ policy, url, condition, phase string }{
		"succeeds": {"Never", "http://web", "Complete", "Succeeded"},
		"retries":  {"OnFailure", "http://web", "Complete", "Succeeded"},
		"fails":    {"Never", "http://nowhere.invalid", "Failed", "Failed"},
	} {
		w.apply(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: ordinary}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {kuma.io/wait-for-dataplane-ready: "true"}}
    spec:
      serviceAccountName: client
      restartPolicy: %s
      containers:
      - {name: app, image: "weft-test/application:latest", imagePullPolicy: Never, args: [get, %q]}
`, name, end.policy, end.url))
		w.wait("job/"+name, "condition="+end.condition, "-n", s.Namespace)
		got := w.kubectl("get", "pods", "-n", s.Namespace, "-l", "job-name="+name, "-o",
			"jsonpath={.items[0].spec.containers[*].name} {.items[0].status.phase}")
		if want := "kuma-sidecar app " + end.phase; got != want {
			t.Errorf("%s: the Pod of the Job has %q, want %q", name, got, want)
		}
	}
}

// TestInitContainersAndJobs: an init container of the user reaches a server through the sidecar, which thus is ready
// before it. A Job ends although its sidecar runs.
func TestInitContainersAndJobs(t *testing.T) {
	w := mesh(t)
	s := w.open("jobs", shop.Server("jobs", "web", 1))
	w.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: jobs}
spec:
  backoffLimit: 0
  template:
    spec:
      serviceAccountName: client
      restartPolicy: Never
      initContainers:
      - {name: first, image: "weft-test/application:latest", imagePullPolicy: Never, args: [get, "http://web"]}
      containers:
      - {name: app, image: "weft-test/application:latest", imagePullPolicy: Never, args: [get, "http://web"]}
`)
	w.wait("job/once", "condition=Complete", "-n", s.Namespace)
	order := w.kubectl("get", "pods", "-n", s.Namespace, "-l", "job-name=once", "-o",
		"jsonpath={.items[0].spec.initContainers[*].name} {.items[0].status.phase}")
	if order != "kuma-init kuma-sidecar first Succeeded" {
		t.Errorf("the Pod of the Job has %q, want kuma-init kuma-sidecar first Succeeded", order)
	}
}

// TestProbesFailWithTheApplication: a Pod whose application fails its probe is not Ready, although its sidecar is.
func TestProbesFailWithTheApplication(t *testing.T) {
	w := mesh(t)
	w.namespace("probes", "kuma.io/sidecar-injection=enabled")
	w.apply(strings.ReplaceAll(shop.Client("probes", "client"), "tcpSocket: {port: 8080}", "tcpSocket: {port: 9}"))
	w.wait("pod/client", "jsonpath={.status.initContainerStatuses[1].ready}=true", "-n", "probes")
	w.wait("pod/client", "jsonpath={.status.containerStatuses[0].started}=true", "-n", "probes")
	w.eventually("the kubelet reports the failed probe", func(ctx context.Context) error {
		events, err := w.Kubectl(ctx, "", "get", "events", "-n", "probes", "--field-selector", "reason=Unhealthy", "-o",
			"jsonpath={.items[*].involvedObject.fieldPath}")
		if err == nil && !strings.Contains(events, "spec.containers{app}") {
			err = errors.New("no event of the container app: " + events)
		}
		return err
	})
	if ready := w.kubectl("get", "pod", "client", "-n", "probes", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "False" {
		t.Errorf("the Pod has Ready=%s, want False", ready)
	}
}

// TestDrillARollout restarts the server's Deployment under traffic.
func TestDrillARollout(t *testing.T) {
	w := mesh(t)
	s := w.open("rollout", shop.Server("rollout", "web", 2))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	w.lossless("the servers are restarted", s, func() {
		w.kubectl("rollout", "restart", "deployment/web", "-n", s.Namespace)
		w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "5m")
	})
}

// TestDrillAKilledControlPlane: the control plane's Pod is killed under traffic. No request fails, and a new Pod joins
// the mesh afterwards.
func TestDrillAKilledControlPlane(t *testing.T) {
	w := mesh(t)
	s := w.open("control-plane", shop.Server("control-plane", "web", 2))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	w.lossless("the control plane is killed", s, func() {
		w.killControlPlane()
		w.kubectl("scale", "deployment/web", "-n", s.Namespace, "--replicas", "3")
		w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "3m")
	})
}

// killControlPlane kills the Pods of the control plane, and returns when others are available.
func (w *world) killControlPlane() {
	w.t.Helper()
	w.kubectl("delete", "pod", "-n", "kuma-system", "-l", "app=kuma-control-plane", "--force", "--grace-period=0")
	w.kubectl("rollout", "status", "deployment/kuma-control-plane", "-n", "kuma-system", "--timeout", "3m")
}

// TestDrillAKilledSidecar: the agent and Envoy of a server get SIGKILL under traffic. No request fails, and the kubelet
// starts the sidecar again.
func TestDrillAKilledSidecar(t *testing.T) {
	w := mesh(t)
	s := w.open("sidecar", shop.Server("sidecar", "web", 2))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	pod := strings.Fields(w.kubectl("get", "pods", "-n", s.Namespace, "-l", "app=web", "-o",
		"jsonpath={.items[*].metadata.name}"))[0]
	w.lossless("the sidecar of one of two servers is killed", s, func() {
		if err := w.KillSidecar(t.Context(), s.Namespace, pod); err != nil {
			t.Fatal(err)
		}
		w.wait("pod/"+pod, `jsonpath={.status.initContainerStatuses[?(@.name=="kuma-sidecar")].restartCount}=1`, "-n",
			s.Namespace)
		w.wait("pod/"+pod, "condition=Ready", "-n", s.Namespace)
	})
}

// TestWeftByKubeconfig: the command line reaches the control plane from outside the cluster, with a kubeconfig alone.
func TestWeftByKubeconfig(t *testing.T) {
	w := mesh(t)
	out, err := shop.RunWeft(t.Context(), w.Node, "--api", "kubernetes:", "get", "meshes", "-o", "json")
	if err != nil || !strings.Contains(out, `"name": "default"`) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestWeftInThePodOfTheControlPlane: administrators of the system namespace need no token, since the command finds the
// administrator's socket of its Pod.
func TestWeftInThePodOfTheControlPlane(t *testing.T) {
	w := mesh(t)
	out, err := w.Kubectl(t.Context(), "", "exec", "-n", "kuma-system", "deployment/kuma-control-plane", "--",
		"weft", "get", "secrets", "-o", "json")
	if err != nil || !strings.HasPrefix(strings.TrimSpace(out), "[") {
		t.Errorf("%v:\n%s", err, out)
	}
}
