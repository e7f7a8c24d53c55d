package envoy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"weft/internal/envoy/envoytest"
	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/process"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testnet"
	"weft/internal/testwait"
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
	p, err := process.Start(t.TempDir(), "envoy", append([]string{envoytest.Binary(t), "-c", bootstrap,
		"--disable-hot-restart", "--concurrency", "1", "-l", "info"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Await(testwait.Timeout, "Envoy serves", func(context.Context) error {
		log, err := os.ReadFile(p.Log)
		if err == nil && !bytes.Contains(log, []byte("starting main dispatch loop")) {
			err = errors.New("it starts")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { testnet.Main(m) }

// freePort returns an unused port.
func freePort(t *testing.T) uint32 {
	t.Helper()
	return uint32(testnet.Port(t))
}

// inboundTo returns a listener in front of an application that allows the clients of the given rules.
func inboundTo(t *testing.T, application net.Addr, protocol kind.Protocol, allow ...match.Rule) *proxy.InboundListener {
	t.Helper()
	return &proxy.InboundListener{
		Mesh: "default", Address: "127.0.0.1", Port: freePort(t), Name: "main", Protocol: protocol, Bind: true,
		ServiceAddress: "127.0.0.1", ServicePort: uint32(application.(*net.TCPAddr).Port),
		TrustDomains: []string{domainEast, domainWest},
		Permissions:  &match.Permissions{Allow: allow},
	}
}

// inboundResources returns a listener with its mesh's resources, and with the DNS SANs of evicted instances.
func inboundResources(l *proxy.InboundListener, evicted ...string) []*xds.Resource {
	return append(inboundOf(l, true), EvictionFilters(l.Mesh, evicted)...)
}

func address(l *proxy.InboundListener) string { return fmt.Sprintf("127.0.0.1:%d", l.Port) }

// twoServers starts a client and two servers, whose applications are the handlers. It returns the URL at which the
// client's application reaches them. The destination may have further endpoints.
func twoServers(t *testing.T, first, second http.HandlerFunc, more ...service.Endpoint) (url string,
	firstApp *httptest.Server) {
	t.Helper()
	east := newAuthority(t, domainEast)
	destination := &service.Destination{
		Key:      service.DestinationKey{Mesh: "default", Zone: "east", Service: "server", Port: 80},
		Protocol: kind.HTTP, Servers: service.Servers{Identities: []string{serverID}},
	}
	endpoints := &service.Endpoints{Destination: destination.Key, Endpoints: more}
	outbound := &proxy.ExplicitOutbound{
		Address: "127.0.0.1", Port: freePort(t), Destination: destination.Key, Protocol: kind.HTTP,
	}
	resources := []*xds.Resource{
		trust(east), certificateSecret(t, east.certificate(t, serverID)),
		Clusters(destination, true, identity.Source{})[0], Route(service.RouteTo(destination)),
		ExplicitListener(outbound, service.RouteTo(destination)),
	}
	firstApp = httptest.NewServer(first)
	t.Cleanup(firstApp.Close)
	secondApp := httptest.NewServer(second)
	t.Cleanup(secondApp.Close)
	for i, app := range []*httptest.Server{firstApp, secondApp} {
		in := inboundTo(t, app.Listener.Addr(), kind.HTTP,
			match.Rule{Origin: "all of east", IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/"}})
		in.Name = fmt.Sprintf("app-%d", i)
		endpoints.Endpoints = append(endpoints.Endpoints, service.Endpoint{Address: in.Address, Port: in.Port})
		resources = append(resources, inboundResources(in)...)
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

// An application that does not run has seen nothing: a request of any method goes to the other endpoint.
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

// A killed proxy's endpoint stays in the list for a while; no request is lost to it.
func TestNothingIsLostToAnEndpointThatIsGone(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	url, _ := twoServers(t, ok, ok, service.Endpoint{Address: "127.0.0.1", Port: freePort(t)})
	for range 20 {
		for _, method := range []string{"GET", "POST"} {
			if got := do(t, method, url).StatusCode; got != 200 {
				t.Fatalf("%s answered %d while two of three endpoints were up", method, got)
			}
		}
	}
}

// An application that dies while it handles a request may have acted on it: GET goes to the other endpoint, POST does
// not, and the response contains the reason.
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

// A 503 of the application itself is forwarded and not retried.
func TestAnApplicationsOwnResponseIsFinal(t *testing.T) {
	var requests atomic.Int32
	busy := func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	url, _ := twoServers(t, busy, busy)
	if got := do(t, "GET", url).StatusCode; got != 503 || requests.Load() != 1 {
		t.Errorf("status %d after %d questions, want 503 after 1", got, requests.Load())
	}
}

// The capture listeners close a connection that was not redirected. Forwarding would send it back to them without end.
func TestCaptureClosesConnectionsToItself(t *testing.T) {
	capture := &proxy.Capture{InboundPort: freePort(t), OutboundPort: freePort(t), IPFamilies: "IPv4"}
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

// caller is a client certificate and the expected result of a request with it.
type caller struct {
	certificate tls.Certificate
	allowed     bool
}

func callers(t *testing.T, east, west *authority) map[string]caller {
	westClient := "spiffe://" + domainWest + "/workload/client"
	return map[string]caller{
		"named by a rule":                {east.certificate(t, clientID), true},
		"named by no rule":               {east.certificate(t, clientID+"-2"), false},
		"named by a segment":             {east.certificate(t, segmentID), true},
		"in a further segment":           {east.certificate(t, segmentID+"/1"), true},
		"within the segment":             {east.certificate(t, segmentID+"-admin"), false},
		"of another trust domain":        {west.certificate(t, westClient), true},
		"signed by another domain's CA":  {west.certificate(t, clientID), false},
		"with a name of a second domain": {west.certificate(t, "spiffe://"+domainWest+"/workload/x", clientID), false},
		"with a name of an untrusted one": {west.certificate(t, "spiffe://"+domainWest+"/workload/x",
			"spiffe://untrusted/workload/client"), false},
		"signed by an unknown CA": {newAuthority(t, domainEast).certificate(t, clientID), false},
		"without a name":          {east.certificate(t), false},
		"of an evicted instance":  {east.instance(t, evictedName, clientID), false},
		"of another instance":     {east.instance(t, "client-2.default.east.dataplane.mesh.local", clientID), true},
	}
}

// segmentID is the value of a rule's prefix that ends with a segment.
const segmentID = "spiffe://" + domainEast + "/workload/web"

func rules() []match.Rule {
	return []match.Rule{
		{Origin: "a segment", IDPattern: kind.IDPattern{Exact: segmentID, Prefix: segmentID + "/"}},
		{Origin: "east", IDPattern: kind.IDPattern{Exact: clientID}},
		{Origin: "west", IDPattern: kind.IDPattern{Exact: "spiffe://" + domainWest + "/workload/client"}},
		{Origin: "untrusted", IDPattern: kind.IDPattern{Exact: "spiffe://untrusted/workload/client"}},
	}
}

func TestWhoGetsInHTTP(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("x-forwarded-client-cert"))
	}))
	t.Cleanup(app.Close)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP, rules()...)
	startEnvoy(t, append(inboundResources(in, evictedName), trust(east, west),
		certificateSecret(t, east.certificate(t, serverID)))...)
	for name, caller := range callers(t, east, west) {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: presenting(caller.certificate)}}
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

// No byte of a denied caller reaches the application.
func TestWhoGetsInTCP(t *testing.T) {
	app, heard := listener(t)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	in := inboundTo(t, app, kind.TCP, rules()...)
	startEnvoy(t, append(inboundResources(in, evictedName), trust(east, west),
		certificateSecret(t, east.certificate(t, serverID)))...)
	for name, caller := range callers(t, east, west) {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", address(in), presenting(caller.certificate))
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

// A server's SPIFFE ID is trusted only if the CA of its own trust domain signed it, whatever else the certificate
// contains.
func TestWhichServerIsTrusted(t *testing.T) {
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	for name, c := range map[string]struct {
		server  tls.Certificate
		trusted bool
	}{
		"its own":                       {east.certificate(t, serverID), true},
		"another workload":              {east.certificate(t, clientID), false},
		"signed by another domain's CA": {west.certificate(t, serverID), false},
		"another domain's with a second ID": {west.certificate(t, "spiffe://"+domainWest+"/workload/x", serverID),
			false},
		"another domain's after a stolen ID": {west.certificate(t, serverID, "spiffe://"+domainWest+"/workload/x"),
			false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := requestOf(t, service.Servers{Identities: []string{serverID}, TrustDomain: domainEast}, c.server,
				append(DomainBundles(trustOf(east, west)), trust(east, west),
					certificateSecret(t, east.certificate(t, clientID))))
			if got := response.StatusCode == 200; got != c.trusted {
				t.Errorf("trusted: %v (%s), want %v", got, response.Status, c.trusted)
			}
		})
	}
}

// TestServersOfAnUnknownTrustDomain: an Envoy that starts while no roots of a service's trust domain are known serves
// all else, and accepts no server of that service, also with a certificate of a CA that the mesh trusts.
func TestServersOfAnUnknownTrustDomain(t *testing.T) {
	east, west, north := newAuthority(t, domainEast), newAuthority(t, domainWest), newAuthority(t, "north")
	const far = "spiffe://north/workload/server"
	unknown := service.Servers{Identities: []string{far}, TrustDomain: "north", Untrusted: true}
	for name, c := range map[string]struct {
		server  tls.Certificate
		servers service.Servers
		trusted bool
	}{
		"another service": {east.certificate(t, serverID),
			service.Servers{Identities: []string{serverID}, TrustDomain: domainEast}, true},
		"its own":                {north.certificate(t, far), unknown, false},
		"signed by a trusted CA": {east.certificate(t, serverID, far), unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := requestOf(t, c.servers, c.server, append(DomainBundles(trustOf(east, west)), trust(east, west),
				certificateSecret(t, east.certificate(t, clientID))))
			if got := response.StatusCode == 200; got != c.trusted {
				t.Errorf("trusted: %v (%s), want %v", got, response.Status, c.trusted)
			}
		})
	}
}

// TestNoServerIsTrustedWithoutRoots: the bundle of a mesh that trusts no root is accepted by Envoy, and accepts no
// server.
func TestNoServerIsTrustedWithoutRoots(t *testing.T) {
	t.Parallel()
	east := newAuthority(t, domainEast)
	response := requestOf(t, service.Servers{Identities: []string{serverID}}, east.certificate(t, serverID),
		[]*xds.Resource{TrustBundle(&identity.Trust{}), certificateSecret(t, east.certificate(t, clientID))})
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the response is %s, want 503", response.Status)
	}
}

// requestOf returns the response to a request through an Envoy with secrets, to a server with a certificate.
func requestOf(t *testing.T, servers service.Servers, presents tls.Certificate,
	secrets []*xds.Resource) *http.Response {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{presents}, ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true // as an inbound does
	server.StartTLS()
	t.Cleanup(server.Close)
	destination := &service.Destination{
		Key:      service.DestinationKey{Mesh: "default", Zone: "east", Service: "server", Port: 80},
		Protocol: kind.HTTP, Servers: servers,
	}
	outbound := &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(t), Destination: destination.Key,
		Protocol: kind.HTTP}
	at := server.Listener.Addr().(*net.TCPAddr)
	endpoints := &service.Endpoints{Destination: destination.Key,
		Endpoints: []service.Endpoint{{Address: "127.0.0.1", Port: uint32(at.Port)}}}
	startEnvoy(t, append(secrets, Clusters(destination, true, identity.Source{})[0],
		Route(service.RouteTo(destination)), ExplicitListener(outbound, service.RouteTo(destination)),
		Assignment(endpoints))...)
	return do(t, "GET", fmt.Sprintf("http://127.0.0.1:%d/", outbound.Port))
}

// listener returns an application that echoes each byte, and a count of its bytes.
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

// presenting returns a configuration that presents a certificate and accepts any server.
func presenting(certificate tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}
}

// dialTo dials one address, whatever address is requested.
type dialTo struct{ address string }

func (d *dialTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, d.address)
}
