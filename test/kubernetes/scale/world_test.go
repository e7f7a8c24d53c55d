package scale_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"weft/internal/adminsocket"
	"weft/internal/client"
	"weft/internal/diag"
	_ "weft/internal/envoy" // registers the types of Envoy's configuration, which simulated Envoys decode
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/install"
	"weft/internal/kube/install/installtest"
	"weft/kind"
	"weft/resource"
	"weft/test/kubernetes/cluster"
)

type object = map[string]any

const (
	system  = install.SystemNamespace
	account = "kuma-control-plane"
	user    = "system:serviceaccount:" + system + ":" + account
	// namespaceSize is the number of Services in a namespace.
	namespaceSize = 100
	writers       = 16
)

// world is the cluster with its control plane.
type world struct {
	*cluster.Server
	t         *testing.T
	api       *api.Client
	plane     *cluster.Process
	weft      string // the program
	data      string // the data directory
	dataPlane string // HOST:PORT
	ready     string // URL
	admin     *client.Client
	marked    int64        // a position of the audit log
	pods      [][]pod      // by Service
	repeated  atomic.Int64 // creations of Pods that failed, since the webhook did not respond
}

// pod is a Pod of a Service.
type pod struct{ namespace, name string }

// start starts the API server, kwok with all nodes, and the control plane, and creates the Services.
func start(t *testing.T) *world {
	t.Helper()
	programs, err := cluster.Programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, weft: repository("bin", "weft")}
	if w.Server, err = cluster.Start(cluster.Options{Programs: programs, Dir: t.TempDir(), Audit: true,
		Flags: []string{"--enable-aggregator-routing"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if w.api, err = api.New(w.Config()); err != nil {
		t.Fatal(err)
	}
	w.startKwok()
	w.install()
	w.startPlane()
	w.createServices()
	w.awaitCount(kind.MeshServices, *services)
	w.awaitQuiet()
	return w
}

// repository returns a path of the repository.
func repository(elements ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", "..", ".."}, elements...)...)
}

// kubeconfig writes a kubeconfig with a token, and returns its path.
func (w *world) kubeconfig(token string) string {
	w.t.Helper()
	text, err := yaml.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "scale",
		"clusters": []any{object{"name": "scale", "cluster": object{"server": w.Config().Host,
			"certificate-authority": w.Config().CAFile}}},
		"users":    []any{object{"name": "scale", "user": object{"token": token}}},
		"contexts": []any{object{"name": "scale", "context": object{"cluster": "scale", "user": "scale"}}}})
	path := filepath.Join(w.t.TempDir(), "config")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

// startKwok starts kwok, and creates the nodes.
func (w *world) startKwok() {
	w.t.Helper()
	out, err := exec.Command(repository("test", "kubernetes", "kwok", "build"), "--print").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	folder := strings.TrimSpace(string(out))
	process, err := cluster.StartProcess(w.Dir, "kwok", filepath.Join(folder, "kwok"),
		"--kubeconfig", w.kubeconfig(cluster.AdminToken), "--config", filepath.Join(folder, "stages.yaml"),
		"--manage-all-nodes", "--node-lease-duration-seconds", "0")
	if err != nil {
		w.t.Fatalf("kwok is not built, `make kwok` does so once, in about 3 minutes: %v", err)
	}
	w.t.Cleanup(process.Kill)
	w.each(*nodes, func(ctx context.Context, n int) error {
		return w.api.Create(ctx, "/api/v1/nodes", object{"apiVersion": "v1", "kind": "Node",
			"metadata": object{"name": nodeName(n), "labels": object{"kubernetes.io/hostname": nodeName(n),
				"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", n%3)}},
			"spec": object{"podCIDR": podRange(n), "podCIDRs": []string{podRange(n)}}}, nil)
	})
}

func nodeName(n int) string { return fmt.Sprintf("node-%d", n) }
func podRange(n int) string { return fmt.Sprintf("10.%d.%d.0/24", 128+n/256, n%256) }

// each calls do for 0 to n-1, several at once.
func (w *world) each(n int, do func(context.Context, int) error) {
	w.t.Helper()
	group, ctx := errgroup.WithContext(w.t.Context())
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// install applies the objects of the chart, and sets the environment of the control plane as its Deployment has it.
func (w *world) install() {
	w.t.Helper()
	objects := installtest.Objects(w.t, install.Options{Namespace: system, CRDs: true,
		Values: object{"createNamespace": true}})
	for _, o := range objects {
		if err := w.api.Apply(w.t.Context(), o.Path(), o, nil); err != nil {
			w.t.Fatalf("%s: %v", o.Path(), err)
		}
		if o.Kind() != "Deployment" {
			continue
		}
		template := o["spec"].(object)["template"].(object)["spec"].(object)
		for _, v := range template["containers"].([]any)[0].(object)["env"].([]any) {
			if value, ok := v.(object)["value"].(string); ok {
				w.t.Setenv(v.(object)["name"].(string), value)
			}
		}
	}
	address, err := cluster.MachineAddress()
	if err != nil {
		w.t.Fatal(err)
	}
	var ports [5]int
	for i := range ports {
		if ports[i], err = cluster.FreePort(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.data = w.t.TempDir()
	w.dataPlane = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2]))
	w.ready = fmt.Sprintf("http://127.0.0.1:%d/ready", ports[3])
	for name, value := range map[string]string{
		"KUBECONFIG": w.kubeconfig(w.token(system, account, object{})), "KUMA_GENERAL_DATA_DIR": w.data,
		"KUMA_API_SERVER_HTTP_PORT": strconv.Itoa(ports[0]), "KUMA_API_SERVER_HTTPS_PORT": strconv.Itoa(ports[1]),
		"KUMA_DP_SERVER_PORT": strconv.Itoa(ports[2]), "KUMA_DIAGNOSTICS_SERVER_PORT": strconv.Itoa(ports[3]),
		"KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_PORT":    strconv.Itoa(ports[4]),
		"KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_ADDRESS": address,
	} {
		w.t.Setenv(name, value)
	}
	// As the controllers of Kubernetes do. The API server calls the webhooks there.
	w.create("/apis/discovery.k8s.io/v1/namespaces/"+system+"/endpointslices", object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"name": account + "-1", "labels": object{"kubernetes.io/service-name": account,
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"endpoints": []any{object{"addresses": []any{address}, "conditions": object{"ready": true}}},
		"ports":     []any{object{"name": "https-admission", "port": ports[4], "protocol": "TCP"}}})
	if w.admin, err = client.New(client.Options{
		Address: client.UnixScheme + filepath.Join(w.data, adminsocket.Name)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(path string, o object) {
	w.t.Helper()
	if err := w.api.Create(w.t.Context(), path, o, nil); err != nil {
		w.t.Fatal(err)
	}
}

// token returns a token of a ServiceAccount.
func (w *world) token(namespace, account string, spec object) string {
	w.t.Helper()
	var created struct{ Status struct{ Token string } }
	spec["expirationSeconds"] = 24 * 3600
	if err := w.api.Create(w.t.Context(), "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}, &created); err != nil {
		w.t.Fatal(err)
	}
	return created.Status.Token
}

// startPlane starts the control plane, and returns when it is ready.
func (w *world) startPlane() {
	w.t.Helper()
	plane, err := cluster.StartProcess(w.Dir, "weft", w.weft, "cp", "run")
	if err != nil {
		w.t.Fatalf("weft is not built, `make build` does so: %v", err)
	}
	w.plane = plane
	w.t.Cleanup(plane.Kill)
	if err := plane.Ready(w.ready, http.DefaultClient); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stopPlane() { w.plane.Stop() }

// awaitLeader waits until the control plane follows the objects of Kubernetes, which the leader does.
func (w *world) awaitLeader() {
	w.await("the control plane leads", func() bool {
		found := w.sinceMark()
		return found["pods watch"] > 0 && found["nodes watch"] > 0
	})
}

func namespaceOf(service int) string { return fmt.Sprintf("shop-%d", service/namespaceSize) }
func serviceName(n int) string       { return fmt.Sprintf("service-%d", n) }

// createServices creates the namespaces with injection, and the Services. Each names its mesh: another one has no
// MeshService before the proxy of a Pod serves it.
func (w *world) createServices() {
	w.t.Helper()
	for n := 0; n < *services; n += namespaceSize {
		name := namespaceOf(n)
		w.create("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name,
			"labels": object{"kuma.io/sidecar-injection": "enabled"}}})
		w.create("/api/v1/namespaces/"+name+"/serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": object{"name": "default"}})
	}
	w.each(*services, func(ctx context.Context, n int) error {
		return w.api.Create(ctx, "/api/v1/namespaces/"+namespaceOf(n)+"/services", object{"apiVersion": "v1",
			"kind": "Service", "metadata": object{"name": serviceName(n),
				"labels": object{"kuma.io/mesh": "default"}}, "spec": object{
				"selector": object{"app": serviceName(n)},
				"ports":    []any{object{"port": 80, "targetPort": "http", "appProtocol": "http"}}}}, nil)
	})
}

// createPods creates the Pods, each with its node, in place of the controllers and the scheduler. A proxy's Pod is the
// first of its Service.
func (w *world) createPods() {
	w.t.Helper()
	w.pods = make([][]pod, *services)
	for i := range *nodes * *pods {
		service := i % *services
		w.pods[service] = append(w.pods[service], pod{namespaceOf(service),
			fmt.Sprintf("%s-a-%d", serviceName(service), i / *services)})
	}
	w.each(*nodes**pods, func(ctx context.Context, i int) error {
		return w.createPod(ctx, w.pods[i%*services][i / *services], i%*services, "a", i%*nodes)
	})
}

func (w *world) createPod(ctx context.Context, p pod, service int, hash string, node int) error {
	o := object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": p.name, "labels": object{"app": serviceName(service), "pod-template-hash": hash}},
		"spec": object{"nodeName": nodeName(node), "containers": []any{object{"name": "app", "image": "app",
			"ports": []any{object{"name": "http", "containerPort": 8080}}}}}}
	for {
		err := w.api.Create(ctx, "/api/v1/namespaces/"+p.namespace+"/pods", o, nil)
		if !apierrors.IsInternalError(err) {
			return err
		}
		w.repeated.Add(1) // the webhook did not respond, and a controller would repeat it too
	}
}

// replacePods replaces the Pods of some Services, except those with a proxy: a new Pod is ready before an old one is
// deleted.
// It returns their number.
func (w *world) replacePods() int {
	w.t.Helper()
	var replaced atomic.Int64
	w.each(min(*updated, *services), func(ctx context.Context, service int) error {
		for i, old := range w.pods[service] {
			if i == 0 && service < *proxies {
				continue
			}
			next := pod{old.namespace, fmt.Sprintf("%s-b-%d", serviceName(service), i)}
			err := w.createPod(ctx, next, service, "b", (service+i)%*nodes)
			if err == nil {
				err = w.awaitReady(ctx, next)
			}
			if err == nil {
				err = w.api.Delete(ctx, podPath(old), "", "")
			}
			if err != nil {
				return err
			}
			replaced.Add(1)
		}
		return nil
	})
	return int(replaced.Load())
}

func podPath(p pod) string { return "/api/v1/namespaces/" + p.namespace + "/pods/" + p.name }

// awaitReady waits until kwok has written the status of a Pod.
func (w *world) awaitReady(ctx context.Context, p pod) error {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		var stored struct{ Status struct{ Phase string } }
		if err := w.api.Get(ctx, podPath(p), nil, &stored); err != nil || stored.Status.Phase == "Running" {
			tick.Stop()
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// proxied returns the Pods of the simulated Envoys.
func (w *world) proxied() []pod {
	var all []pod
	for service := range *proxies {
		all = append(all, w.pods[service][0])
	}
	return all
}

func (w *world) podToken(p pod) string {
	w.t.Helper()
	return w.token(p.namespace, "default", object{"audiences": []string{"weft"},
		"boundObjectRef": object{"kind": "Pod", "apiVersion": "v1", "name": p.name}})
}

func (w *world) podIP(p pod) string {
	w.t.Helper()
	var stored struct{ Status struct{ PodIP string } }
	if err := w.api.Get(w.t.Context(), podPath(p), nil, &stored); err != nil {
		w.t.Fatal(err)
	}
	return stored.Status.PodIP
}

// setReady writes the readiness of a Pod's application.
func (w *world) setReady(ctx context.Context, p pod, ready bool) error {
	for {
		var stored object
		if err := w.api.Get(ctx, podPath(p), nil, &stored); err != nil {
			return err
		}
		status := stored["status"].(object)
		for _, c := range status["conditions"].([]any) {
			if kind := c.(object)["type"]; kind == "Ready" || kind == "ContainersReady" {
				c.(object)["status"] = map[bool]string{true: "True", false: "False"}[ready]
			}
		}
		for _, c := range status["containerStatuses"].([]any) {
			c.(object)["ready"] = ready
		}
		err := w.api.Update(ctx, podPath(p)+"/status", stored, nil)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// awaitDataplanes waits until there are as many Dataplanes as Pods.
func (w *world) awaitDataplanes() { w.awaitCount(kind.Dataplanes, *nodes**pods) }

// awaitCount waits until there is a number of objects of a kind.
func (w *world) awaitCount(d resource.Descriptor, want int) {
	w.t.Helper()
	collection := "/apis/kuma.io/v1alpha1/" + crd.Plural(d.Describe())
	w.await(fmt.Sprintf("%s has %d objects", collection, want), func() bool {
		var list struct {
			Metadata struct{ RemainingItemCount int }
			Items    []json.RawMessage
		}
		if err := w.api.Get(w.t.Context(), collection, api.Options{"limit": "1"}, &list); err != nil {
			w.t.Fatal(err)
		}
		return len(list.Items)+list.Metadata.RemainingItemCount == want
	})
}

// timeout is how long the test waits for any condition.
const timeout = 20 * time.Minute

func (w *world) await(condition string, reached func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); !reached(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", timeout, condition)
		}
	}
}

// quiet is how long the control plane writes nothing but its Lease before it has written everything.
const quiet = 3 * time.Second

func (w *world) awaitQuiet() {
	w.t.Helper()
	for {
		position := w.end()
		wait(w.t, quiet)
		if found, _ := w.requestsAfter(position); found.writes() == found.leases() {
			return
		}
	}
}

func wait(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("cancelled")
	}
}

// requests has the numbers of requests, by resource and verb.
type requests map[string]int

func (r requests) sum(counts func(resource, verb string) bool) (n int) {
	for kind, number := range r {
		if resource, verb, _ := strings.Cut(kind, " "); counts(resource, verb) {
			n += number
		}
	}
	return n
}

func (r requests) all() int { return r.sum(func(string, string) bool { return true }) }

// writes leaves out reviews of tokens and permissions, which the API server does not store.
func (r requests) writes() int {
	return r.sum(func(resource, verb string) bool { return isWrite(verb) && !strings.HasSuffix(resource, "reviews") })
}

func (r requests) leases() int {
	return r.sum(func(resource, verb string) bool { return isWrite(verb) && resource == "leases" })
}

func isWrite(verb string) bool { return verb != "get" && verb != "list" && verb != "watch" }

func (r requests) events() int { return r["events create"] }

// mark begins to count requests.
func (w *world) mark() { w.marked = w.end() }

// sinceMark returns the requests of the control plane since the mark.
func (w *world) sinceMark() requests {
	w.t.Helper()
	found, _ := w.requestsAfter(w.marked)
	return found
}

// end is the position of the end of the audit log.
func (w *world) end() int64 {
	info, err := os.Stat(filepath.Join(w.Dir, "audit.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Size()
}

func (w *world) requestsAfter(position int64) (requests, int64) {
	w.t.Helper()
	list, next, err := w.Requests(user, position)
	if err != nil {
		w.t.Fatal(err)
	}
	found := requests{}
	for _, r := range list {
		resource := r.ObjectRef.Resource
		if r.ObjectRef.Subresource != "" {
			resource += "/" + r.ObjectRef.Subresource
		}
		found[resource+" "+r.Verb]++
	}
	return found, next
}

// usage is the usage of the control plane's process.
func (w *world) usage() (p diag.Process) {
	w.t.Helper()
	if err := w.admin.Get(w.t.Context(), "/debug/process", nil, &p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// collectGarbage is usage after a collection.
func (w *world) collectGarbage() (p diag.Process) {
	w.t.Helper()
	if err := w.admin.Post(w.t.Context(), "/debug/gc", nil, &p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// cpu is the CPU time between two usages, in seconds.
func cpu(before, after diag.Process) float64 {
	return float64(after.CPUNanoseconds-before.CPUNanoseconds) / 1e9
}

// roots are those of the control plane's own CA.
func (w *world) roots() *x509.CertPool {
	w.t.Helper()
	pem, err := os.ReadFile(filepath.Join(w.data, "ca.crt"))
	if err != nil {
		w.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return roots
}
