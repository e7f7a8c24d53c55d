package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	_ "weft/internal/envoy" // registers the types of Envoy's configuration, which simulated Envoys decode
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/install"
	"weft/internal/kube/install/installtest"
	"weft/internal/process"
	"weft/internal/testwait"
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

// size is the size of a cluster.
type size struct {
	nodes    int // 0: kwok does not run
	pods     int // in all, which the nodes share evenly
	services int // which the Pods share evenly
	proxies  int // simulated Envoys, each of the first Pod of another Service
}

// world is a cluster with its control plane.
type world struct {
	*cluster.Server
	*plane
	size
	t         *testing.T
	api       *api.Client
	kwok      *process.Process
	templates map[string]object // of the Pods of the chart's Deployments, by the name of the Deployment
	marked    int64             // a position of the audit log
	podsOf    [][]pod           // by Service
	repeated  atomic.Int64      // creations of Pods that failed, since the webhook did not respond
}

// pod is a Pod of a Service.
type pod struct{ namespace, name string }

// start starts a cluster with its control plane, and creates the Services.
func start(t *testing.T, of size) *world {
	t.Helper()
	w := newWorld(t, of, object{})
	w.start()
	w.createServices()
	w.awaitCount(kind.MeshServices, w.services)
	w.awaitQuiet()
	return w
}

// newWorld starts the API server, and kwok with all nodes, and installs the control plane with values of the chart. The
// control plane does not run yet.
func newWorld(t *testing.T, of size, values object) *world {
	t.Helper()
	programs, err := cluster.Programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, size: of, templates: map[string]object{}}
	if w.Server, err = cluster.Start(cluster.Options{Programs: programs, Dir: t.TempDir(), Audit: true,
		Flags: []string{"--enable-aggregator-routing"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if w.api, err = api.New(w.Config()); err != nil {
		t.Fatal(err)
	}
	if w.nodes > 0 {
		w.startKwok()
	}
	w.install(values)
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
	w.kwok, err = process.Start(w.Dir, "kwok", filepath.Join(folder, "kwok"),
		"--kubeconfig", w.kubeconfig(cluster.AdminToken), "--config", filepath.Join(folder, "stages.yaml"),
		"--manage-all-nodes", "--node-lease-duration-seconds", "0")
	if err != nil {
		w.t.Fatalf("kwok is not built, `make kwok` does so once, in about 3 minutes: %v", err)
	}
	w.t.Cleanup(w.kwok.Kill)
	w.each(w.nodes, func(ctx context.Context, n int) error {
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

// install applies the objects of the chart, and prepares the control plane as its Deployment has it.
func (w *world) install(values object) {
	w.t.Helper()
	values = maps.Clone(values)
	values["createNamespace"] = true
	for _, o := range installtest.Objects(w.t, install.Options{Namespace: system, CRDs: true, Values: values}) {
		if err := w.api.Apply(w.t.Context(), o.Path(), o, nil); err != nil {
			w.t.Fatalf("%s: %v", o.Path(), err)
		}
		if o.Kind() == "Deployment" {
			w.templates[o["metadata"].(object)["name"].(string)] = o["spec"].(object)["template"].(object)
		}
	}
	address, err := cluster.MachineAddress()
	if err != nil {
		w.t.Fatal(err)
	}
	env := map[string]string{
		"KUBECONFIG": w.kubeconfig(w.token(system, account, object{})),
		"KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_ADDRESS": address,
	}
	container := w.templates[account]["spec"].(object)["containers"].([]any)[0].(object)
	for _, v := range container["env"].([]any) {
		if value, ok := v.(object)["value"].(string); ok {
			env[v.(object)["name"].(string)] = value
		}
	}
	w.plane = newPlane(w.t, env)
	// As the controllers of Kubernetes do. The API server calls the webhooks there.
	w.create("/apis/discovery.k8s.io/v1/namespaces/"+system+"/endpointslices", object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"name": account + "-1", "labels": object{"kubernetes.io/service-name": account,
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"endpoints": []any{object{"addresses": []any{address}, "conditions": object{"ready": true}}},
		"ports":     []any{object{"name": "https-admission", "port": w.plane.Ports.Webhooks, "protocol": "TCP"}}})
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

// awaitLeader waits until the control plane follows the objects of Kubernetes, which the leader does.
func (w *world) awaitLeader() {
	testwait.UntilTrue(w.t, "the control plane leads", func() bool {
		found := w.sinceMark()
		return found["pods watch"] > 0 && found["nodes watch"] > 0
	})
}

func namespaceOf(service int) string { return fmt.Sprintf("shop-%d", service/namespaceSize) }
func serviceName(n int) string       { return fmt.Sprintf("service-%d", n) }

// createServices creates the namespaces with injection, and the Services.
func (w *world) createServices() {
	w.t.Helper()
	for n := 0; n < w.services; n += namespaceSize {
		name := namespaceOf(n)
		w.create("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name,
			"labels": object{"kuma.io/sidecar-injection": "enabled"}}})
		w.create("/api/v1/namespaces/"+name+"/serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": object{"name": "default"}})
	}
	w.each(w.services, func(ctx context.Context, n int) error {
		return w.createService(ctx, namespaceOf(n), serviceName(n), serviceName(n), object{})
	})
}

// createService creates a Service of the Pods of an application. It names its mesh: another one has no MeshService
// before the proxy of a Pod serves it.
func (w *world) createService(ctx context.Context, namespace, name, app string, labels object) error {
	labels = maps.Clone(labels)
	labels["kuma.io/mesh"] = "default"
	return w.api.Create(ctx, "/api/v1/namespaces/"+namespace+"/services", object{"apiVersion": "v1",
		"kind": "Service", "metadata": object{"name": name, "labels": labels}, "spec": object{
			"selector": object{"app": app},
			"ports":    []any{object{"port": 80, "targetPort": "http", "appProtocol": "http"}}}}, nil)
}

// createPods creates the Pods, each with its node, in place of the controllers and the scheduler. A proxy's Pod is the
// first of its Service.
func (w *world) createPods() {
	w.t.Helper()
	w.podsOf = make([][]pod, w.services)
	for i := range w.pods {
		service := i % w.services
		w.podsOf[service] = append(w.podsOf[service], pod{namespaceOf(service),
			fmt.Sprintf("%s-a-%d", serviceName(service), i/w.services)})
	}
	w.each(w.pods, func(ctx context.Context, i int) error {
		service := i % w.services
		return w.createPod(ctx, w.podsOf[service][i/w.services], serviceName(service), "a", i%w.nodes)
	})
}

func (w *world) createPod(ctx context.Context, p pod, app, hash string, node int) error {
	return w.createPodOf(ctx, p, object{
		"metadata": object{"labels": object{"app": app, "pod-template-hash": hash}},
		"spec": object{"containers": []any{object{"name": "app", "image": "app",
			"ports": []any{object{"name": "http", "containerPort": 8080}}}}}}, node)
}

// createPodOf creates a Pod of a template.
func (w *world) createPodOf(ctx context.Context, p pod, template object, node int) error {
	metadata, spec := maps.Clone(template["metadata"].(object)), maps.Clone(template["spec"].(object))
	metadata["name"], spec["nodeName"] = p.name, nodeName(node)
	o := object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
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
	w.each(min(*updated, w.services), func(ctx context.Context, service int) error {
		for i, old := range w.podsOf[service] {
			if i == 0 && service < w.proxies {
				continue
			}
			next := pod{old.namespace, fmt.Sprintf("%s-b-%d", serviceName(service), i)}
			err := w.createPod(ctx, next, serviceName(service), "b", (service+i)%w.nodes)
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
	for service := range w.proxies {
		all = append(all, w.podsOf[service][0])
	}
	return all
}

// podToken returns a token of a Pod's ServiceAccount that is bound to the Pod.
func (w *world) podToken(p pod, account string) string {
	w.t.Helper()
	return w.token(p.namespace, account, object{"audiences": []string{"weft"},
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
func (w *world) awaitDataplanes() { w.awaitCount(kind.Dataplanes, w.pods) }

// awaitCount waits until there is a number of objects of a kind.
func (w *world) awaitCount(d resource.Descriptor, want int) {
	w.t.Helper()
	collection := "/apis/kuma.io/v1alpha1/" + crd.Plural(d.Describe())
	await(w.t, poll, "objects of "+collection, want, func() int {
		var list struct {
			Metadata struct{ RemainingItemCount int }
			Items    []json.RawMessage
		}
		if err := w.api.Get(w.t.Context(), collection, api.Options{"limit": "1"}, &list); err != nil {
			w.t.Fatal(err)
		}
		return len(list.Items) + list.Metadata.RemainingItemCount
	})
}

// poll is the interval of counts that cost little.
const poll = 50 * time.Millisecond

// await waits until there are as many things as wanted, and counts them at an interval. A large cluster takes longer
// than any other test, so it fails the test once the count has not changed for [testwait.Timeout].
func await(t *testing.T, interval time.Duration, things string, want int, count func() int) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	found, changed := count(), time.Now()
	for found != want {
		<-tick.C
		if now := count(); now != found {
			found, changed = now, time.Now()
		} else if time.Since(changed) > testwait.Timeout {
			t.Fatalf("%s: there are %d, want %d", things, found, want)
		}
	}
}

// quiet is how long the control plane writes nothing but its Lease before it has written everything.
const quiet = 3 * time.Second

func (w *world) awaitQuiet() {
	w.t.Helper()
	awaitQuiet(w.t, w)
}

// awaitQuiet waits until the control planes of all clusters are quiet at the same time.
func awaitQuiet(t *testing.T, of ...*world) {
	t.Helper()
	for written := true; written; {
		var positions []int64
		for _, w := range of {
			positions = append(positions, w.end())
		}
		testwait.Pass(quiet, "a control plane may write more")
		written = false
		for i, w := range of {
			found := w.requestsAfter(positions[i])
			written = written || found.writes() != found.leases()
		}
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

// add adds other requests.
func (r requests) add(others requests) {
	for kind, number := range others {
		r[kind] += number
	}
}

func (r requests) all() int { return r.sum(func(string, string) bool { return true }) }

// writes leaves out reviews of tokens and permissions, which the API server does not store.
func (r requests) writes() int {
	return r.sum(func(resource, verb string) bool { return isWrite(verb) && !strings.HasSuffix(resource, "reviews") })
}

// reads are those of single objects, except Leases.
func (r requests) reads() int {
	return r.sum(func(resource, verb string) bool { return verb == "get" && resource != "leases" })
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
	return w.requestsAfter(w.marked)
}

// end is the position of the end of the audit log.
func (w *world) end() int64 {
	info, err := os.Stat(filepath.Join(w.Dir, "audit.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Size()
}

func (w *world) requestsAfter(position int64) requests {
	w.t.Helper()
	list, _, err := w.Requests(user, position)
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
	return found
}
