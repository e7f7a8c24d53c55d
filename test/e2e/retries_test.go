package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// retryPolicy is a MeshRetry of the client with a conf about every destination.
func retryPolicy(conf string) string {
	return fmt.Sprintf("type: MeshRetry\nmesh: default\nname: r\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// failing is an application that fails as each request asks for, and counts the attempts of each.
type failing struct {
	mu       sync.Mutex
	attempts map[string][]time.Time // by the header x-id
}

func (f *failing) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("x-id")
	f.mu.Lock()
	f.attempts[id] = append(f.attempts[id], time.Now())
	f.mu.Unlock()
	for _, header := range r.Header.Values("x-answer") {
		name, value, _ := strings.Cut(header, "=")
		rw.Header().Set(name, value)
	}
	switch status := r.Header.Get("x-status"); status {
	case "":
	case "none":
		panic(http.ErrAbortHandler)
	case "none-yet":
		<-r.Context().Done()
	default:
		code, _ := strconv.Atoi(status)
		rw.WriteHeader(code)
	}
}

// failedRequest is a request that fails, and what is wanted of its attempts.
type failedRequest struct {
	port     int
	method   string
	headers  string        // separated by spaces: NAME:VALUE
	attempts int           // wanted
	wait     time.Duration // between the first attempt and the last one, at least
}

// send sends the request, and requires the wanted attempts.
func (f *failing) send(w *world, client *http.Client, request failedRequest) error {
	id := fmt.Sprint(time.Now().UnixNano())
	r, err := http.NewRequestWithContext(context.Background(), request.method,
		fmt.Sprintf("http://%s:%d/", w.address(3), request.port), nil)
	if err != nil {
		return err
	}
	r.Header.Set("x-id", id)
	for header := range strings.FieldsSeq(request.headers) {
		name, value, _ := strings.Cut(header, ":")
		r.Header.Add(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	times := f.attempts[id]
	if len(times) != request.attempts {
		return fmt.Errorf("%s at port %d with %s had %d attempts and the status %s, want %d attempts", request.method,
			request.port, request.headers, len(times), response.Status, request.attempts)
	}
	if waited := times[len(times)-1].Sub(times[0]); waited < request.wait {
		return fmt.Errorf("the attempts took %s, want %s at least", waited, request.wait)
	}
	return nil
}

// TestRetriesHaveTheirEffect: each field of a MeshRetry does to traffic what it says, in one pair of Envoys.
func TestRetriesHaveTheirEffect(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	app := &failing{attempts: map[string][]time.Time{}}
	w.service(2, 18080, "web-1").Handler = app
	w.proxy("default", "web-1", strings.NewReplacer("protocol: tcp", "protocol: grpc", "service: tcp", "service: grpc",
		"servicePort: 18081", "servicePort: 18080").Replace(threeProtocols("web-1", "NET.2")))
	w.proxy("default", "client", strings.ReplaceAll(everyCaller, "service: tcp", "service: grpc"))
	const http1, http2, grpc = 10001, 10002, 10003
	w.eventually("a request passes", func() error { return get(fmt.Sprintf("http://%s:%d/", w.address(3), http1)) })
	prior := &http.Protocols{}
	prior.SetUnencryptedHTTP2(true)
	clients := map[int]*http.Client{http1: client, http2: {Timeout: testwait.Timeout,
		Transport: &http.Transport{Protocols: prior}}}
	clients[grpc] = clients[http2]
	calls := func(requests ...failedRequest) func() error {
		return func() error {
			var failed []error
			for _, r := range requests {
				failed = append(failed, app.send(w, clients[r.port], r))
			}
			return errors.Join(failed...)
		}
	}
	w.eventually("the defaults", calls(
		failedRequest{http1, "GET", "x-status:503", 1, 0},
		failedRequest{http1, "GET", "x-status:none", 4, 0},
		failedRequest{http1, "POST", "x-status:none", 1, 0},
		failedRequest{grpc, "POST", "content-type:application/grpc x-answer:grpc-status=14", 1, 0},
	))
	for _, c := range []struct {
		field, conf string
		effect      func() error
	}{
		{"numRetries", "http: {numRetries: 2, retryOn: [5xx]}", calls(
			failedRequest{http1, "GET", "x-status:503", 3, 0}, failedRequest{http1, "POST", "x-status:500", 3, 0},
			failedRequest{http2, "GET", "x-status:503", 3, 0})},
		{"numRetries of 0", "http: {numRetries: 0}", calls(failedRequest{http1, "GET", "x-status:none", 1, 0})},
		{"a status code", `http: {retryOn: ["503"]}`, calls(failedRequest{http1, "GET", "x-status:503", 4, 0},
			failedRequest{http1, "GET", "x-status:500", 1, 0}, failedRequest{http1, "GET", "x-status:none", 4, 0})},
		{"GatewayError", "http: {retryOn: [GatewayError]}", calls(failedRequest{http1, "GET", "x-status:502", 4, 0},
			failedRequest{http1, "GET", "x-status:500", 1, 0})},
		{"Retriable4xx", "http: {retryOn: [Retriable4xx]}", calls(failedRequest{http1, "GET", "x-status:409", 4, 0},
			failedRequest{http1, "GET", "x-status:404", 1, 0})},
		{"a method", "http: {retryOn: [5xx, HttpMethodGet, HttpMethodPut]}", calls(
			failedRequest{http1, "GET", "x-status:503", 4, 0}, failedRequest{http1, "PUT", "x-status:503", 4, 0},
			failedRequest{http1, "POST", "x-status:503", 1, 0}, failedRequest{http1, "HEAD", "x-status:none", 4, 0})},
		{"retriableResponseHeaders", `http: {retriableResponseHeaders: [{name: x-again, value: "yes"}]}`, calls(
			failedRequest{http1, "POST", "x-answer:x-again=yes", 4, 0},
			failedRequest{http1, "POST", "x-answer:x-again=no", 1, 0})},
		{"retriableResponseHeaders beside retryOn",
			`http: {retryOn: ["503"], retriableResponseHeaders: [{name: x-again, type: RegularExpression, ` +
				`value: "y[a-z]{100}"}]}`,
			calls(failedRequest{http1, "GET", "x-answer:x-again=y" + strings.Repeat("e", 100), 4, 0})},
		{"retriableRequestHeaders", "http: {retryOn: [5xx], retriableRequestHeaders: [{name: x-try, type: Present}]}",
			calls(failedRequest{http1, "POST", "x-status:503 x-try:1", 4, 0},
				failedRequest{http1, "POST", "x-status:503", 1, 0},
				failedRequest{http1, "GET", "x-status:none", 1, 0})},
		{"retriableRequestHeaders and a method",
			"http: {retryOn: [5xx, HttpMethodGet], retriableRequestHeaders: [{name: x-once, type: Absent}]}",
			calls(failedRequest{http1, "GET", "x-status:503", 4, 0},
				failedRequest{http1, "GET", "x-status:503 x-once:1", 1, 0},
				failedRequest{http1, "POST", "x-status:503", 1, 0})},
		{"perTryTimeout", "http: {numRetries: 1, perTryTimeout: 300ms, retryOn: [GatewayError]}", calls(
			failedRequest{http1, "GET", "x-status:none-yet", 2, 300 * time.Millisecond})},
		{"backOff", "http: {retryOn: [5xx], backOff: {baseInterval: 2s, maxInterval: 2s}}", calls(
			failedRequest{http1, "GET", "x-status:503", 4, 1200 * time.Millisecond})},
		{"rateLimitedBackOff", "http: {numRetries: 1, retryOn: [5xx], rateLimitedBackOff: {resetHeaders: [{name: " +
			"retry-after, format: Seconds}]}}", calls(
			failedRequest{http1, "GET", "x-status:503 x-answer:retry-after=1", 2, time.Second})},
		{"statuses of gRPC", "grpc: {numRetries: 2, retryOn: [Canceled]}", calls(
			failedRequest{grpc, "POST", "content-type:application/grpc x-answer:grpc-status=1", 3, 0},
			failedRequest{grpc, "POST", "content-type:application/grpc x-answer:grpc-status=14", 1, 0})},
	} {
		w.apply(retryPolicy(c.conf))
		w.eventually("the effect of "+c.field, c.effect)
	}
	if out, err := w.weft("inspect", "policies", "--for", "client", "--to", "grpc"); err != nil ||
		!strings.Contains(out, "MeshRetry default/r to[0]") {
		t.Errorf("the effective value is not shown: %v\n%s", err, out)
	}
}

// editRetry edits the retries of an HTTP service, which change its route.
func (w *world) editRetry(url string) {
	const routes = `http\.[^:]*\.rds\.[^:]*\.config_reload`
	w.editUnder(traffic.Get(url), "client", "a MeshRetry", routes, func(i int) string {
		return retryPolicy(fmt.Sprintf("http: {numRetries: %d, perTryTimeout: %dm, retryOn: [5xx, HttpMethodGet, "+
			"%q], backOff: {baseInterval: %dms}, hostSelectionMaxAttempts: %d}", i, 5+i, fmt.Sprint(500+i), 10+i, 1+i))
	})
}
