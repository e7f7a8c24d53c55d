package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"weft/internal/pki"
	"weft/internal/testwait"
)

// recorder is an application of several instances that records each request by its path. The test sets its responses.
type recorder struct {
	mu       sync.Mutex
	executed map[string]int
	saw      map[string]http.Header
	respond  func(rw http.ResponseWriter, r *http.Request)
}

func newRecorder() *recorder {
	return &recorder{executed: map[string]int{}, saw: map[string]http.Header{}}
}

func (a *recorder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.executed[r.URL.Path]++
	a.saw[r.URL.Path] = r.Header.Clone()
	respond := a.respond
	a.mu.Unlock()
	respond(rw, r)
}

// responds sets the response of every instance.
func (a *recorder) responds(respond func(http.ResponseWriter, *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.respond = respond
}

// executions returns the number of executions of a request.
func (a *recorder) executions(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.executed[path]
}

func (a *recorder) headers(path string) http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.saw[path]
}

// runs starts an instance.
func (a *recorder) runs(w *world, host, port int) {
	w.t.Helper()
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: a}
	go server.Serve(w.listen(host, port))
	w.t.Cleanup(func() { server.Close() })
}

// denyingStreams starts an application that executes each request and then states, in HTTP/2, that it has not.
func (a *recorder) denyingStreams(w *world, host, port int) {
	w.t.Helper()
	l := w.listen(host, port)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go a.denyStreams(conn)
		}
	}()
}

func (a *recorder) denyStreams(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			framer.WritePing(true, frame.Data)
		case *http2.HeadersFrame:
			a.mu.Lock()
			a.executed["refused"]++
			a.mu.Unlock()
			framer.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
		}
	}
}

// ofProxies matches headers by which proxies instruct each other.
var ofProxies = regexp.MustCompile(`(?i)^x[-_](envoy|weft)[-_]`)

// steering returns the headers by which proxies instruct each other, except the time that a proxy measured.
func steering(headers ...http.Header) []string {
	var found []string
	for _, h := range headers {
		for name := range h {
			if h.Get(name) != "" && ofProxies.MatchString(name) &&
				!strings.EqualFold(name, "x-envoy-upstream-service-time") {
				found = append(found, name+": "+h.Get(name))
			}
		}
	}
	return found
}

// mostRepetitions is how often an application gets a request that it denies with REFUSED_STREAM, by which it states
// that it has not begun it: thrice at its proxy for each of the four attempts of the client's.
const mostRepetitions = 12

// With any response of an application, a POST is executed once, and no header between proxies reaches the caller. An
// application of HTTP/2 that denies a request which it has executed gets it again, a bounded number of times.
func TestHostileApplicationsRequestARetry(t *testing.T) {
	a := newAttack(t, "a hostile application asks proxies to repeat a POST")
	w := newWorld(t)
	app := newRecorder()
	inbounds, outbounds := "", ""
	protocols := []string{"http", "http2", "grpc", "tcp", "http2"}
	services := []string{"http", "http2", "grpc", "unread", "denying"}
	for i, name := range services {
		port := 18080
		if name == "denying" {
			port = 18081
		}
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: NET.HOST, protocol: %s, "+
			"tags: {kuma.io/service: %s}}", 20080+i, name, port, protocols[i], name)
		outbounds += fmt.Sprintf(
			"\n  - {address: NET.3, port: %d, backendRef: {kind: MeshService, name: %s, port: %d}}", 10001+i, name,
			20080+i)
	}
	// A TCP inbound of an HTTP port: no proxy at the server reads the application's responses.
	w.apply(secured + "---" + service("unread", "{port: 20083, targetPort: 20083, appProtocol: http}") +
		external("outside", "http", 80, "{address: NET.2, port: 18080}, {address: NET.4, port: 18080}", ""))
	for _, host := range []int{2, 4} {
		app.runs(w, host, 18080)
		app.denyingStreams(w, host, 18081)
		name := fmt.Sprintf("server-%d", host)
		w.proxy("default", name,
			strings.ReplaceAll("type: Dataplane\nmesh: default\nname: "+name+
				"\nnetworking:\n  address: NET.HOST\n  inbound:"+inbounds, "HOST", fmt.Sprint(host)))
	}
	w.proxy("default", "egress-1", egress("egress-1", 20))
	outbounds += "\n  - {address: NET.3, port: 10009, backendRef: {kind: MeshExternalService, name: outside, port: 80}}"
	w.proxy("default", "client", "type: Dataplane\nmesh: default\nname: client\nlabels: {kuma.io/workload: "+
		"client}\nnetworking:\n  address: NET.3\n  outbound:"+outbounds)

	app.responds(func(http.ResponseWriter, *http.Request) {})
	paths := map[string]string{"outside": fmt.Sprintf("http://%s:10009/", w.address(3))}
	for i, name := range services[:4] {
		paths[name] = fmt.Sprintf("http://%s:%d/", w.address(3), 10001+i)
	}
	for name, url := range paths {
		w.eventually(name+" is reached", func() error { return get(url) })
	}

	for form, respond := range responsesThatRequestARetry() {
		app.responds(respond)
		for name, url := range paths {
			path := "/" + name + "/" + strings.ReplaceAll(form, " ", "-")
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(url, "/")+path,
				strings.NewReader("once"))
			if name == "grpc" {
				request.Header.Set("content-type", "application/grpc")
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, form, err)
			}
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			found := steering(response.Header, response.Trailer)
			if name == "unread" {
				found = slices.DeleteFunc(found, func(h string) bool {
					return !strings.HasPrefix(h, "X-Weft-Unserved")
				})
			}
			switch n := app.executions(path); {
			case n != 1:
				a.fellTo("%s, %s: executed %d times", name, form, n)
			case len(found) > 0:
				a.fellTo("%s, %s: the caller gets %v", name, form, found)
			default:
				a.repelled()
			}
		}
	}

	url := fmt.Sprintf("http://%s:10005/", w.address(3))
	w.eventually("the application that denies streams is reached", func() error {
		response, err := client.Post(url, "text/plain", nil)
		if err == nil {
			response.Body.Close()
		}
		if app.executions("refused") == 0 {
			return fmt.Errorf("not yet: %v", err)
		}
		return nil
	})
	before := app.executions("refused")
	response, err := client.Post(url, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if n := app.executions("refused") - before; n > mostRepetitions {
		a.fellTo("a stream that is denied after its execution: executed %d times, at most %d are decided", n,
			mostRepetitions)
	} else {
		a.repelled()
	}
}

// responsesThatRequestARetry are responses by which an application requests a retry of a request that it has executed.
func responsesThatRequestARetry() map[string]func(http.ResponseWriter, *http.Request) {
	all := map[string]func(http.ResponseWriter, *http.Request){
		"the connection breaks": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"the response breaks off": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Write([]byte("begun"))
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"in trailers": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Trailer", "x-weft-unserved")
			rw.Write([]byte("x"))
			rw.Header().Set("x-weft-unserved", "refused")
		},
	}
	for name, value := range map[string]string{
		"x-weft-unserved": "refused", "X-Weft-Unserved": "reset", "x_weft_unserved": "refused",
		"x-weft-other":        "refused",
		"x-envoy-ratelimited": "true", "x-envoy-overloaded": "true", "x-envoy-immediate-health-check-fail": "true",
		"x-envoy-degraded": "true", "x-envoy-decorator-operation": "other", "x-envoy-upstream-canary": "true",
	} {
		for _, status := range []int{200, 503} {
			all[fmt.Sprintf("%s %s on %d", name, value, status)] = func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header()[name] = []string{value}
				rw.Header().Set("grpc-status", map[int]string{200: "0", 503: "14"}[status])
				rw.WriteHeader(status)
			}
		}
	}
	return all
}

// steers are request headers that would instruct a proxy which took its caller for a proxy.
var steers = map[string]string{
	"x-envoy-retry-on":      "5xx,gateway-error,retriable-4xx,reset,retriable-status-codes",
	"x-envoy-retry-grpc-on": "unavailable,internal",
	"x-envoy-max-retries":   "10", "x-envoy-retriable-status-codes": "503", "x-envoy-retriable-header-names": "server",
	"x-envoy-upstream-rq-timeout-ms": "1", "x-envoy-upstream-rq-per-try-timeout-ms": "1",
	"x-envoy-hedge-on-per-try-timeout": "true",
	"x-envoy-expected-rq-timeout-ms":   "1", "x-envoy-upstream-rq-timeout-alt-response": "true",
	"x-envoy-upstream-alt-stat-name": "other",
	"x-envoy-original-path":          "/other", "x-envoy-original-dst-host": "127.0.0.1:1",
	"x-envoy-force-trace":         "true",
	"x-envoy-decorator-operation": "other", "x-envoy-ip-tags": "inner", "x-envoy-internal": "true",
	"x-envoy-external-address": "10.0.0.1", "x-envoy-downstream-service-cluster": "admin",
	"x-envoy-downstream-service-node": "admin",
	"x-envoy-peer-metadata":           "x", "x-weft-unserved": "refused", "x_envoy_internal": "true",
	"x-envoy_internal":        "true",
	"connection":              "x-forwarded-client-cert",
	"x-forwarded-client-cert": forged, "x_forwarded_client_cert": forged, "x-forwarded_client-cert": forged,
}

const forged = "By=spiffe://forged;URI=spiffe://forged"

// passing are headers of applications, which are forwarded unchanged.
var passing = map[string]string{
	"x-forwarded-proto": "https", "x-forwarded-host": "shop.example", "x-forwarded-port": "8443",
	"x-request-id": "not-a-uuid",
	"forwarded":    "for=10.0.0.1;proto=https", "x-real-ip": "10.0.0.1", "traceparent": "00-1-1-01",
}

// No proxy obeys headers of a caller, inside the mesh or outside.
func TestHostileCallersSteerProxies(t *testing.T) {
	a := newAttack(t, "a hostile caller writes headers of proxies")
	w := newWorld(t)
	app := newRecorder()
	app.responds(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) })
	w.apply(withMTLS("ca-1", "PERMISSIVE") + "---" + allowing("spiffe://default/") + external("outside", "http", 80,
		"{address: NET.2, port: 18080}, {address: NET.4, port: 18080}", ""))
	ca := w.backendOf("default", "ca-1")
	for _, host := range []int{2, 4} {
		app.runs(w, host, 18080)
		w.proxy("default", fmt.Sprintf("web-%d", host), server(fmt.Sprintf("web-%d", host), "web", "http", host, 20080))
	}
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", `type: Dataplane
mesh: default
name: client
networking:
  address: NET.3
  inbound: [{port: 20080, servicePort: 18080, serviceAddress: NET.3, protocol: http, tags: {kuma.io/service: client}}]
  outbound: [{address: NET.3, port: 10001, tags: {kuma.io/service: web}}, {address: NET.3, port: 10002, backendRef: {kind: MeshExternalService, name: outside, port: 80}}]
`)
	inbound := w.address(2) + ":20080"
	callers := []struct {
		name, url string
		client    *http.Client
		identity  string // that the application receives
	}{
		{"an application of the mesh", fmt.Sprintf("http://%s:10001", w.address(3)), client,
			"URI=spiffe://default/client"},
		{"an application of the mesh, to the outside", fmt.Sprintf("http://%s:10002", w.address(3)), client, ""},
		{"a client without a certificate", "http://" + inbound, client, ""},
		{"a client with a certificate", "https://" + inbound, certified(t, ca, "spiffe://default/client"),
			"URI=spiffe://default/client"},
	}
	for _, c := range callers {
		w.eventually(c.name+" is served", func() error {
			response, err := c.client.Post(c.url+"/first", "text/plain", nil)
			if err != nil {
				return err
			}
			response.Body.Close()
			if app.executions("/first") == 0 {
				return fmt.Errorf("%s", response.Status)
			}
			app.mu.Lock()
			defer app.mu.Unlock()
			delete(app.executed, "/first")
			return nil
		})
	}

	for i, c := range callers {
		for j, forwardedFor := range []string{"", "10.0.0.1", "127.0.0.1", "::1", "203.0.113.7, 192.168.0.1"} {
			path := fmt.Sprintf("/%d-%d", i, j)
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+path,
				strings.NewReader("once"))
			for _, headers := range []map[string]string{steers, passing} {
				for name, value := range headers {
					request.Header[name] = []string{value}
				}
			}
			if forwardedFor != "" {
				request.Header.Set("x-forwarded-for", forwardedFor)
			}
			response, err := c.client.Do(request)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			response.Body.Close()
			if err := untouched(app, path, forwardedFor, c.identity); err != nil {
				a.fellTo("%s, x-forwarded-for %q, %s: %v", c.name, forwardedFor, response.Status, err)
			} else {
				a.repelled()
			}
		}
	}
}

// untouched returns an error unless a request was executed once, with the application's own headers and, of proxies'
// headers, only the caller's identity.
func untouched(app *recorder, path, forwardedFor, identity string) error {
	saw := app.headers(path)
	if n := app.executions(path); n != 1 {
		return fmt.Errorf("executed %d times", n)
	}
	if found := steering(saw); len(found) > 0 {
		return fmt.Errorf("the application gets %v", found)
	}
	for name, values := range saw {
		text := strings.Join(values, ", ")
		isCert := strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "x-forwarded-client-cert")
		if isCert && (identity == "" || !strings.Contains(text, identity) || strings.Contains(text, "forged") ||
			strings.Contains(name, "_")) {
			return fmt.Errorf("the application is told %s: %s, want %q", name, text, identity)
		}
	}
	if identity != "" && saw.Get("x-forwarded-client-cert") == "" {
		return fmt.Errorf("the application is not told the caller's identity, want %s", identity)
	}
	want := maps.Clone(passing)
	want["x-forwarded-for"] = forwardedFor
	for name, value := range want {
		if got := strings.Join(saw.Values(name), ", "); got != value {
			return fmt.Errorf("the application gets %s: %s, want %q", name, got, value)
		}
	}
	return nil
}

// certified returns a client with a certificate of a CA.
func certified(t *testing.T, ca *pki.CA, id string) *http.Client {
	t.Helper()
	return &http.Client{Timeout: testwait.Timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{*certificate(t, ca, id)},
	}}}
}
