package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
)

// workloadNamespaces are those of the examples of workloads.
var workloadNamespaces = []string{"workloads", "workloads-quota", "workloads-limits", "workloads-restricted"}

// workloadChecks has, for each example of a workload, what the head of its file says.
var workloadChecks = map[string]func(*world){
	"00-namespace.yaml":    nil,
	"controller.yaml":      (*world).controllerCallsTheAPIServer,
	"daemonset.yaml":       (*world).daemonSetsRun,
	"endpoints.yaml":       (*world).chosenEndpointServes,
	"external-name.yaml":   (*world).externalNameLeadsToItsService,
	"gateway.yaml":         (*world).gatewayForwards,
	"jobs.yaml":            (*world).jobsEnd,
	"native-sidecar.yaml":  (*world).nativeSidecarServes,
	"ports.yaml":           (*world).sidecarMovesItsPort,
	"probes.yaml":          (*world).probesPass,
	"quota.yaml":           (*world).sidecarsComplyWithTheirNamespace,
	"restricted.yaml":      (*world).restrictedPodsAreDenied,
	"scraped.yaml":         (*world).excludedPortIsOpen,
	"security.yaml":        (*world).securedPodServes,
	"services.yaml":        (*world).eachServiceOfAPodServes,
	"statefulset.yaml":     (*world).peersReachEachOther,
	"udp.yaml":             (*world).packetsPassTheMeshBy,
	"webhook.yaml":         (*world).operatorReviews,
	"without-sidecar.yaml": (*world).clientWithoutASidecarIsDenied,
}

// TestWorkloads: the examples of workloads, as public charts have them, do what the heads of their files say.
func TestWorkloads(t *testing.T) {
	w := mesh(t)
	if err := w.AddAgnhost(t.Context(), "registry.k8s.io/e2e-test-images/agnhost:2.53"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../examples/kubernetes/workloads/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.removeWorkloads)
	for i, file := range files {
		if _, ok := workloadChecks[filepath.Base(file)]; !ok {
			t.Errorf("%s has no check", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.apply(string(text))
		if i == 0 {
			w.giveOperatorItsCertificate()
		}
	}
	w.kubectl("patch", "validatingwebhookconfiguration", "workloads-operator", "--type", "json", "-p", fmt.Sprintf(
		`[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": %q}]`, w.operatorCA()))
	for _, file := range files {
		check := workloadChecks[filepath.Base(file)]
		if check == nil {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			w := &world{w.Node, t}
			defer w.collect()
			check(w)
		})
	}
}

func (w *world) removeWorkloads() {
	_, err := w.Kubectl(context.Background(), "", append([]string{"delete", "namespace", "--wait=false",
		"--ignore-not-found"}, workloadNamespaces...)...)
	_, webhookErr := w.Kubectl(context.Background(), "", "delete", "validatingwebhookconfiguration",
		"workloads-operator", "--ignore-not-found")
	if err := errors.Join(err, webhookErr); err != nil {
		w.t.Error(err)
	}
}

// curl returns what a URL responds with to a container of a Pod of the namespace workloads, once it responds.
func (w *world) curl(pod, url string) string {
	w.t.Helper()
	var body string
	w.eventually(pod+" reaches "+url, func(ctx context.Context) (err error) {
		body, err = w.Kubectl(ctx, "", "exec", pod, "-n", "workloads", "-c", "app", "--", "curl", "-sSf", url)
		return err
	})
	return body
}

// unreachable fails the test where a URL responds to a Pod of the namespace workloads.
func (w *world) unreachable(pod, url string) {
	w.t.Helper()
	if body, err := w.Kubectl(w.t.Context(), "", "exec", pod, "-n", "workloads", "-c", "app", "--", "curl", "-sSf",
		url); err == nil {
		w.t.Errorf("%s gets %q of %s, which has to deny it", pod, body, url)
	}
}

// responds fails the test unless a Pod responds at a URL with its name.
func (w *world) responds(pod, url string) {
	w.t.Helper()
	if got := w.curl("deployment/gateway", url); got != pod {
		w.t.Errorf("%s responds as %q, want %s", url, got, pod)
	}
}

// ready returns when the Pods of an application are ready, and their number of containers.
func (w *world) ready(app string) {
	w.t.Helper()
	w.wait("pod", "condition=Ready", "-n", "workloads", "-l", "app="+app)
}

// containers are the names of the native sidecars and containers of a Pod of an application.
func (w *world) containers(app string) []string {
	w.t.Helper()
	return strings.Fields(w.kubectl("get", "pods", "-n", "workloads", "-l", "app="+app, "-o",
		"jsonpath={.items[0].spec.initContainers[*].name} {.items[0].spec.containers[*].name}"))
}

func (w *world) controllerCallsTheAPIServer() { w.ready("controller") }

func (w *world) probesPass() {
	w.ready("probes")
	w.curl("deployment/gateway", "http://probes/hostname")
	restarts := w.kubectl("get", "pods", "-n", "workloads", "-l", "app=probes", "-o",
		"jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if restarts != "0 0" {
		w.t.Errorf("the containers were started again: %s", restarts)
	}
}

func (w *world) peersReachEachOther() {
	w.ready("peers")
	calls := func() {
		w.t.Helper()
		for _, from := range []string{"peers-0", "peers-1"} {
			for _, to := range []string{"peers-0", "peers-1"} {
				if got := w.curl(from, "http://"+to+".peers:9090/hostname"); got != to {
					w.t.Errorf("%s is %q for %s", to, got, from)
				}
			}
		}
		w.unreachable("without-sidecar", "http://peers-0.peers:9090/hostname")
	}
	calls()
	if err := w.KillSidecar(w.t.Context(), "workloads", "peers-0"); err != nil {
		w.t.Fatal(err)
	}
	w.wait("pod/peers-0", `jsonpath={.status.initContainerStatuses[?(@.name=="kuma-sidecar")].restartCount}=1`, "-n",
		"workloads")
	w.ready("peers")
	calls()
}

func (w *world) daemonSetsRun() {
	w.ready("agent")
	w.ready("node-agent")
	if got := w.containers("agent"); !slices.Contains(got, "kuma-sidecar") {
		w.t.Errorf("the DaemonSet has %s, want a sidecar", got)
	}
	if got := w.containers("node-agent"); slices.Contains(got, "kuma-sidecar") {
		w.t.Errorf("the DaemonSet with hostNetwork has %s, want no sidecar", got)
	}
	w.ready("scraped")
	scraped := w.podIP("workloads", "scraped")
	w.curl("daemonset/node-agent", "http://"+scraped+":9100/hostname")
	w.unreachable("daemonset/node-agent", "http://"+scraped+":8080/hostname")
}

func (w *world) jobsEnd() {
	w.wait("job/once", "condition=Complete", "-n", "workloads")
	w.kubectl("create", "job", "tonight", "--from", "cronjob/nightly", "-n", "workloads")
	w.wait("job/tonight", "condition=Complete", "-n", "workloads")
}

func (w *world) nativeSidecarServes() {
	w.ready("native-sidecar")
	w.responds("native-sidecar", "http://native-sidecar/hostname")
	if got := fmt.Sprint(w.containers("native-sidecar")); got != "[kuma-init kuma-sidecar metrics app]" {
		w.t.Errorf("the Pod has %s", got)
	}
}

func (w *world) eachServiceOfAPodServes() {
	w.ready("many")
	for _, url := range []string{"http://many", "http://many-alias:8000", "http://many-admin",
		"http://many-headless:8080"} {
		w.responds("many", url+"/hostname")
	}
	w.unreachable("without-sidecar", "http://many/hostname")
	w.unreachable("without-sidecar", "http://many-admin/hostname")
}

// operatorTLS is the certificate of the operator's webhook.
var operatorTLS struct{ certificate, key []byte }

// giveOperatorItsCertificate writes the Secret that cert-manager writes for users.
func (w *world) giveOperatorItsCertificate() {
	w.t.Helper()
	var err error
	operatorTLS.certificate, operatorTLS.key, err = pki.NewTLSCertificate(nil, pki.TLSCertificate{
		Hosts: []string{"operator.workloads.svc"}, Lifetime: 24 * time.Hour, Now: time.Now()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: operator-tls, namespace: workloads}\n"+
		"type: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n", w.operatorCA(),
		base64.StdEncoding.EncodeToString(operatorTLS.key)))
}

func (w *world) operatorCA() string {
	return base64.StdEncoding.EncodeToString(operatorTLS.certificate)
}

func (w *world) operatorReviews() {
	w.ready("operator")
	w.eventually("the webhook denies an object", func(ctx context.Context) error {
		_, err := w.Kubectl(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: reviewed-, "+
			"namespace: workloads, labels: {workloads.example.com/reviewed: \"true\"}}\n", "create", "-f", "-")
		if err == nil {
			return errors.New("it was created")
		}
		return contains("this webhook denies all requests")(err.Error())
	})
}

// sidecarsComplyWithTheirNamespace: the Pods start, and their Envoys have as many threads as the node has CPUs.
func (w *world) sidecarsComplyWithTheirNamespace() {
	for namespace, want := range map[string]string{"workloads-quota": "1/512Mi", "workloads-limits": "/256Mi"} {
		w.wait("pod", "condition=Ready", "-n", namespace, "--all")
		const sidecar = `.items[0].spec.initContainers[?(@.name=="kuma-sidecar")].resources.limits`
		pod := strings.Fields(w.kubectl("get", "pods", "-n", namespace, "-o", "jsonpath={.items[0].metadata.name} {"+
			sidecar+".cpu}/{"+sidecar+".memory}"))
		if pod[1] != want {
			w.t.Errorf("%s: the sidecar has the limits %s, want %s", namespace, pod[1], want)
		}
		threads, err := w.Stats(w.t.Context(), namespace, pod[0], "^server.concurrency$")
		if want := fmt.Sprintf("server.concurrency: %d", runtime.NumCPU()); err != nil ||
			strings.TrimSpace(threads) != want {
			w.t.Errorf("%s: %q, want %s (%v)", namespace, threads, want, err)
		}
	}
}

func (w *world) restrictedPodsAreDenied() {
	w.event("violates PodSecurity", "workloads-restricted", "reason=FailedCreate")
}

func (w *world) sidecarMovesItsPort() {
	w.ready("ports")
	w.responds("ports", "http://ports/hostname")
	w.event("9001", "workloads", "reason=InjectionWarning,involvedObject.name=ports")
	w.event("7000", "workloads", "reason=ClosedPorts,involvedObject.name=ports")
	w.unreachable("deployment/gateway", "http://"+w.podIP("workloads", "ports")+":7000/hostname")
}

func (w *world) chosenEndpointServes() {
	w.ready("peers")
	w.responds("peers-0", "http://chosen/hostname")
	w.wait("meshservice/chosen", "condition=EndpointsExcluded", "-n", "workloads")
}

func (w *world) externalNameLeadsToItsService() {
	w.curl("deployment/gateway", "http://alias/hostname")
	w.unreachable("without-sidecar", "http://alias/hostname")
	if _, err := w.Kubectl(w.t.Context(), "", "get", "meshservice", "alias", "-n", "workloads"); err == nil {
		w.t.Error("the Service of the type ExternalName has a MeshService")
	}
}

func (w *world) gatewayForwards() {
	w.ready("gateway")
	pod := w.kubectl("get", "pods", "-n", "workloads", "-l", "app=gateway", "-o", "jsonpath={.items[0].status.podIP}")
	var got struct{ Responses, Errors []string }
	w.eventually("the gateway reaches a Service", func(context.Context) error {
		w.get("http://"+pod+":8080/dial?protocol=http&host=probes&port=80&request=hostname&tries=1", &got)
		if len(got.Responses) == 0 {
			return fmt.Errorf("%s", got.Errors)
		}
		return nil
	})
}

func (w *world) clientWithoutASidecarIsDenied() {
	w.wait("pod/without-sidecar", "condition=Ready", "-n", "workloads")
	w.curl("deployment/gateway", "http://probes/hostname")
	w.unreachable("without-sidecar", "http://probes/hostname")
}

func (w *world) packetsPassTheMeshBy() {
	w.ready("udp")
	w.responds("udp", "http://udp:5300/hostname")
	w.unreachable("without-sidecar", "http://udp:5300/hostname")
	w.event("5300/UDP", "workloads", "reason=IgnoredUnsupportedPort")
	dial := "http://127.0.0.1:8080/dial?protocol=udp&host=udp&port=5300&request=hostname&tries=1"
	if got := w.curl("without-sidecar", dial); !strings.Contains(got, `"responses":["udp"]`) {
		w.t.Errorf("UDP gets %s", got)
	}
}

func (w *world) excludedPortIsOpen() {
	w.ready("scraped")
	pod := w.podIP("workloads", "scraped")
	if got := w.curl("without-sidecar", "http://"+pod+":9100/hostname"); got != "scraped" {
		w.t.Errorf("the excluded port responds as %q", got)
	}
	w.responds("scraped", "http://scraped/hostname")
	w.unreachable("without-sidecar", "http://"+pod+":8080/hostname")
}

func (w *world) securedPodServes() {
	w.ready("security")
	w.responds("security", "http://security/hostname")
}
