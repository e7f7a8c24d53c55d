package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"weft/internal/agent/probecall"
	"weft/internal/agent/redirect"
	"weft/internal/testnet"
	"weft/internal/testwait"
)

// TestProbeProxy: a probe reaches the application as the kubelet would have sent it, and the kubelet gets the
// application's response.
func TestProbeProxy(t *testing.T) {
	application := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/ready", http.StatusFound)
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case r.URL.Path == "/slow":
			<-r.Context().Done()
		case r.URL.Path == "/ready" && r.Host == "web.example" && r.Header.Get("A") == "b" &&
			r.URL.RawQuery == "x=1" && r.Header.Get(probecall.HostHeader) == "":
			fmt.Fprint(w, "yes")
		case r.URL.Path == "/ready" && r.URL.RawQuery == "":
			fmt.Fprint(w, "moved here")
		default:
			http.Error(w, "no", http.StatusTeapot)
		}
	})
	plain, secured := httptest.NewServer(application), httptest.NewTLSServer(application)
	defer plain.Close()
	defer secured.Close()
	healthy := health.NewServer()
	healthy.SetServingStatus("bad", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, healthy)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	portOf := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	hostOf := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	web, tls := portOf(hostOf(plain.URL)), portOf(hostOf(secured.URL))
	grpcPort, closedPort := portOf(listener.Addr().String()), fmt.Sprint(testnet.Port(t))
	host := map[string]string{probecall.HostHeader: "web.example", "A": "b"}
	for _, test := range []struct {
		name, method, path string
		headers            map[string]string
		code               int
		undeclared         bool
	}{
		{name: "HTTP", path: "/" + web + "/ready?x=1", headers: host, code: 200},
		{name: "HTTP without its headers", path: "/" + web + "/ready?x=1", code: 418},
		{name: "HTTPS", path: "/" + tls + "/ready", headers: map[string]string{probecall.SchemeHeader: "HTTPS"},
			code: 200},
		{name: "a redirect", path: "/" + web + "/moved", code: 200},
		{name: "a redirect to another host", path: "/" + web + "/away", code: 302},
		{name: "a timeout", path: "/" + web + "/slow", code: 503},
		{name: "a closed port", path: "/" + closedPort + "/ready", code: 503},
		{name: "TCP", path: "/tcp/" + web, code: 200},
		{name: "TCP to a closed port", path: "/tcp/" + closedPort, code: 503},
		{name: "gRPC", path: "/grpc/" + grpcPort, code: 200},
		{name: "gRPC that does not serve", path: "/grpc/" + grpcPort,
			headers: map[string]string{"X-Kuma-Probes-GRPC-Service": "bad"}, code: 503},
		{name: "a path that the Pod does not have", path: "/" + web + "/ready", code: 404, undeclared: true},
		{name: "another method", method: "POST", path: "/" + web + "/ready?x=1", headers: host, code: 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil)
			if test.name != "a timeout" {
				request.Header.Set(probecall.TimeoutHeader, fmt.Sprint(testwait.Timeout.Seconds()))
			}
			for name, value := range test.headers {
				request.Header.Set(name, value)
			}
			proxy := ProbeProxy{Application: "127.0.0.1"}
			if !test.undeclared {
				proxy.Declared = []string{probecall.Declaration(test.path, request.Header)}
			}
			got := httptest.NewRecorder()
			newProber(t.Context(), proxy).ServeHTTP(got, request)
			if got.Code != test.code {
				t.Errorf("the kubelet gets %d %s, want %d", got.Code, got.Body, test.code)
			}
		})
	}
}

// TestProbeHeaders: the application gets the headers that the kubelet would have sent, and no others.
func TestProbeHeaders(t *testing.T) {
	var got http.Header
	var host string
	application := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, host = r.Header, r.Host
	}))
	defer application.Close()
	at, err := url.Parse(application.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		sent, want http.Header
		host       string
	}{
		"of the kubelet": {http.Header{"User-Agent": {"kube-probe/1.36"}, "Accept": {"*/*"}},
			http.Header{"User-Agent": {"kube-probe/1.36"}, "Accept": {"*/*"}}, at.Host},
		"empty ones, which the kubelet does not send": {http.Header{}, http.Header{}, at.Host},
		"several of a name": {http.Header{"A": {"b", "c"}, probecall.HostHeader: {"first.example", "second.example"}},
			http.Header{"A": {"b", "c"}}, "first.example"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/" + at.Port() + "/ready"
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			request.Header = test.sent
			request.Header.Set(probecall.TimeoutHeader, fmt.Sprint(testwait.Timeout.Seconds()))
			response := httptest.NewRecorder()
			newProber(t.Context(), ProbeProxy{Application: "127.0.0.1",
				Declared: []string{probecall.Declaration(path, request.Header)}}).ServeHTTP(response, request)
			if response.Code != http.StatusOK {
				t.Fatalf("the kubelet gets %d %s, want 200", response.Code, response.Body)
			}
			got.Del("Connection") // each probe has a connection of its own, as a probe of the kubelet has
			if !reflect.DeepEqual(got, test.want) || host != test.host {
				t.Errorf("the application gets %v with the host %s, want %v with %s", got, host, test.want, test.host)
			}
		})
	}
}

func TestTimeoutOfAProbe(t *testing.T) {
	for text, want := range map[string]time.Duration{"": time.Second, "0": time.Second, "x": time.Second,
		"5": 5 * time.Second, "60000": maxProbeTimeout} {
		if got := timeoutOfProbe(http.Header{probecall.TimeoutHeader: {text}}); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestProbesWaitForAnApplicationThatStarts: a probe waits for a port that has not been open yet, and for no port that
// was.
func TestProbesWaitForAnApplicationThatStarts(t *testing.T) {
	port := fmt.Sprint(testnet.Port(t))
	path := "/tcp/" + port
	headers := http.Header{probecall.TimeoutHeader: {fmt.Sprint(testwait.Timeout.Seconds())}}
	proxy := newProber(t.Context(), ProbeProxy{Application: "127.0.0.1",
		Declared: []string{probecall.Declaration(path, headers)}})
	proxy.period = 0
	var application net.Listener
	attempts := 0
	proxy.dialer.Control = func(string, string, syscall.RawConn) (err error) {
		if attempts++; attempts == 2 { // the first one has failed
			application, err = net.Listen("tcp", "127.0.0.1:"+port)
		}
		return err
	}
	probe := func() int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Header = headers
		response := httptest.NewRecorder()
		proxy.ServeHTTP(response, request)
		return response.Code
	}
	if code := probe(); code != http.StatusOK || attempts != 2 {
		t.Fatalf("the kubelet gets %d after %d attempts, want 200 after 2", code, attempts)
	}
	application.Close()
	if code := probe(); code != http.StatusServiceUnavailable || attempts != 3 {
		t.Errorf("after the port was closed, the kubelet gets %d after %d attempts, want 503 after 3", code, attempts)
	}
}

// TestProbesAreNotRedirected: a probe to the address of the Pod has the source whose connections are not redirected to
// the proxy, where they would need a certificate.
func TestProbesAreNotRedirected(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	of := ""
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			of = network.IP.String()
		}
	}
	if of == "" || runtime.GOOS != "linux" {
		t.Skip("needs an IPv4 address that is not a loopback address, on Linux")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(of, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := newProber(t.Context(), ProbeProxy{Application: of}).connects(t.Context(), port); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if from, _, _ := net.SplitHostPort(conn.RemoteAddr().String()); from != redirect.DeliverySource {
		t.Errorf("the probe comes from %s, want %s", from, redirect.DeliverySource)
	}
}

// TestStrangersAtTheProbePort: a client that is not the kubelet chooses neither the host, the headers nor the timeout
// of a probe, and many of them cause one call of the application at a time. The kubelet gets its result meanwhile.
func TestStrangersAtTheProbePort(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{})
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		fmt.Fprint(w, "yes")
	}))
	defer application.Close()
	at, err := url.Parse(application.URL)
	if err != nil {
		t.Fatal(err)
	}
	path := "/" + at.Port() + "/ready"
	declared := http.Header{probecall.HostHeader: {"web.example"}, "Authorization": {"probe"},
		probecall.TimeoutHeader: {fmt.Sprint(testwait.Timeout.Seconds())}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ProbeProxy{Application: "127.0.0.1", Declared: []string{probecall.Declaration(path, declared)}}.server(
		t.Context())
	defer server.Close()
	go server.Serve(listener)
	send := func(headers http.Header, body string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = headers
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer response.Body.Close()
		got, err := io.ReadAll(response.Body)
		if err != nil || !response.Close {
			t.Errorf("the connection stays open (%v)", err)
		}
		return response.StatusCode, string(got)
	}
	change := func(name, value string) http.Header {
		changed := declared.Clone()
		changed.Set(name, value)
		return changed
	}
	for name, headers := range map[string]http.Header{"no headers": {}, "a host": change(probecall.HostHeader, "admin"),
		"a timeout": change(probecall.TimeoutHeader, "600"), "a header": change("Cookie", "a=b"),
		"a scheme": change(probecall.SchemeHeader, "HTTPS")} {
		if code, _ := send(headers, ""); code != http.StatusNotFound {
			t.Errorf("a stranger with %s gets %d, want 404", name, code)
		}
	}
	if code, _ := send(declared, "body"); code != http.StatusNotFound {
		t.Errorf("a stranger with a body gets %d, want 404", code)
	}
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if code, body := send(declared, ""); code != http.StatusOK || body != "yes" {
				t.Errorf("a caller gets %d %q, want 200 yes", code, body)
			}
		})
	}
	testwait.UntilTrue(t, "a call", func() bool { return running.Load() > 0 })
	close(release)
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("30 callers cause %d calls at once, want 1", most.Load())
	}
}

// TestAProbeIsNotRepeatedAtOnce: a call after the end of another one gets its result for a while, so a client that
// calls without a pause opens few connections to the application.
func TestAProbeIsNotRepeatedAtOnce(t *testing.T) {
	calls := 0
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	defer application.Close()
	at, err := url.Parse(application.URL)
	if err != nil {
		t.Fatal(err)
	}
	path := "/" + at.Port() + "/ready"
	proxy := newProber(t.Context(), ProbeProxy{Application: "127.0.0.1", Declared: []string{path}})
	probe := func() {
		t.Helper()
		response := httptest.NewRecorder()
		proxy.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if response.Code != http.StatusOK {
			t.Errorf("a probe gets %d %s, want 200", response.Code, response.Body)
		}
	}
	proxy.period = testwait.Timeout
	probe()
	if probe(); calls != 1 {
		t.Errorf("two probes cause %d calls, want 1", calls)
	}
	proxy.period = 0
	if probe(); calls != 2 {
		t.Errorf("after the period there are %d calls, want 2", calls)
	}
}
