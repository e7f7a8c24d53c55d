package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// serveUntil answers like a demo service, but breaks as told; reached closes at the n-th request.
func serveUntil(t *testing.T, n int32, broken func(request int32) bool) (url string, reached chan struct{}) {
	t.Helper()
	reached = make(chan struct{})
	var count atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := count.Add(1)
		if i == n {
			close(reached)
		}
		if broken(i) {
			http.Error(w, "upstream connect error", http.StatusServiceUnavailable)
			return
		}
		Service("backend", "backend-1").ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, reached
}

func TestTrafficCountsEveryFailure(t *testing.T) {
	url, reached := serveUntil(t, 20, func(i int32) bool { return i == 3 || i == 7 })
	running := startTraffic(t.Context(), url, 500)
	<-reached
	count := running.finish()
	if count.sent < 20 || count.answered["backend-1"] != count.sent-2 {
		t.Errorf("%d sent, %d answered, want at least 20 and all but two", count.sent, count.answered["backend-1"])
	}
	_, err := count.verdict()
	if err == nil || !strings.Contains(err.Error(), "2 x 503 upstream connect error") {
		t.Errorf("the verdict is %v, want it to name both failures and their answer", err)
	}
}

func TestTrafficWithoutFailureHolds(t *testing.T) {
	url, reached := serveUntil(t, 10, func(int32) bool { return false })
	running := startTraffic(t.Context(), url, 500)
	<-reached
	if text, err := running.finish().verdict(); err != nil || !strings.Contains(text, "none failed") {
		t.Errorf("the verdict is %q, %v, want that none failed", text, err)
	}
}

func TestTrafficThatNeverRanProvesNothing(t *testing.T) {
	if text, err := (tally{}).verdict(); err == nil {
		t.Errorf("the verdict on no requests is %q, want an error", text)
	}
}

func TestTrafficCountsLostConnections(t *testing.T) {
	reached := make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(reached) })
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}))
	t.Cleanup(server.Close)
	running := startTraffic(t.Context(), server.URL, 500)
	<-reached
	if text, err := running.finish().verdict(); err == nil {
		t.Errorf("the verdict is %q, want an error", text)
	}
}
