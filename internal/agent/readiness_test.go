package agent

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/bubble"
)

// TestReadinessWaits: a probe that may wait succeeds when the proxy becomes ready, and fails after its time. A probe
// that may not wait fails at once.
func TestReadinessWaits(t *testing.T) {
	const halfSecond = time.Second / 2
	for name, c := range map[string]struct {
		path   string
		ready  time.Duration // until the proxy is ready
		status int
		took   time.Duration
	}{
		"it is ready":                   {"/ready", 0, http.StatusOK, 0},
		"it is not ready":               {"/ready", time.Second, http.StatusServiceUnavailable, 0},
		"it becomes ready":              {"/ready?wait=2500ms", time.Second, http.StatusOK, time.Second},
		"it becomes ready too late":     {"/ready?wait=500ms", time.Second, http.StatusServiceUnavailable, halfSecond},
		"the time is bounded":           {"/ready?wait=1h", time.Minute, http.StatusServiceUnavailable, maxReadyWait},
		"the time is negative":          {"/ready?wait=-1s", time.Second, http.StatusServiceUnavailable, 0},
		"the time is none":              {"/ready?wait=soon", time.Second, http.StatusServiceUnavailable, 0},
		"it is ready, and may be later": {"/ready?wait=2500ms", 0, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := &agent{ready: watch(false)}
				go func() {
					time.Sleep(c.ready)
					a.ready.store(true)
				}()
				synctest.Wait()
				began, response := time.Now(), httptest.NewRecorder()
				a.respondReady(response, httptest.NewRequest(http.MethodGet, c.path, nil))
				if took := time.Since(began); response.Code != c.status || took != c.took {
					t.Errorf("it got %d after %s, want %d after %s", response.Code, took, c.status, c.took)
				}
				time.Sleep(c.ready)
			})
		})
	}
}

// TestEarlyProbesAreServed: a probe that connects before the agent serves the port gets its response later.
func TestEarlyProbesAreServed(t *testing.T) {
	if none, err := listenReadiness(0); none != nil || err != nil {
		t.Fatalf("port 0 opens %v, %v", none, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	early, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	a := &agent{ready: watch(true), Config: Config{Log: slog.New(slog.DiscardHandler)}}
	var parts errgroup.Group
	a.serveReadiness(t.Context(), &parts, listener)
	if _, err := early.Write([]byte("GET /ready HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	status := make([]byte, len("HTTP/1.0 200"))
	if _, err := io.ReadFull(early, status); err != nil || string(status) != "HTTP/1.0 200" {
		t.Errorf("the probe got %q, %v", status, err)
	}
}
