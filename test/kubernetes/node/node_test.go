package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft/internal/traffic"
	"weft/test/kubernetes/node"
	"weft/test/kubernetes/shop"
)

var enabled = flag.Bool("node", false, "run the tests of a Kubernetes node, as root; `make node` builds its programs")

var drills = flag.Bool("drills", false, "send 1,000 requests a second during each event, not 50, and print what was "+
	"sent, and what failed by cause")

// results has those of all drills.
var results traffic.Report

func TestMain(m *testing.M) {
	flag.Parse()
	if !*enabled {
		os.Exit(m.Run())
	}
	if node.IsIsolated() {
		code := m.Run()
		if *drills {
			results.Print(os.Stdout)
		}
		for _, n := range []*node.Node{secondCluster, shared.node} {
			if n != nil {
				n.Stop()
			}
		}
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	code, err := node.Isolate(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world is the node of all tests of this run.
type world struct {
	*node.Node
	t *testing.T
}

var shared struct {
	sync.Once
	node *node.Node
	err  error
}

// start returns the node, which the first test starts.
func start(t *testing.T) *world {
	t.Helper()
	if !*enabled {
		t.Skip("needs root and minutes: make test-kubernetes")
	}
	shared.Do(func() {
		began := time.Now()
		shared.node, shared.err = node.Start(t.Context(), node.Options{Images: shop.Images()})
		if shared.err == nil {
			t.Logf("the node is ready after %.1f s", time.Since(began).Seconds())
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return &world{shared.node, t}
}

// kubectl runs kubectl, and returns its output.
func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	out, err := w.Kubectl(w.t.Context(), "", args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (w *world) apply(yaml string) {
	w.t.Helper()
	if err := w.Apply(w.t.Context(), yaml); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wait(object, condition string, args ...string) {
	w.t.Helper()
	if err := w.Wait(w.t.Context(), object, condition, args...); err != nil {
		w.t.Fatal(err)
	}
}

// collect writes a report on a failed test, and logs where it is.
func (w *world) collect() {
	if !w.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "weft-node-report-")
	if err == nil {
		err = w.Collect(context.Background(), dir)
	}
	w.t.Logf("the report is in %s (%v)", dir, err)
}

// namespace makes a namespace, whose deletion begins at the end of the test. Its Pods end with the node.
func (w *world) namespace(name string, labels ...string) {
	w.t.Helper()
	w.kubectl("create", "namespace", name)
	if len(labels) > 0 {
		w.kubectl(append([]string{"label", "namespace", name}, labels...)...)
	}
	w.t.Cleanup(func() {
		w.collect()
		if _, err := w.Kubectl(context.Background(), "", "delete", "namespace", name, "--wait=false"); err != nil {
			w.t.Error(err)
		}
	})
}

// awaitDeletions returns when no namespace of a former test is left.
func (w *world) awaitDeletions() {
	w.t.Helper()
	w.eventually("namespaces of former tests are deleted", func(ctx context.Context) error {
		left, err := w.Kubectl(ctx, "", "get", "namespaces", "-o",
			"jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name} {end}")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
}

// TestPod: a Pod serves at its own address, at that of its Service, and by name; a Job reaches it, and ends.
func TestPod(t *testing.T) {
	w := start(t)
	w.namespace("pods")
	w.apply(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: pods, labels: {app: web}}
spec:
  containers:
  - name: web
    image: weft-test/application:latest
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: pods}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: client, namespace: pods}
spec:
  template:
    spec:
      restartPolicy: OnFailure
      containers:
      - {name: client, image: "weft-test/application:latest", imagePullPolicy: Never, args: [get, "http://web.pods"]}
`)
	w.wait("pod/web", "condition=Ready", "-n", "pods")
	address := w.kubectl("get", "pod", "web", "-n", "pods", "-o", "jsonpath={.status.podIP}")
	cluster := w.kubectl("get", "service", "web", "-n", "pods", "-o", "jsonpath={.spec.clusterIP}")
	for _, url := range []string{"http://" + address + ":8080", "http://" + cluster} {
		var response struct{ Instance string }
		w.get(url, &response)
		if response.Instance != "web" {
			t.Errorf("%s responds as %q, want web", url, response.Instance)
		}
	}
	w.wait("job/client", "condition=Complete", "-n", "pods")
	w.kubectl("delete", "pod", "web", "-n", "pods", "--wait")
}

// get decodes the JSON that a URL responds with.
func (w *world) get(url string, into any) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || json.Unmarshal(body, into) != nil {
		w.t.Fatalf("%s: %s: %v: %s", url, response.Status, err, body)
	}
}
