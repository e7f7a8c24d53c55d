package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"

	"weft/internal/testwait"
)

// showSweep is set by `make sweep`: it prints the table, and runs the exchanges that take long.
var showSweep = flag.Bool("sweep", false,
	"run the exchanges of the sweep that take long too, and print each, directly and through the mesh")

// sweepCase is an exchange of a client with a server, which runs directly and through the proxies of both.
type sweepCase struct {
	name string
	port string // of sweepPorts; http by default

	send string             // what the client sends; then it reads a response, and tries another request
	call func(*sweepClient) // what the client does in place of that

	respond string             // what the server sends for a request that it has read; 200 by default
	closes  bool               // the server then closes the connection
	serve   func(*sweepServer) // what the server does in place of that
	greets  bool               // the server of a TCP connection sends first
	stream  http.HandlerFunc   // what a server of HTTP/2 does with a request that it has read

	long bool // takes seconds, and runs with -sweep

}

// difference is what proxies change in exchanges: the lines of the result that each way alone has. The decision is the
// row of docs/defaults.md about it.
type difference struct {
	decision     string
	of           []string // names of exchanges
	direct, mesh []string
}

// declared returns the difference of an exchange, without a decision where there is none.
func (e *sweepCase) declared() difference {
	i := slices.IndexFunc(differences, func(d difference) bool { return slices.Contains(d.of, e.name) })
	if i < 0 {
		return difference{}
	}
	return differences[i]
}

// sweepPorts are the ports of services by their name: of their server, their inbound and their outbound.
var sweepPorts = map[string]struct {
	protocol                  string
	server, inbound, outbound int
}{
	"http":         {"http", 18080, 20080, 10001},
	"http2":        {"http2", 18081, 20081, 10002},
	"grpc":         {"grpc", 18081, 20082, 10003},
	"tcp":          {"tcp", 18082, 20083, 10004},
	"short":        {"http", 18080, 20084, 10005}, // with short timeouts
	"short-tcp":    {"tcp", 18082, 20085, 10006},
	"unserved":     {"http", 18089, 20086, 10007}, // without a server
	"unserved-tcp": {"tcp", 18089, 20087, 10008},
}

// shortTimeouts are the timeouts of the services "short" and "short-tcp".
const shortTimeouts = `
type: MeshTimeout
mesh: default
name: short
spec:
  targetRef: {kind: Dataplane, labels: {kuma.io/workload: client}}
  to:
  - targetRef: {kind: MeshService, name: short}
    default: {http: {requestTimeout: 1s, streamIdleTimeout: 2s}}
  - targetRef: {kind: MeshService, name: short-tcp}
    default: {idleTimeout: 1s}
`

// sweepRun is one run of an exchange, with what its client and its server have seen.
type sweepRun struct {
	*sweepCase
	t    *testing.T
	mu   sync.Mutex
	seen map[string][]string // by side: client, server

	arrivedOnce, servedOnce sync.Once
	hasArrived, isServed    chan struct{} // closed when the server has a request, and when it has served
}

func newSweepRun(t *testing.T, of *sweepCase) *sweepRun {
	return &sweepRun{sweepCase: of, t: t, seen: map[string][]string{}, hasArrived: make(chan struct{}),
		isServed: make(chan struct{})}
}

// saw adds a line to what a side has seen.
func (r *sweepRun) saw(side, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[side] = append(r.seen[side], side+": "+fmt.Sprintf(format, args...))
}

// sawMessage adds a message to what a side has seen.
func (r *sweepRun) sawMessage(side, start string, m *message) {
	r.saw(side, "%s", start)
	for _, line := range m.said() {
		r.saw(side, "%s", line)
	}
}

// lines returns what both sides have seen.
func (r *sweepRun) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.seen["client"], r.seen["server"])
}

func (r *sweepRun) served() { r.servedOnce.Do(func() { close(r.isServed) }) }

// sweep is a server and a client with their proxies, and the run that their connections belong to.
type sweep struct {
	*world
	current atomic.Pointer[sweepRun]
}

func newSweep(t *testing.T) *sweep {
	s := &sweep{world: newWorld(t)}
	s.current.Store(newSweepRun(t, &sweepCase{}))
	s.apply(secured)
	s.accept(18080, s.serveRequests)
	s.accept(18082, s.serveConnection)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(s.serveStream)}
	go server.Serve(s.listen(2, 18081))
	t.Cleanup(func() { server.Close() })
	inbounds, outbounds := "", ""
	for name, p := range sweepPorts {
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: NET.2, protocol: %s, "+
			"tags: {kuma.io/service: %s}}", p.inbound, name, p.server, p.protocol, name)
		outbounds += fmt.Sprintf("\n  - {address: NET.3, port: %d, tags: {kuma.io/service: %s}}", p.outbound, name)
	}
	s.proxy("default", "server",
		"type: Dataplane\nmesh: default\nname: server\nnetworking:\n  address: NET.2\n  inbound:"+inbounds)
	s.proxy("default", "client", "type: Dataplane\nmesh: default\nname: client\nlabels: {kuma.io/workload: client}\n"+
		"networking:\n  address: NET.3\n  outbound:"+outbounds)
	s.apply(shortTimeouts)
	return s
}

// accept serves each connection of a port.
func (s *sweep) accept(port int, serve func(*sweepServer)) {
	l := s.listen(2, port)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(&sweepServer{conn: conn.(*net.TCPConn), r: bufio.NewReader(conn)})
			}()
		}
	}()
}

// sweepServer is the server's end of a connection.
type sweepServer struct {
	*sweepRun
	conn    *net.TCPConn
	r       *bufio.Reader
	request *message
}

// again is the path of the request by which a client tries whether its connection is open. It belongs to no run, since
// it may arrive after the end of its run.
const again = "/again"

// serveRequests serves the requests of a connection.
func (s *sweep) serveRequests(of *sweepServer) {
	for {
		request, err := readMessage(of.r)
		if err != nil {
			return
		}
		of.request, of.sweepRun = request, s.current.Load()
		if strings.HasPrefix(request.start, "GET "+again+" ") {
			of.write(okResponse)
			continue
		}
		if of.sweepCase.serve != nil {
			of.sweepCase.serve(of)
			of.served()
			return
		}
		of.reads()
		response := of.respond
		if response == "" {
			response = okResponse
		}
		of.write(response)
		of.served()
		if of.closes || strings.EqualFold(request.header("connection"), "close") {
			return
		}
	}
}

// reads reads the rest of the request.
func (s *sweepServer) reads() {
	s.request.readBody(s.r, false)
	start, _ := strings.CutSuffix(s.request.start, " HTTP/1.1")
	s.sawMessage("server", summary([]byte(start)), s.request)
}

func (s *sweepServer) write(text string) { _, _ = io.WriteString(s.conn, text) } // the client may have gone

// serveConnection serves a TCP connection. One that ends before its first byte is a probe of the server's agent.
func (s *sweep) serveConnection(of *sweepServer) {
	of.sweepRun = s.current.Load()
	if of.service() != "tcp" && of.service() != "short-tcp" {
		return
	}
	if !of.greets {
		if _, err := of.r.Peek(1); err != nil {
			return
		}
	}
	of.sweepCase.serve(of)
	of.served()
}

// sweepClient is the client's end of a connection.
type sweepClient struct {
	*sweepRun
	ctx     context.Context
	address string
	conn    *net.TCPConn
	r       *bufio.Reader
	isLast  bool // the last response says that the connection ends, for which Envoy waits a second
}

func (c *sweepClient) write(text string) { _, _ = io.WriteString(c.conn, text) } // the server may have gone

// awaitServer waits until the server has served.
func (c *sweepClient) awaitServer() { testwait.Receive(c.t, "the server has served", c.isServed) }

// upstreamError is how the text of a proxy begins that has reached no server.
const upstreamError = "upstream connect error or disconnect/reset before headers"

// reads reads the response to a request.
func (c *sweepClient) reads(method string) {
	for {
		response, err := readMessage(c.r)
		if err != nil {
			c.saw("client", "the connection ends")
			return
		}
		status := response.status()
		c.isLast = strings.EqualFold(response.header("connection"), "close")
		isInterim := status < 200 && status != http.StatusSwitchingProtocols
		if !isInterim && method != http.MethodHead && status != 101 && status != 204 && status != 304 {
			response.readBody(c.r, true)
		}
		if text, _, _ := strings.Cut(string(response.body), ". "); text == upstreamError {
			response = &message{start: response.start, body: []byte(text)} // the rest depends on time
		}
		start, _ := strings.CutPrefix(response.start, "HTTP/1.1 ")
		if status == 200 {
			start, _, _ = strings.Cut(start, " ")
		}
		c.sawMessage("client", summary([]byte(start)), response)
		if !isInterim {
			return
		}
	}
}

// triesAgain sends another request on the connection.
func (c *sweepClient) triesAgain() {
	if c.isLast {
		c.saw("client", "then the connection ends")
		return
	}
	c.write(call("GET", again))
	if next, err := readMessage(c.r); err != nil {
		c.saw("client", "then the connection ends")
	} else if next.status() != 200 {
		c.saw("client", "then %s", next.start)
	}
}

// calls sends what an exchange says.
func (c *sweepClient) calls() {
	if c.call != nil {
		c.call(c)
		return
	}
	go c.write(c.send)
	method, _, _ := strings.Cut(c.send, " ")
	c.reads(method)
	c.triesAgain()
}

// run runs an exchange, and returns what both sides have seen.
func (s *sweep) run(of *sweepCase, isDirect bool) []string {
	s.t.Helper()
	run := newSweepRun(s.t, of)
	s.current.Store(run)
	port := sweepPorts[of.service()]
	address := fmt.Sprintf("%s:%d", s.address(2), port.server)
	if !isDirect {
		address = fmt.Sprintf("%s:%d", s.address(3), port.outbound)
	}
	ctx := testwait.Context(s.t)
	err := converse(ctx, (&net.Dialer{}).DialContext, address, func(conn net.Conn) error {
		client := &sweepClient{sweepRun: run, ctx: ctx, address: address, conn: conn.(*net.TCPConn),
			r: bufio.NewReader(conn)}
		client.calls()
		return nil
	})
	if err != nil {
		run.saw("client", "it cannot connect")
	}
	return run.lines()
}

func (e *sweepCase) service() string {
	if e.port == "" {
		return "http"
	}
	return e.port
}

// extraLines returns the lines that others lack.
func extraLines(lines, others []string) (alone []string) {
	rest := slices.Clone(others)
	for _, line := range lines {
		if i := slices.Index(rest, line); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			alone = append(alone, line)
		}
	}
	return alone
}

// TestSweep: what programs send arrives through the mesh as it does without, except for the differences that are
// declared, each of which is there.
func TestSweep(t *testing.T) {
	s := newSweep(t)
	for name, p := range sweepPorts {
		if p.server != 18089 && p.protocol != "tcp" {
			s.eventually(name+" is reached", func() error {
				return get(fmt.Sprintf("http://%s:%d%s", s.address(3), p.outbound, again))
			})
		}
	}
	var table bytes.Buffer
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "EXCHANGE\tDIRECTLY\tTHROUGH THE MESH\tVERDICT")
	for i := range sweepCases {
		if e := &sweepCases[i]; !e.long || *showSweep {
			direct, mesh, verdict := s.compare(e)
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", e.name, cell(direct), cell(mesh), verdict)
		}
	}
	out.Flush()
	if *showSweep {
		os.Stdout.Write(table.Bytes())
	}
}

// cell returns lines as a cell of the table, the end of long ones left out.
func cell(lines []string) string {
	text := strings.Join(lines, "; ")
	if len(text) > 70 {
		text = strings.ToValidUTF8(text[:67], "") + "..."
	}
	return text
}

// compare runs an exchange on both ways, and requires the declared difference. It returns the lines that differ, or the
// first one where none does, and the verdict.
func (s *sweep) compare(e *sweepCase) (onlyDirect, onlyMesh []string, verdict string) {
	s.t.Helper()
	direct, mesh := s.run(e, true), s.run(e, false)
	onlyDirect, onlyMesh = extraLines(direct, mesh), extraLines(mesh, direct)
	declared := e.declared()
	switch {
	case !slices.Equal(onlyDirect, declared.direct) || !slices.Equal(onlyMesh, declared.mesh):
		s.t.Errorf("%s: a difference that is not declared\ndirectly %q\nthrough the mesh %q\n"+
			"declared: directly %q\ndeclared: through the mesh %q", e.name, onlyDirect, onlyMesh, declared.direct,
			declared.mesh)
		return onlyDirect, onlyMesh, "NOT DECLARED"
	case declared.decision != "":
		return onlyDirect, onlyMesh, "decided: " + declared.decision
	}
	return direct[:1], mesh[:1], "equal"
}

// TestDifferencesAreDocumented: each declared difference is of an exchange, and the page of defaults has a row for each
// decision, and no other.
func TestDifferencesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/defaults.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What a proxy changes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows, names := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(section, -1)[1:] {
		rows[row[1]] = false
	}
	for i := range sweepCases {
		if names[sweepCases[i].name] {
			t.Errorf("two exchanges are %q", sweepCases[i].name)
		}
		names[sweepCases[i].name] = true
	}
	for _, d := range differences {
		if _, ok := rows[d.decision]; !ok {
			t.Errorf("docs/defaults.md has no row %q", d.decision)
		}
		rows[d.decision] = true
		for _, name := range d.of {
			if !names[name] {
				t.Errorf("no exchange without another difference is %q", name)
			}
			delete(names, name)
		}
	}
	for row, isDeclared := range rows {
		if !isDeclared {
			t.Errorf("docs/defaults.md has the row %q, which no exchange shows", row)
		}
	}
}
