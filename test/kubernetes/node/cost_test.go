package node_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/kubernetes/shop"
)

// controlPlaneUser is the user whose requests are counted.
const controlPlaneUser = "system:serviceaccount:kuma-system:kuma-control-plane"

// writtenForPods are the objects that the control plane writes for a Pod, as docs/kubernetes.md lists them.
var writtenForPods = []string{"dataplanes", "dataplaneinsights", "records", "events", "meshservices",
	"meshservices/status"}

// writes returns the number of the control plane's writes during an event by their verb and object, without those of
// its Leases. It fails the test for a write that is none of a Pod. A review of a token or of an access is a read,
// although it is sent as a write.
func (w *world) writes(event func()) map[string]int {
	w.t.Helper()
	_, position, err := w.Requests(controlPlaneUser, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	event()
	all, _, err := w.Requests(controlPlaneUser, position)
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range all {
		of := strings.TrimSuffix(r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")
		switch {
		case !slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb):
		case of == "leases", strings.HasSuffix(of, "reviews"):
		case of != "meshservices/status" && strings.HasSuffix(of, "/status"): // conditions of any object
		case !slices.Contains(writtenForPods, of):
			w.t.Errorf("the control plane sends %s %s %s/%s, which is no write for a Pod", r.Verb, of,
				r.ObjectRef.Namespace, r.ObjectRef.Name)
		default:
			counts[r.Verb+" "+of]++
		}
	}
	return counts
}

// text prints counts in the order of their names.
func text(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprint(counts[name], " ", name))
	}
	return strings.Join(parts, ", ")
}

// TestCostOfAPod: what a sidecar adds to the start and the end of a Pod: the writes of the control plane, warnings, and
// the time.
func TestCostOfAPod(t *testing.T) {
	w := mesh(t)
	s := w.open("cost", shop.Server("cost", "web", 1))
	w.wait("deployment/web", "condition=Available", "-n", s.Namespace)
	for i := range 3 {
		with, without := w.started(fmt.Sprint("meshed-", i), true), w.started(fmt.Sprint("plain-", i), false)
		t.Logf("a Pod is Ready after %s with a sidecar, after %s without", with, without)
	}
	start := w.writes(func() { w.started("meshed", true) })
	end := w.writes(func() { w.kubectl("delete", "pod", "meshed", "-n", s.Namespace, "--wait") })
	t.Logf("a client: %s at its start; %s at its end", text(start), text(end))
	start = w.writes(func() {
		w.kubectl("scale", "deployment/web", "-n", s.Namespace, "--replicas", "2")
		w.kubectl("rollout", "status", "deployment/web", "-n", s.Namespace, "--timeout", "3m")
		w.inboundsAreReady(s)
	})
	t.Logf("a server: %s at its start", text(start))
	t.Logf("warnings: %s", w.kubectl("get", "events", "-n", s.Namespace, "--field-selector", "type=Warning", "-o",
		`jsonpath={range .items[*]}{.involvedObject.name} {.involvedObject.fieldPath}: {.message}{"\n"}{end}`))
	end = w.writes(func() {
		w.kubectl("scale", "deployment/web", "-n", s.Namespace, "--replicas", "1")
		w.eventually("a server is gone", func(context.Context) error {
			if n := len(w.servers(s)); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	})
	t.Logf("a server: %s at its end", text(end))
}

// inboundsAreReady returns when the Dataplane of each server has its inbound Ready.
func (w *world) inboundsAreReady(s *shop.Shop) {
	w.t.Helper()
	for _, server := range w.servers(s) {
		w.wait("dataplane/"+server, "jsonpath={.spec.networking.inbound[0].state}=Ready", "-n", s.Namespace)
	}
}

// TestEndOfAJob: how much later than its container a Job with a sidecar is complete, in seconds.
func TestEndOfAJob(t *testing.T) {
	w := mesh(t)
	w.namespace("ends", "kuma.io/sidecar-injection=enabled")
	dns := w.kubectl("get", "pods", "-n", "kube-system", "-l", "app=coredns", "-o", "jsonpath={.items[0].status.podIP}")
	for _, injection := range []string{"enabled", "disabled"} {
		w.apply(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: ends}
spec:
  template:
    metadata: {labels: {kuma.io/sidecar-injection: %[1]s}}
    spec:
      restartPolicy: Never
      containers:
      - {name: app, image: "weft-test/application:latest", imagePullPolicy: Never, args: [get, "http://%[2]s:8181/ready"]}
`, injection, dns))
		w.wait("job/"+injection, "condition=Complete", "-n", "ends")
		pods := w.kubectl("get", "pods", "-n", "ends", "-l", "job-name="+injection, "-o", "jsonpath={.items[0]."+
			"status.containerStatuses[0].state.terminated.finishedAt} is the end of the container, {.items[0].status."+
			"initContainerStatuses[1].state.terminated.finishedAt} of the sidecar")
		t.Logf("sidecar %s: %s, %s of the Job", injection, pods, w.kubectl("get", "job", injection, "-n", "ends", "-o",
			"jsonpath={.status.completionTime}"))
	}
}

// started returns the time from the creation of a Pod of the namespace cost until it is Ready, with a sidecar or
// without.
func (w *world) started(name string, sidecar bool) time.Duration {
	w.t.Helper()
	pod := shop.Client("cost", name)
	if !sidecar {
		pod = strings.Replace(pod, "labels: {", "labels: {kuma.io/sidecar-injection: disabled, ", 1)
	}
	began := time.Now()
	w.apply(pod)
	w.wait("pod/"+name, "condition=Ready", "-n", "cost")
	return time.Since(began).Round(10 * time.Millisecond)
}
