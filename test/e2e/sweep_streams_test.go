package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"weft/internal/testwait"
)

var sweptClosings = []sweepCase{
	{name: "a server that closes without a response, GET", send: call("GET", "/"), serve: func(*sweepServer) {}},
	{name: "a server that closes without a response, POST", send: post("a"), serve: func(s *sweepServer) { s.reads() }},
	{name: "a server that resets without a response", send: post("a"), serve: func(s *sweepServer) {
		s.reads()
		s.resets()
	}},
	{name: "a response that breaks off", send: post("a"), serve: func(s *sweepServer) {
		s.reads()
		s.write(bare("200 OK", "Content-Length: 5") + "abc")
	}},
	{name: "chunks that break off", send: post("a"), serve: func(s *sweepServer) {
		s.reads()
		s.write(bare("200 OK", "Transfer-Encoding: chunked") + "3\r\nabc\r\n")
	}},
	{name: "no server", port: "unserved", send: call("GET", "/")},
	{name: "a client that closes before the response", call: func(c *sweepClient) {
		c.write(post("a"))
		c.awaitRequest()
		c.conn.Close()
		c.awaitServer()
	}, serve: func(s *sweepServer) {
		s.reads()
		s.arrived()
		s.sawEnd()
	}},
	{name: "a client that closes within its body", call: func(c *sweepClient) {
		c.write(call("POST", "/", "Content-Length: 100") + "abc")
		c.awaitRequest()
		c.conn.Close()
		c.awaitServer()
	}, serve: func(s *sweepServer) {
		s.arrived()
		s.reads()
	}},
	{name: "a client that shuts its side after the request", call: func(c *sweepClient) {
		c.write(call("GET", again)) // the server may get it, or not
		c.conn.CloseWrite()
		c.reads("GET")
	}},
}

// arrived tells the client that a request has arrived.
func (s *sweepServer) arrived() { s.arrivedOnce.Do(func() { close(s.hasArrived) }) }

// awaitRequest waits until the server has a request.
func (c *sweepClient) awaitRequest() { testwait.Receive(c.t, "the request arrives", c.hasArrived) }

// sawEnd reads to the end of the connection.
func (s *sweepServer) sawEnd() {
	rest, err := io.ReadAll(s.r)
	s.saw("server", "%q, then the connection %s", rest, endOf(err))
}

// sawEnd reads to the end of the connection.
func (c *sweepClient) sawEnd() {
	rest, err := io.ReadAll(c.r)
	c.saw("client", "%s, then the connection %s", summary(rest), endOf(err))
}

// endOf returns how a connection has ended that was read until an error, nil at its end.
func endOf(err error) string {
	if err == nil {
		err = io.EOF
	}
	return ended(err)
}

// resets closes the connection by a reset.
func (s *sweepServer) resets() {
	s.conn.SetLinger(0)
	s.conn.Close()
}

// webSocket returns the handshake of a WebSocket.
func webSocket() string {
	return call("GET", "/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: chat")
}

// switches responds to a handshake, and calls f if it is there.
func switches(f func(*sweepServer)) func(*sweepServer) {
	return func(s *sweepServer) {
		protocol := s.request.header("upgrade")
		s.reads()
		if protocol == "" {
			s.write(okResponse)
			return
		}
		s.write(bare("101 Switching Protocols", "Connection: Upgrade", "Upgrade: "+protocol, "Sec-WebSocket-Accept: a"))
		f(s)
	}
}

func echoes(s *sweepServer) { _, _ = io.Copy(s.conn, s.r) } // the end of the client is the end

// echoed sends text, and reads it back.
func (c *sweepClient) echoed(text string) {
	go c.write(text)
	back := make([]byte, len(text))
	if _, err := io.ReadFull(c.r, back); err != nil {
		c.saw("client", "gets back nothing more")
		return
	}
	c.saw("client", "gets back %s", summary(back))
}

var sweptUpgrades = []sweepCase{
	{name: "a WebSocket", serve: switches(echoes), call: func(c *sweepClient) {
		c.write(webSocket())
		c.reads("GET")
		c.echoed("\x81\x02hi")
		c.echoed(megabytes)
	}},
	{name: "a WebSocket that the server closes", serve: switches(func(s *sweepServer) { s.write("\x88\x00") }),
		call: func(c *sweepClient) {
			c.write(webSocket())
			c.reads("GET")
			c.sawEnd()
		}},
	{name: "a WebSocket that the client closes", serve: switches((*sweepServer).sawEnd), call: func(c *sweepClient) {
		c.write(webSocket())
		c.reads("GET")
		c.write("\x88\x00")
		c.conn.Close()
		c.awaitServer()
	}},
	{name: "a WebSocket that the server rejects", send: webSocket(), respond: reply("403 Forbidden", "no")},
	{name: "Upgrade: h2c", send: call("GET", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
		"HTTP2-Settings: AAMAAABkAAQAAP__")},
	{name: "Upgrade: TLS/1.2", send: call("GET", "/", "Connection: Upgrade", "Upgrade: TLS/1.2")},
	{name: "Upgrade: SPDY/3.1", serve: switches(echoes), call: func(c *sweepClient) {
		c.write(call("POST", "/", "Connection: Upgrade", "Upgrade: SPDY/3.1"))
		c.reads("POST")
	}},
}

// serveStream serves a request of HTTP/2.
func (s *sweep) serveStream(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == again {
		return
	}
	run := s.current.Load()
	of := &sweepServer{sweepRun: run}
	body, err := io.ReadAll(r.Body)
	of.sawMessage("server", r.Method+" "+r.RequestURI+" "+r.Host,
		&message{headers: headerLines(r.Header), body: body, broken: err != nil, trailers: headerLines(r.Trailer)})
	if run.stream != nil {
		run.stream(rw, r)
	}
	of.served()
}

// requests returns a client's call by HTTP/2 with prior knowledge.
func requests(method, body string, headers ...string) func(*sweepClient) {
	return func(c *sweepClient) {
		c.conn.Close()
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		r, _ := http.NewRequestWithContext(c.ctx, method, "http://"+c.address+"/a//b?c", strings.NewReader(body))
		r.Host = "web"
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		got, err := transport.RoundTrip(r)
		if err != nil {
			c.saw("client", "no response: %v", err)
			return
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		c.sawMessage("client", fmt.Sprint(got.StatusCode), &message{headers: headerLines(got.Header), body: text,
			broken: err != nil, trailers: headerLines(got.Trailer)})
	}
}

// grpcHeaders are the headers of a call.
var grpcHeaders = []string{"Content-Type", "application/grpc", "Te", "trailers", "Grpc-Timeout", "10S", "A-Bin", "AAE="}

var sweptStreams = []sweepCase{
	{name: "HTTP/2 with prior knowledge, GET", port: "http2", call: requests("GET", "", "X-A", "1", "X-A", "2",
		"Cookie", "a=1; b=2")},
	{name: "HTTP/2 with prior knowledge, POST of 3 MB", port: "http2", call: requests("POST", megabytes)},
	{name: "HTTP/2, 404", port: "http2", call: requests("GET", ""),
		stream: func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusNotFound) }},
	{name: "HTTP/2, a stream that the server resets", port: "http2", call: requests("POST", "a"),
		stream: func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "abc")
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		}},
	{name: "a gRPC call", port: "grpc", call: requests("POST", "\x00\x00\x00\x00\x01a", grpcHeaders...),
		stream: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/grpc")
			_, _ = io.WriteString(rw, "\x00\x00\x00\x00\x01b")
			rw.Header().Set(http.TrailerPrefix+"Grpc-Status", "5")
			rw.Header().Set(http.TrailerPrefix+"Grpc-Message", "not%20there")
			rw.Header().Set(http.TrailerPrefix+"Detail-Bin", "AAE=")
		}},
	{name: "a gRPC call that fails without a message", port: "grpc", call: requests("POST", "", grpcHeaders...),
		stream: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/grpc")
			rw.Header().Set("Grpc-Status", "14")
		}},
	{name: "HTTP/1.1 to a port with http2", port: "http2", send: call("GET", "/")},
}

var sweptConnections = []sweepCase{
	{name: "TCP: the server sends first", port: "tcp", greets: true, call: (*sweepClient).sawEnd,
		serve: func(s *sweepServer) { s.write("220 ready\r\n") }},
	{name: "TCP: 1 byte", port: "tcp", call: func(c *sweepClient) { c.echoed("a") }, serve: echoes},
	{name: "TCP: 3 MB", port: "tcp", call: func(c *sweepClient) { c.echoed(megabytes) }, serve: echoes},
	{name: "TCP: a request of HTTP", port: "tcp", call: func(c *sweepClient) { c.echoed(call("GET", "/")) },
		serve: echoes},
	{name: "TCP: the client shuts its side, then the server responds", port: "tcp", call: func(c *sweepClient) {
		c.write("abc")
		c.conn.CloseWrite()
		c.sawEnd()
	}, serve: func(s *sweepServer) {
		s.sawEnd()
		s.write("def")
	}},
	{name: "TCP: the server shuts its side, then the client sends", port: "tcp", call: func(c *sweepClient) {
		c.echoed("a")
		c.sawEnd()
		c.write("abc")
		c.conn.CloseWrite()
		c.awaitServer()
	}, serve: func(s *sweepServer) {
		_, _ = io.CopyN(s.conn, s.r, 1)
		s.write("def")
		s.conn.CloseWrite()
		s.sawEnd()
	}},
	{name: "TCP: the server resets", port: "tcp", call: func(c *sweepClient) {
		c.echoed("a")
		c.write("b") // data before a reset may be lost with or without proxies
		c.sawEnd()
	}, serve: func(s *sweepServer) {
		_, _ = io.CopyN(s.conn, s.r, 1)
		_, _ = s.r.ReadByte()
		s.resets()
	}},
	{name: "TCP: the client resets", port: "tcp", call: func(c *sweepClient) {
		c.echoed("a")
		c.conn.SetLinger(0)
		c.conn.Close()
		c.awaitServer()
	}, serve: func(s *sweepServer) {
		_, _ = io.CopyN(s.conn, s.r, 1)
		s.sawEnd()
	}},
	{name: "TCP: no server", port: "unserved-tcp", call: (*sweepClient).sawEnd},
	{name: "TCP: 200 connections at once", port: "tcp", serve: echoes, call: storm, long: true},
	{name: "200 connections with a request each", call: storm, long: true, serve: func(s *sweepServer) {
		s.write(okResponse)
	}},
}

// storm opens connections at once, each of which gets a response.
func storm(c *sweepClient) {
	responded := make(chan bool)
	for range 200 {
		go func() {
			conn, err := (&net.Dialer{}).DialContext(c.ctx, "tcp", c.address)
			if err != nil {
				responded <- false
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, call("GET", "/"))
			_, err = bufio.NewReader(conn).ReadString('\n')
			responded <- err == nil
		}()
	}
	n := 0
	for range 200 {
		if testwait.Receive(c.t, "a response", responded) {
			n++
		}
	}
	c.saw("client", "%d responses", n)
}

// idleFor is longer than the idle timeouts of the services "short" and "short-tcp".
const idleFor = 3 * time.Second

var sweptTimeouts = []sweepCase{
	{name: "a response after the timeout of requests", port: "short", long: true, send: post("a"),
		serve: func(s *sweepServer) {
			s.reads()
			testwait.Pass(idleFor, "the response is late")
			s.write(okResponse)
		}},
	{name: "a WebSocket that is idle for longer than streamIdleTimeout", port: "short", long: true,
		serve: switches(echoes), call: func(c *sweepClient) {
			c.write(webSocket())
			c.reads("GET")
			testwait.Pass(idleFor, "the WebSocket is idle")
			c.echoed("a")
		}},
	{name: "a WebSocket that lasts longer than requestTimeout", port: "short", long: true,
		serve: switches(echoes), call: func(c *sweepClient) {
			c.write(webSocket())
			c.reads("GET")
			for range 3 {
				testwait.Pass(idleFor/3, "the WebSocket lasts")
				c.echoed("a")
			}
		}},
	{name: "a connection that is idle between requests", long: true, call: func(c *sweepClient) {
		c.write(call("GET", "/"))
		c.reads("GET")
		testwait.Pass(2*idleFor, "the connection is idle for longer than the proxy keeps one to the application")
		c.triesAgain()
	}},
	{name: "TCP: a connection that is idle for longer than idleTimeout", port: "short-tcp", long: true, serve: echoes,
		call: func(c *sweepClient) {
			c.echoed("a")
			testwait.Pass(idleFor, "the connection is idle")
			c.echoed("b")
		}},
	{name: "TCP: a connection that is idle for shorter than idleTimeout", port: "tcp", long: true, serve: echoes,
		call: func(c *sweepClient) {
			c.echoed("a")
			testwait.Pass(idleFor, "the connection is idle")
			c.echoed("b")
		}},
}
