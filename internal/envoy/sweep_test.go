package envoy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/zoneroute"
	"weft/kind"
)

// sweep is a client's proxy with the proxies of its servers, which all are one Envoy, while requests are in flight on
// each connection between them.
type sweep struct {
	*lab
	east  *authority
	begun chan string // the place of a request that is in flight
	end   chan struct{}
}

// sweepPlace is a destination of a [sweep].
type sweepPlace struct {
	*labDestination
	name     string
	servers  int
	statuses chan int // of the requests that were in flight
}

func newSweep(t *testing.T) *sweep {
	t.Helper()
	s := &sweep{lab: newLab(t), east: newAuthority(t, domainEast), begun: make(chan string, 100),
		end: make(chan struct{})}
	s.resources = append(s.resources, trust(s.east), certificateSecret(t, s.east.certificate(t, serverID)),
		EgressBundle(trustOf(s.east)))
	s.resources = append(s.resources, EvictionFilters("default", nil)...)
	return s
}

// keepingOpen responds to requests of the path /open when the sweep ends.
func (s *sweep) keepingOpen(place string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/open" {
			next(w, r)
			return
		}
		s.begun <- place
		select {
		case <-s.end:
		case <-r.Context().Done():
		}
	}
}

// unlimited has no timeout of requests, since those in flight last as long as the sweep.
const unlimited = "MeshTimeout: {http: {requestTimeout: 0s}}"

// mesh adds a service with an inbound in front of each application.
func (s *sweep) mesh(name string, protocol kind.Protocol, applications ...service.Endpoint) *sweepPlace {
	s.t.Helper()
	d := &service.Destination{
		Key:      service.DestinationKey{Mesh: "default", Zone: "east", Service: name, Port: 80},
		Protocol: protocol, Servers: service.Servers{Identities: []string{serverID}},
		Effective: effectiveOf(s.t, unlimited),
	}
	e := &service.Endpoints{Destination: d.Key}
	for _, app := range applications {
		in := inboundTo(s.t, &net.TCPAddr{Port: int(app.Port)}, protocol, match.AllowAll("the mesh").Allow...)
		in.Name = fmt.Sprint("at-", in.Port)
		e.Endpoints = append(e.Endpoints, service.Endpoint{Address: in.Address, Port: in.Port})
		s.resources = append(s.resources, inboundOf(in, true)...)
	}
	return s.place(name, d, e, len(applications))
}

// external adds an external service behind an egress.
func (s *sweep) external(name string, protocol kind.Protocol, server service.Endpoint) *sweepPlace {
	s.t.Helper()
	c := chainFor("a0123456789abcdef."+name+".80.default.mes", protocol, match.AllowAll("the mesh").Allow...)
	egress := &proxy.EgressListener{Address: "127.0.0.1", Port: freePort(s.t)}
	s.resources = append(s.resources, Egress(egress, identity.Source{}, []proxy.EgressChain{c})...)
	s.resources = append(s.resources, ChainResources(&c)...)
	s.resources = append(s.resources, withoutPolicies(upstreamOf(c, nil,
		kind.ExternalEndpoint{Address: server.Address, Port: server.Port}))...)
	d := &service.Destination{Key: c.Key, Protocol: protocol, Effective: effectiveOf(s.t, unlimited),
		Servers: service.Servers{Way: zoneroute.ByEgress, SNI: c.SNIs[0], Identities: []string{serverID}}}
	return s.place(name, d, &service.Endpoints{Destination: d.Key,
		Endpoints: []service.Endpoint{{Address: egress.Address, Port: egress.Port}}}, 1)
}

func (s *sweep) place(name string, d *service.Destination, e *service.Endpoints, servers int) *sweepPlace {
	return &sweepPlace{s.listening(d, append(Clusters(d, true, identity.Source{}), Assignment(e))...), name, servers,
		make(chan int, 100)}
}

// open sends requests until one is in flight at each server, and returns once they are.
func (s *sweep) open(p *sweepPlace) {
	s.t.Helper()
	for range 2 * p.servers { // requests alternate between two servers, also where one of the two waits
		go func() {
			response, err := http.Post("http://"+p.address+"/open", "text/plain", strings.NewReader("x"))
			if err != nil {
				p.statuses <- 0
				return
			}
			response.Body.Close()
			p.statuses <- response.StatusCode
		}()
		testwait.Receive(s.t, "a request of "+p.name+" is in flight", s.begun)
	}
}

// unharmed reports a failure of a request that was in flight, and opens others in its place.
func (s *sweep) unharmed(t *testing.T, p *sweepPlace, after string) {
	t.Helper()
	if len(p.statuses) == 0 {
		return
	}
	t.Errorf("%s: after %q, a request that was in flight gets %d", p.name, after, <-p.statuses)
	for len(p.statuses) > 0 {
		<-p.statuses
	}
	s.open(p)
}

// finish ends the requests in flight, which all get their response, and checks that no request was retried and no
// server ejected.
func (s *sweep) finish(t *testing.T, places ...*sweepPlace) {
	t.Helper()
	close(s.end)
	for _, p := range places {
		for range 2 * p.servers {
			if got := testwait.Receive(t, "a request in flight ends", p.statuses); got != http.StatusOK {
				t.Errorf("%s: a request that was in flight gets %d", p.name, got)
			}
		}
		for _, stat := range []string{"upstream_rq_retry", "outlier_detection.ejections_enforced_total"} {
			if n := p.stat(stat); n != 0 {
				t.Errorf("%s: %s is %d, want 0", p.name, stat, n)
			}
		}
	}
}

// exchangeRaw sends bytes on a connection of their own, and returns the response, which is empty where there is none.
func (p *sweepPlace) exchangeRaw(t *testing.T, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(testwait.Deadline())
	_, _ = io.WriteString(conn, request)
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return &http.Response{}
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	response.Header.Set("test-body", string(body))
	return response
}

// withHeaders returns a request with lines of headers.
func withHeaders(lines ...string) string {
	return "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// numbered returns a number of headers.
func numbered(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("x-%d: y", i))
	}
	return lines
}

// posted returns a request with a body as it is on the wire.
func posted(headers, body string) string {
	return "POST / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n\r\n" + body
}

const chunked = "Transfer-Encoding: chunked"

// TestAMalformedRequestFailsAlone: whatever a program sends, the requests of others in flight get their responses. A
// request that the next proxy or server would reject gets 4xx at once; it is not retried, and ejects no server.
func TestAMalformedRequestFailsAlone(t *testing.T) {
	s := newSweep(t)
	serve := func(place string) service.Endpoint { return s.server(s.keepingOpen(place, responding(http.StatusOK))) }
	places := []*sweepPlace{
		s.mesh("http", kind.HTTP, serve("http"), serve("http")),
		s.mesh("http2", kind.HTTP2, serve("http2"), serve("http2")),
		s.external("out-http", kind.HTTP, serve("out-http")),
		s.external("out-http2", kind.HTTP2, serve("out-http2")),
	}
	s.start()
	for _, p := range places {
		s.open(p)
	}
	for _, c := range []struct {
		request string
		want    int
	}{
		{withHeaders(), 200},
		// hosts
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a_b:x\r\n\r\n", 200},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 200},
		{"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
		{"GET http://u@b/ HTTP/1.1\r\nHost: b\r\n\r\n", 200},
		{"GET http:///x HTTP/1.1\r\nHost: b\r\n\r\n", 400},
		{"GET ftp://b/ HTTP/1.1\r\nHost: b\r\n\r\n", 400},
		// paths
		{"GET foo HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404},
		{"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET /\"{}|^`[]\\<> HTTP/1.1\r\nHost: a\r\n\r\n", 200},
		{"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET /?a\x01b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"GET /" + strings.Repeat("a", 58_000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 200},
		// methods
		{"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", 200},
		{"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 200},
		{"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"PRI / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 404},
		{"\x16\x03\x01 / HTTP/1.1\r\n\r\n", 400},
		// headers
		{withHeaders("x:", "X-A_B: \xc3\xa9\t"), 200},
		{withHeaders("x: a\x01b"), 400},
		{withHeaders("x: a\x00b"), 400},
		{withHeaders("x: a\x7fb"), 400},
		{withHeaders(":path: /b"), 400},
		{withHeaders("a(b): c"), 400},
		{withHeaders("a : c"), 400},
		{withHeaders("a!#$%&'*+-.^_`|~: b"), 200},
		{withHeaders("TE: trailers, gzip", "Connection: TE"), 200},
		{withHeaders("Connection: x", "x: 1", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive"), 200},
		{withHeaders("Connection: host"), 400},
		{withHeaders("HTTP2-Settings: x"), 200},
		{withHeaders("X-Forwarded-Proto: a,b"), 200},
		{withHeaders("X-Forwarded-Proto: https, http"), 200},
		{withHeaders("X-Forwarded-Proto:"), 404},
		{withHeaders("X-Forwarded-Proto: \xc3\xa9"), 200},
		{withHeaders("X-Forwarded-For: u@b", "X-Forwarded-Host: u@b", "X-Request-Id:"), 200},
		{withHeaders("Content-Type: application/grpc", "grpc-timeout: x", "TE: trailers"), 200},
		{"GET http://b HTTP/1.1\r\nHost: b\r\n\r\n", 200},
		{"GET http://b?x HTTP/1.1\r\nHost: b\r\n\r\n", 404},
		{"GET ?x HTTP/1.1\r\nHost: b\r\n\r\n", 400},
		{"GET // HTTP/1.1\r\nHost: b\r\n\r\n", 200},
		{"GET http://[::1]:80/ HTTP/1.1\r\nHost: [::1]\r\n\r\n", 200},
		{withHeaders(numbered(90)...), 200},
		{withHeaders(numbered(99)...), 200},
		{withHeaders(numbered(100)...), 431},
		{withHeaders("x: " + strings.Repeat("a", 61_300)), 200},
		{withHeaders("x: " + strings.Repeat("a", 62<<10)), 431},
		{withHeaders(strings.Split(strings.Repeat("Cookie: a=b,", 80), ",")[:80]...), 200},
		// bodies
		{withHeaders("Content-Length: x"), 400},
		{withHeaders("Content-Length: -1"), 400},
		{withHeaders("Content-Length: 99999999999999999999999"), 400},
		{posted("Content-Length: 1, 1", "a"), 400},
		{posted("Content-Length: 1\r\n"+chunked, "0\r\n\r\n"), 400},
		{posted("Transfer-Encoding: gzip", ""), 501},
		{posted(chunked, "1;a=b\r\na\r\n0\r\nx: y\r\n\r\n"), 200},
		{posted(chunked, "zz\r\na\r\n0\r\n\r\n"), 400},
	} {
		for _, p := range places {
			if got := p.exchangeRaw(t, c.request).StatusCode; got != c.want {
				t.Errorf("%s: %.60q gets %d, want %d", p.name, c.request, got, c.want)
			}
			s.unharmed(t, p, fmt.Sprintf("%.60q", c.request))
		}
	}
	s.finish(t, places...)
}

// rawApplication is an HTTP/1.1 application that responds with the bytes that belong to the path.
func (s *sweep) rawApplication(place string, responses map[string]string) service.Endpoint {
	s.t.Helper()
	others := s.keepingOpen(place, nil)
	return s.server(func(w http.ResponseWriter, r *http.Request) {
		response, found := responses[r.URL.Path]
		if !found {
			others(w, r)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, response)
			conn.Close()
		}
	})
}

// TestAMalformedResponseFailsAlone: whatever an application responds, the requests of others in flight get their
// responses.
func TestAMalformedResponseFailsAlone(t *testing.T) {
	responding := func(status string, lines ...string) string {
		return "HTTP/1.1 " + status + "\r\n" + strings.Join(append(lines, "", ""), "\r\n")
	}
	const empty = "Content-Length: 0"
	rows := []struct {
		response string
		want     int
	}{
		{responding("200 OK", empty), 200},
		{responding("200", empty, "Connection: Upgrade", "Upgrade: h2,h2c", "Keep-Alive: timeout=5"), 200},
		{responding("200 OK", empty, "x: a\x01b"), 502},
		{responding("200 OK", empty, "a(b): c"), 502},
		{responding("200 OK", empty, ":path: /b"), 502},
		{responding("200 OK", "Content-Length: x"), 502},
		{responding("200 OK", empty, chunked), 502},
		{responding("204 No Content", empty), 204},
		{responding("204 No Content", "Content-Length: 5"), 502},
		{responding("304 Not Modified", "Content-Length: 5"), 304},
		{responding("101 Switching Protocols", "Connection: Upgrade", "Upgrade: foo"), 502},
		{responding("999 Odd", empty), 999},
		{responding("99 Odd", empty), 502},
		{responding("200 OK", append(numbered(90), empty)...), 200},
		{responding("200 OK", append(numbered(99), empty)...), 200},
		{responding("200 OK", append(numbered(110), empty)...), 502},
		{responding("200 OK", empty, "x: "+strings.Repeat("a", 61_300)), 200},
		{responding("200 OK", empty, "x: "+strings.Repeat("a", 90<<10)), 502},
		{"garbage\r\n\r\n", 502},
	}
	responses := map[string]string{}
	for i, row := range rows {
		responses[fmt.Sprint("/", i)] = row.response
	}
	s := newSweep(t)
	places := []*sweepPlace{
		s.mesh("http", kind.HTTP, s.rawApplication("http", responses), s.rawApplication("http", responses)),
		s.external("out-http", kind.HTTP, s.rawApplication("out-http", responses)),
	}
	s.start()
	for _, p := range places {
		s.open(p)
	}
	for i, row := range rows {
		for _, p := range places {
			request := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", i)
			if got := p.exchangeRaw(t, request).StatusCode; got != row.want {
				t.Errorf("%s: %.60q gets %d, want %d", p.name, row.response, got, row.want)
			}
			s.unharmed(t, p, fmt.Sprintf("%.60q", row.response))
		}
	}
	s.finish(t, places...)
}

// frames is a connection of HTTP/2 on which a test writes what it likes.
type frames struct {
	*h2.Framer
	mu      sync.Mutex
	block   bytes.Buffer
	encoder *hpack.Encoder
}

func newFrames(conn net.Conn) *frames {
	f := &frames{Framer: h2.NewFramer(conn, conn)}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.encoder = hpack.NewEncoder(&f.block)
	return f
}

// send writes headers, each a name and a value, that end a stream or not.
func (f *frames) send(stream uint32, end bool, headers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.block.Reset()
	for i := 0; i+1 < len(headers); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]})
	}
	_ = f.WriteHeaders(h2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndStream: end,
		EndHeaders: true})
}

// TestAMalformedStreamOfAClientFailsAlone: a request that is malformed in HTTP/2 ends its stream, and not the others of
// the client's connection.
func TestAMalformedStreamOfAClientFailsAlone(t *testing.T) {
	s := newSweep(t)
	p := s.mesh("http2", kind.HTTP2, s.server(s.keepingOpen("http2", responding(http.StatusOK))))
	s.start()
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(testwait.Deadline())
	_, _ = io.WriteString(conn, h2.ClientPreface)
	f := newFrames(conn)
	_ = f.WriteSettings()
	request := func(path string, more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", path}, more...)
	}
	malformed := [][]string{
		request("/", "Upper", "case"), request("/", "a b", "c"), request("/", "x", "a\x01b"),
		request("/", "connection", "x"), request("/", "te", "gzip"), request("/", "content-length", "x"),
		request("/", "content-length", "5"), request("relative"), request(""),
		{":method", "GET", ":scheme", "http", ":authority", "a"},
		{":method", "GET", ":scheme", "http", ":authority", "u@b", ":path", "/"},
		{":method", "GET", ":scheme", "http", ":authority", "", ":path", "/"},
		{":method", "", ":scheme", "http", ":authority", "a", ":path", "/"},
		{"x", "y"},
	}
	const open = 1
	f.send(open, true, request("/open")...)
	for i, headers := range malformed {
		f.send(uint32(open+2*(i+1)), true, headers...)
	}
	ended := 0
	for statusOfOpen := ""; statusOfOpen == ""; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ends after %d of %d malformed requests: %v", ended, len(malformed), err)
		}
		switch frame := frame.(type) {
		case *h2.GoAwayFrame:
			t.Fatalf("the connection ends after %d malformed requests: %v", ended, frame)
		case *h2.RSTStreamFrame:
			ended++
		case *h2.MetaHeadersFrame:
			status := frame.PseudoValue("status")
			if frame.StreamID == open {
				statusOfOpen = status
			} else if ended++; !strings.HasPrefix(status, "4") {
				t.Errorf("%q gets %s, want 4xx", malformed[frame.StreamID/2-1], status)
			}
			if statusOfOpen != "" && statusOfOpen != "200" {
				t.Errorf("the request in flight gets %s", statusOfOpen)
			}
		}
		if ended == len(malformed) {
			testwait.Receive(t, "the request is in flight", s.begun)
			ended++
			close(s.end)
		}
	}
}

// TestOlderPrograms: a request of HTTP/1.0 is served, with a host where it has none, and an Upgrade that no proxy knows
// is ignored.
func TestOlderPrograms(t *testing.T) {
	s := newSweep(t)
	app := s.server(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Host, " ", string(body), r.Header["Upgrade"])
		w.(http.Flusher).Flush() // so that the response has no Content-Length
	})
	places := []*sweepPlace{
		s.mesh("http", kind.HTTP, app), s.mesh("http2", kind.HTTP2, app), s.external("out-http", kind.HTTP, app),
		{labDestination: s.inbound(kind.HTTP, "", app), name: defaultHost},
	}
	s.start()
	upgrade := func(to string) string { return withHeaders("Connection: Upgrade", "Upgrade: "+to) }
	for _, c := range []struct{ request, want string }{
		{"GET / HTTP/1.0\r\n\r\n", "200 HTTP/1.0 NAME []"},
		{"GET / HTTP/1.0\r\nHost: a\r\n\r\n", "200 HTTP/1.0 a []"},
		{"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", "200 HTTP/1.0 a []"},
		{"GET http://a/ HTTP/1.0\r\n\r\n", "200 HTTP/1.0 a []"},
		{"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "200 HTTP/1.0 NAME abc[]"},
		{"GET /\r\n\r\n", "200 HTTP/1.0 NAME []"},
		{"GET / HTTP/2.5\r\nHost: a\r\n\r\n", "200 HTTP/1.0 a []"},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "200 HTTP/1.1 a,b []"},
		{"GET / HTTP/1.1\r\n\r\n", "400 HTTP/1.1"},
		{upgrade("TLS/1.2"), "200 HTTP/1.1 a []"},
		{upgrade("h2c"), "200 HTTP/1.1 a []"},
		{upgrade("HTTP/2.0, SPDY/3.1"), "200 HTTP/1.1 a []"},
		{withHeaders("Upgrade: TLS/1.2"), "200 HTTP/1.1 a []"},
		{posted("Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"+chunked, "3\r\nabc\r\n0\r\n\r\n"),
			"200 HTTP/1.1 a abc[]"},
		{upgrade("wonder"), "403 HTTP/1.1"},
	} {
		for _, p := range places {
			response := p.exchangeRaw(t, c.request)
			got := fmt.Sprint(response.StatusCode, " ", response.Proto, " ", response.Header.Get("test-body"))
			if want := strings.ReplaceAll(c.want, "NAME", p.name); strings.TrimSpace(got) != want {
				t.Errorf("%s: %q gets %q, want %q", p.name, c.request, got, want)
			}
			if response.ProtoMinor == 0 && response.TransferEncoding != nil {
				t.Errorf("%s: a response of HTTP/1.0 is %v", p.name, response.TransferEncoding)
			}
		}
	}
}

// TestTheURLOfARedirect: the scheme's own port is not written, and a port of the request is not kept.
func TestTheURLOfARedirect(t *testing.T) {
	l := newLab(t)
	type row struct {
		redirect   kind.RequestRedirect
		host, want string
		*labDestination
	}
	rows := []row{
		{redirect: kind.RequestRedirect{Scheme: "http"}, host: "a", want: "http://a/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "https"}, host: "a", want: "https://a/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "http"}, host: "[::1]", want: "http://[::1]/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "http", Hostname: "b"}, host: "a:8080", want: "http://b/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "https", Hostname: "b"}, host: "a:8080", want: "https://b/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "http", Port: 80}, host: "a", want: "http://a/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "https", Port: 443}, host: "a", want: "https://a/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "https", Port: 80}, host: "a", want: "https://a:80/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "http", Port: 8080}, host: "a:81", want: "http://a:8080/p?q"},
		{redirect: kind.RequestRedirect{Port: 8080}, host: "a", want: "http://a:8080/p?q"},
		{redirect: kind.RequestRedirect{Hostname: "b"}, host: "a", want: "http://b/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "https"}, host: "a:8080", want: "https://a:443/p?q"},
		{redirect: kind.RequestRedirect{Scheme: "http"}, host: "[::1]:8080", want: "http://[::1]:80/p?q"},
	}
	for i := range rows {
		key := service.DestinationKey{Mesh: "default", Zone: "east", Service: fmt.Sprint("s", i), Port: 80}
		to := service.RouteTo(&service.Destination{Key: key, Protocol: kind.HTTP})
		to.Rules = []service.RouteRule{{Filters: []kind.HTTPFilter{{Type: kind.RedirectFilter,
			RequestRedirect: &rows[i].redirect}}}}
		rows[i].labDestination = l.outboundBy(to)
	}
	l.start()
	for _, row := range rows {
		p := sweepPlace{labDestination: row.labDestination}
		response := p.exchangeRaw(t, "GET /p?q HTTP/1.1\r\nHost: "+row.host+"\r\n\r\n")
		if got := response.Header.Get("Location"); got != row.want {
			t.Errorf("%+v of %s leads to %q, want %q", row.redirect, row.host, got, row.want)
		}
	}
}

// TestRequestsThatAnApplicationNeverBegan: an application of HTTP/2 that closes a connection, or resets a request with
// REFUSED_STREAM, loses no request that it has not begun, and gets none twice: from each kind of client, and however
// long the body is. It closes as many connections during a batch as an inbound repeats requests: a busy proxy reads of
// each of them late, and with more a request could meet too many of them.
func TestRequestsThatAnApplicationNeverBegan(t *testing.T) {
	const requests, batches = 80, 5
	const between = requests / (unbegunRetries + 1)
	s := newSweep(t)
	var begun atomic.Int64
	closing := s.serverOn(func(w http.ResponseWriter, r *http.Request) {
		if n := begun.Add(1); n%between == 0 && n <= unbegunRetries*between {
			w.Header().Set("Connection", "close") // Go's server sends GOAWAY
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}, func(listener net.Listener) net.Listener { return lingeringListener{listener} })
	places := []*sweepPlace{
		s.mesh("http2", kind.HTTP2, closing), s.mesh("grpc", kind.GRPC, closing),
		s.external("out-http2", kind.HTTP2, closing),
		{labDestination: s.inbound(kind.HTTP2, "", closing), name: "inbound"},
	}
	s.start()
	for _, p := range places {
		for _, length := range []int{0, 10, 100_000} {
			if p.name == "inbound" && length > repeatedBody {
				continue // without a proxy, the client repeats it
			}
			for range batches {
				begun.Store(0)
				for _, status := range p.postsOf(requests, length) {
					if status != "200 OK" {
						t.Errorf("%s, %d bytes: a request gets %s", p.name, length, status)
					}
				}
				if n := begun.Load(); n != requests {
					t.Errorf("%s, %d bytes: the application has begun %d requests, want %d", p.name, length, n,
						requests)
				}
			}
		}
	}
}

// postsOf returns the statuses of concurrent requests with bodies of a length, and the errors in place of those without
// a response.
func (p *sweepPlace) postsOf(requests, length int) []string {
	const clients = 20
	statuses := make([]string, requests)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	for first := range clients {
		group.Go(func() {
			for i := first; i < requests; i += clients {
				response, err := client.Post("http://"+p.address, "", strings.NewReader(strings.Repeat("x", length)))
				if err != nil {
					statuses[i] = err.Error()
					continue
				}
				response.Body.Close()
				statuses[i] = response.Status
			}
		})
	}
	group.Wait()
	return statuses
}

// lingeringListener accepts connections that are closed once the client has closed its side. Go's server closes a
// connection one second after its GOAWAY, with a reset if requests arrived meanwhile. A reset discards a GOAWAY that a
// busy client has not read. Whether the client has read it by then is not what the test is about.
type lingeringListener struct{ net.Listener }

func (l lingeringListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingeringConn{TCPConn: c.(*net.TCPConn)}, nil
}

// lingeringConn is a connection of a [lingeringListener].
type lingeringConn struct {
	*net.TCPConn
	once sync.Once
}

func (c *lingeringConn) Close() error {
	c.once.Do(func() {
		_ = c.CloseWrite()
		go func() {
			_, _ = io.Copy(io.Discard, c.TCPConn)
			_ = c.TCPConn.Close()
		}()
	})
	return nil
}

// TestServersWithAShortKeepAlive: a server that closes a connection after 2 s without a request, as gunicorn does,
// loses no request after a pause of its clients. Neither does an external server.
func TestServersWithAShortKeepAlive(t *testing.T) {
	t.Parallel()
	s := newSweep(t)
	keepAlive := testwait.Input(2*time.Second, "after which the server closes a connection without a request")
	var idle sync.Map // by the address of a connection without a request: the timer that closes it
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if timer, found := idle.Load(r.RemoteAddr); found && !timer.(*time.Timer).Stop() {
			panic(http.ErrAbortHandler) // a request that arrives while the server closes the connection
		}
	}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			idle.Store(conn.RemoteAddr().String(), time.AfterFunc(keepAlive, func() {}))
		}
	}
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	app := endpointAt(server.Listener.Addr())
	places := []*sweepPlace{s.mesh("http", kind.HTTP, app), s.external("out-http", kind.HTTP, app)}
	s.start()
	for range 2 {
		for _, p := range places {
			if got := p.exchangeRaw(t, posted("Content-Length: 1", "a")).StatusCode; got != http.StatusOK {
				t.Errorf("%s: a POST gets %d", p.name, got)
			}
		}
		testwait.Pass(3*time.Second, "a pause of the clients")
	}
}
