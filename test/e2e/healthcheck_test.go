package e2e

import (
	"fmt"
	"net/http"
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
	w.apply(healthPolicy("interval: 100ms, noTrafficInterval: 100ms, timeout: 1s, http: {path: /health}"))
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
		return healthPolicy(fmt.Sprintf("interval: %dms, noTrafficInterval: %dms, timeout: 2s, unhealthyThreshold: "+
			"%d, healthyPanicThreshold: %d, "+checkers[i%len(checkers)], 100+i, 200+i, 3+i, 10+i, i))
	})
}
