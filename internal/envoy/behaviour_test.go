package envoy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/internal/xds"
	"weft/kind"
)

const (
	domainEast  = "default.east.mesh.local"
	domainWest  = "default.west.mesh.local"
	clientID    = "spiffe://" + domainEast + "/workload/client"
	evictedName = "client-1.default.east.dataplane.mesh.local"
	serverID    = "spiffe://" + domainEast + "/workload/server"
)

// startEnvoy runs a real Envoy with the resources and returns once its listeners accept.
func startEnvoy(t *testing.T, resources ...*xds.Resource) {
	t.Helper()
	runEnvoy(t, writeBootstrap(t, static(t, resources)))
}

func runEnvoy(t *testing.T, bootstrap string, flags ...string) {
	t.Helper()
	flags = append([]string{"-c", bootstrap, "--disable-hot-restart", "--concurrency", "1", "-l", "info"}, flags...)
	cmd := exec.CommandContext(t.Context(), envoyBinary(t), flags...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var seen strings.Builder
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		fmt.Fprintln(&seen, lines.Text())
		if strings.Contains(lines.Text(), "starting main dispatch loop") {
			go func() { _, _ = io.Copy(io.Discard, logs) }()
			return
		}
	}
	t.Fatalf("Envoy ended:\n%s", seen.String())
}

// freePort answers a port of 127.0.0.1 that nobody has.
func freePort(t *testing.T) uint32 {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, given := givenPorts.LoadOrStore(l.Addr().(*net.TCPAddr).Port, true); !given {
			return uint32(l.Addr().(*net.TCPAddr).Port)
		}
	}
}

// givenPorts are the ports that tests have, each once.
var givenPorts sync.Map

// inboundTo is a listener in front of an application, open to those whom the rules allow.
func inboundTo(t *testing.T, application net.Addr, protocol kind.Protocol, allow ...match.Rule) *graph.InboundListener {
	t.Helper()
	return &graph.InboundListener{
		Mesh: "default", Address: "127.0.0.1", Port: freePort(t), Name: "main", Protocol: protocol, Bind: true,
		ServiceAddress: "127.0.0.1", ServicePort: uint32(application.(*net.TCPAddr).Port),
		TrustDomains: []string{domainEast, domainWest},
		Permissions:  &match.Permissions{Allow: allow},
	}
}

// behind is a listener with what its mesh gives it, and the names of whom that has put out.
func behind(l *graph.InboundListener, evicted ...string) []*xds.Resource {
	return append(Inbound(l, true), Evicted(l.Mesh, evicted)...)
}

func address(l *graph.InboundListener) string { return fmt.Sprintf("127.0.0.1:%d", l.Port) }

// twoServers starts a client and two servers, whose applications are the handlers, and answers the URL at
// which the client's application reaches them. The destination may have further endpoints.
func twoServers(t *testing.T, first, second http.HandlerFunc, more ...graph.Endpoint) (url string, firstApp *httptest.Server) {
	t.Helper()
	east := newAuthority(t, domainEast)
	destination := &graph.Destination{
		Key:      graph.DestinationKey{Mesh: "default", Zone: "east", Service: "server", Port: 80},
		Protocol: kind.HTTP, Servers: graph.Servers{Identities: []string{serverID}},
	}
	endpoints := &graph.Endpoints{Destination: destination.Key, Endpoints: more}
	outbound := &graph.ExplicitOutbound{
		Address: "127.0.0.1", Port: freePort(t), Destination: destination.Key, Protocol: kind.HTTP,
	}
	resources := []*xds.Resource{
		trust(east), identity(t, east.leaf(t, serverID)),
		Clusters(destination, true, graph.Source{})[0], Route(destination), Explicit(outbound),
	}
	firstApp = httptest.NewServer(first)
	t.Cleanup(firstApp.Close)
	secondApp := httptest.NewServer(second)
	t.Cleanup(secondApp.Close)
	for i, app := range []*httptest.Server{firstApp, secondApp} {
		in := inboundTo(t, app.Listener.Addr(), kind.HTTP, match.Rule{Origin: "all of east", Prefix: "spiffe://" + domainEast + "/"})
		in.Name = fmt.Sprintf("app-%d", i)
		endpoints.Endpoints = append(endpoints.Endpoints, graph.Endpoint{Address: in.Address, Port: in.Port})
		resources = append(resources, behind(in)...)
	}
	startEnvoy(t, append(resources, Assignment(endpoints))...)
	return fmt.Sprintf("http://127.0.0.1:%d/", outbound.Port), firstApp
}

func do(t *testing.T, method, url string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response
}

// An application that is not there has seen nothing: whatever the method, the request goes to the other.
func TestNothingIsLostToAnApplicationThatIsGone(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	url, first := twoServers(t, ok, ok)
	first.Close()
	for range 20 {
		for _, method := range []string{"GET", "POST"} {
			if got := do(t, method, url).StatusCode; got != 200 {
				t.Fatalf("%s answered %d while one of two applications was up", method, got)
			}
		}
	}
}

// A proxy that was killed leaves its endpoint behind for a while; no request is lost to it.
func TestNothingIsLostToAnEndpointThatIsGone(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	url, _ := twoServers(t, ok, ok, graph.Endpoint{Address: "127.0.0.1", Port: freePort(t)})
	for range 20 {
		for _, method := range []string{"GET", "POST"} {
			if got := do(t, method, url).StatusCode; got != 200 {
				t.Fatalf("%s answered %d while two of three endpoints were up", method, got)
			}
		}
	}
}

// An application that dies with a request in its hands may have acted on it: GET goes to the other, POST
// does not, and the answer says what happened.
func TestOnlySafeRequestsAreRepeated(t *testing.T) {
	var posts atomic.Int32
	count := func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			posts.Add(1)
		}
	}
	die := func(w http.ResponseWriter, r *http.Request) {
		count(w, r)
		panic(http.ErrAbortHandler)
	}
	url, _ := twoServers(t, die, count)
	for range 10 {
		if got := do(t, "GET", url).StatusCode; got != 200 {
			t.Fatalf("GET answered %d while one of two applications was well", got)
		}
	}
	var failed int
	for range 10 {
		response := do(t, "POST", url)
		if response.StatusCode == 200 {
			continue
		}
		failed++
		if got := response.Header.Get(unservedHeader); got != "" {
			t.Errorf("%s: %s reaches the caller", unservedHeader, got)
		}
	}
	if failed == 0 || posts.Load() != 10 {
		t.Errorf("of 10 POSTs %d failed and %d arrived; want each to arrive once", failed, posts.Load())
	}
}

// An application's own 503 is its answer: it is passed on and not asked again.
func TestAnApplicationsOwnAnswerIsFinal(t *testing.T) {
	var asked atomic.Int32
	busy := func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	url, _ := twoServers(t, busy, busy)
	if got := do(t, "GET", url).StatusCode; got != 503 || asked.Load() != 1 {
		t.Errorf("status %d after %d questions, want 503 after 1", got, asked.Load())
	}
}

// What nobody redirected ends at the capture listeners, rather than being sent back to them for ever.
func TestCaptureRefusesWhatIsSentToItself(t *testing.T) {
	capture := &graph.Capture{InboundPort: freePort(t), OutboundPort: freePort(t), IPFamilies: "IPv4"}
	startEnvoy(t, Capture(capture)...)
	for _, port := range []uint32{capture.InboundPort, capture.OutboundPort} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("port %d: %q, %v; want the connection closed without a word", port, rest, err)
		}
		conn.Close()
	}
}

// caller is a certificate that a server is shown, with what becomes of its owner.
type caller struct {
	leaf    tls.Certificate
	allowed bool
}

func callers(t *testing.T, east, west *authority) map[string]caller {
	westClient := "spiffe://" + domainWest + "/workload/client"
	return map[string]caller{
		"named by a rule":                  {east.leaf(t, clientID), true},
		"named by no rule":                 {east.leaf(t, clientID+"-2"), false},
		"of another trust domain":          {west.leaf(t, westClient), true},
		"signed by another domain's CA":    {west.leaf(t, clientID), false},
		"with a name of a second domain":   {west.leaf(t, "spiffe://"+domainWest+"/workload/x", clientID), false},
		"with a name of an unbelieved one": {west.leaf(t, "spiffe://"+domainWest+"/workload/x", "spiffe://elsewhere/workload/client"), false},
		"that a CA of nobody has signed":   {newAuthority(t, domainEast).leaf(t, clientID), false},
		"without a name":                   {east.leaf(t), false},
		"of an evicted instance":           {east.instance(t, evictedName, clientID), false},
		"of another instance":              {east.instance(t, "client-2.default.east.dataplane.mesh.local", clientID), true},
	}
}

func rules() []match.Rule {
	return []match.Rule{
		{Origin: "east", Exact: clientID},
		{Origin: "west", Exact: "spiffe://" + domainWest + "/workload/client"},
		{Origin: "unbelieved", Exact: "spiffe://elsewhere/workload/client"},
	}
}

func TestWhoGetsInHTTP(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("x-forwarded-client-cert"))
	}))
	t.Cleanup(app.Close)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP, rules()...)
	startEnvoy(t, append(behind(in, evictedName), trust(east, west), identity(t, east.leaf(t, serverID)))...)
	for name, caller := range callers(t, east, west) {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: presenting(caller.leaf)}}
			request, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+address(in), nil)
			request.Header.Set("x-forwarded-client-cert", "URI=spiffe://forged")
			response, err := client.Do(request)
			got := err == nil && response.StatusCode == 200
			if got != caller.allowed {
				t.Fatalf("allowed: %v, want %v (%v, %v)", got, caller.allowed, response, err)
			}
			if !got {
				return
			}
			body, _ := io.ReadAll(response.Body)
			if strings.Contains(string(body), "forged") || !strings.Contains(string(body), "URI=spiffe://") {
				t.Errorf("the application is told that the caller is %q", body)
			}
		})
	}
}

// Nothing that a denied caller sends gets to the application of a server.
func TestWhoGetsInTCP(t *testing.T) {
	app, heard := listener(t)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	in := inboundTo(t, app, kind.TCP, rules()...)
	startEnvoy(t, append(behind(in, evictedName), trust(east, west), identity(t, east.leaf(t, serverID)))...)
	for name, caller := range callers(t, east, west) {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", address(in), presenting(caller.leaf))
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, "x")
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			if got := err == nil; got != caller.allowed {
				t.Errorf("was answered: %v (%v), want %v", got, err, caller.allowed)
			}
			if got := heard.Swap(0) > 0; got != caller.allowed {
				t.Errorf("was heard: %v, want %v", got, caller.allowed)
			}
		})
	}
}

// A server is taken under a name only by the CA of the name's own trust domain, whatever else stands in
// its certificate.
func TestWhichServerIsBelieved(t *testing.T) {
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	for name, c := range map[string]struct {
		server   tls.Certificate
		believed bool
	}{
		"its own":                             {east.leaf(t, serverID), true},
		"another workload":                    {east.leaf(t, clientID), false},
		"signed by another domain's CA":       {west.leaf(t, serverID), false},
		"another domain's with a second ID":   {west.leaf(t, "spiffe://"+domainWest+"/workload/x", serverID), false},
		"another domain's behind a stolen ID": {west.leaf(t, serverID, "spiffe://"+domainWest+"/workload/x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{c.server}, ClientAuth: tls.RequireAnyClientCert}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.EnableHTTP2 = true // as an inbound does
			server.StartTLS()
			t.Cleanup(server.Close)
			destination := &graph.Destination{
				Key:      graph.DestinationKey{Mesh: "default", Zone: "east", Service: "server", Port: 80},
				Protocol: kind.HTTP, Servers: graph.Servers{Identities: []string{serverID}, TrustDomain: domainEast},
			}
			outbound := &graph.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(t), Destination: destination.Key, Protocol: kind.HTTP}
			at := server.Listener.Addr().(*net.TCPAddr)
			endpoints := &graph.Endpoints{Destination: destination.Key, Endpoints: []graph.Endpoint{{Address: "127.0.0.1", Port: uint32(at.Port)}}}
			resources := append(DomainBundles(trustOf(east, west)), trust(east, west), identity(t, east.leaf(t, clientID)),
				Clusters(destination, true, graph.Source{})[0], Route(destination), Explicit(outbound), Assignment(endpoints))
			startEnvoy(t, resources...)
			response := do(t, "GET", fmt.Sprintf("http://127.0.0.1:%d/", outbound.Port))
			if got := response.StatusCode == 200; got != c.believed {
				t.Errorf("believed: %v (%s), want %v", got, response.Status, c.believed)
			}
		})
	}
}

// listener is an application that answers each byte with the same, and counts them.
func listener(t *testing.T) (net.Addr, *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heard := &atomic.Int32{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go echo(conn, heard)
		}
	}()
	return l.Addr(), heard
}

func echo(conn net.Conn, heard *atomic.Int32) {
	defer conn.Close()
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		heard.Add(1)
		_, _ = conn.Write(b)
	}
}

// presenting shows a certificate and believes any server.
func presenting(leaf tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{leaf}, InsecureSkipVerify: true}
}

// dialTo goes to one address, whatever it is asked for.
type dialTo struct{ address string }

func (d *dialTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, d.address)
}
