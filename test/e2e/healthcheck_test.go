package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"weft/internal/traffic"
)

// healthPolicy is a MeshHealthCheck of the client with a conf about every destination.
func healthPolicy(conf string) string {
	return fmt.Sprintf("type: MeshHealthCheck\nmesh: default\nname: h\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// TestHealthChecksPassTheServersProxy: checks use the mutual TLS of the mesh and reach the application. An endpoint
// whose application fails them gets no request. They need a permission of the server.
func TestHealthChecksPassTheServersProxy(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	var ill atomic.Bool
	for i, name := range []string{"web-1", "web-2"} {
		host := 2 + 2*i
		app := w.service(host, 18080, name)
		handler := app.Handler
		app.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" && name == "web-1" && ill.Load() {
				rw.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			handler.ServeHTTP(rw, r)
		})
		w.proxy("default", name, server(name, "web", "http", host, 20080))
	}
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	const cluster = `cluster\.kri_msvc_default_.*`
	healthy := func(n int) func() error {
		return func() error {
			if now := w.counter("client", cluster+`\.membership_healthy`); now != n {
				return fmt.Errorf("%d endpoints are healthy, want %d", now, n)
			}
			return nil
		}
	}
	w.apply(healthPolicy("interval: 100ms, noTrafficInterval: 100ms, timeout: 1m, http: {path: /health}"))
	w.eventually("checks succeed", func() error {
		if w.counter("client", cluster+`\.health_check\.success`) == 0 {
			return fmt.Errorf("no check has succeeded")
		}
		return healthy(2)()
	})
	ill.Store(true)
	w.eventually("the failing endpoint is unhealthy", healthy(1))
	for range 20 {
		if err := gets(url, 200, "web-2"); err != nil {
			t.Error(err)
		}
	}
	ill.Store(false)
	w.eventually("it is healthy again", healthy(2))
	w.apply("type: MeshTrafficPermission\nmesh: default\nname: denied\nspec: {rules: [{default: {deny: [{spiffeID: " +
		"{type: Exact, value: \"" + clientID + "\"}}]}}]}\n")
	w.eventually("a check without a permission fails", healthy(0))
}

// editHealthCheck edits the checks of an HTTP service, from none to others, which change its cluster.
func (w *world) editHealthCheck(url string) {
	checkers := []string{"http: {path: /%d}", "tcp: {}, http: {disabled: true, path: /%d}", "tcp: {disabled: true}, " +
		"http: {disabled: true, path: /%d}"}
	w.editUnder(traffic.Get(url), "client", "a MeshHealthCheck", clusterChanges, func(i int) string {
		return healthPolicy(fmt.Sprintf("interval: %dms, noTrafficInterval: %dms, timeout: 1m, unhealthyThreshold: "+
			"%d, healthyPanicThreshold: %d, "+checkers[i%len(checkers)], 100+i, 200+i, 3+i, 10+i, i))
	})
}

// TestAnEventLogInAMissingFolder: a proxy rejects a cluster whose event log it cannot open, and runs without the
// policy, which has the reason. A proxy that starts is ready. An edited policy has its effect.
func TestAnEventLogInAMissingFolder(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url, late := fmt.Sprintf("http://%s:10001/", w.address(3)), fmt.Sprintf("http://%s:10001/", w.address(5))
	w.eventually("a request passes", func() error { return get(url) })
	checks := func(folder string) string {
		return healthPolicy("interval: 100ms, noTrafficInterval: 100ms, eventLogPath: " + folder +
			"/checks.json, http: {path: /}")
	}
	status := func(rejected bool) func() error {
		return func() error {
			out, err := w.weft("get", "meshhealthcheck", "h", "-o", "yaml")
			says := strings.Contains(out, "RejectedByProxies") && strings.Contains(out, "without the policy") &&
				strings.Contains(out, "/no/such/folder/checks.json")
			if err == nil && says != rejected {
				err = errors.New(out)
			}
			return err
		}
	}
	w.apply(checks("/no/such/folder"))
	w.eventually("the policy has the reason", status(true))
	if out, err := w.weft("check"); !strings.Contains(out, "MeshHealthCheck default/h") {
		t.Errorf("no finding names the policy (%v):\n%s", err, out)
	}
	w.eventually("the client serves", func() error { return get(url) })
	w.proxy("default", "late", strings.ReplaceAll(caller("late", 5, "tags: {kuma.io/service: web}"),
		"kuma.io/workload: late", "kuma.io/workload: client"))
	w.eventually("a proxy that starts serves", func() error { return get(late) })
	folder := t.TempDir()
	w.apply(checks(folder))
	w.eventually("the log of an edited policy", func() error {
		log, err := os.ReadFile(filepath.Join(folder, "checks.json"))
		if err == nil && len(log) == 0 {
			err = errors.New("the log is empty")
		}
		return errors.Join(err, get(url), get(late))
	})
	w.eventually("no proxy rejects the policy", status(false))
}
