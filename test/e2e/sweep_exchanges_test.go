package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// okResponse is what a server sends by default.
const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// call returns a request without a body.
func call(method, target string, headers ...string) string {
	return method + " " + target + " HTTP/1.1\r\n" + head(append([]string{"Host: web"}, headers...))
}

// post returns a request with a body.
func post(body string, headers ...string) string {
	return call("POST", "/", append(headers, fmt.Sprintf("Content-Length: %d", len(body)))...) + body
}

// reply returns a response with a body.
func reply(status, body string, headers ...string) string {
	return bare(status, append(headers, fmt.Sprintf("Content-Length: %d", len(body)))...) + body
}

// bare returns a response without a body.
func bare(status string, headers ...string) string {
	return "HTTP/1.1 " + status + "\r\n" + head(headers)
}

// head returns the lines of headers and an empty one.
func head(headers []string) string {
	return strings.Join(append(slices.Clone(headers), "\r\n"), "\r\n")
}

// chunks is a body of two chunks, one of which has an extension.
const chunks = "3\r\nabc\r\n2;of=1\r\nde\r\n0\r\n"

// megabytes is a body that exceeds every buffer between client and server.
var megabytes = strings.Repeat("0123456789abcdef", 3<<16)

// manyHeaders returns n short headers.
func manyHeaders(n int) []string { return slices.Repeat([]string{"X-Many: v"}, n) }

// kilobytes returns n headers of 1 KB.
func kilobytes(n int) []string {
	return slices.Repeat([]string{"X-Large: " + strings.Repeat("v", 1013)}, n)
}

// sweepCases are all exchanges.
var sweepCases = slices.Concat(sweptMethods(), sweptTargets(), sweptHeaders, sweptBodies, sweptResponses,
	sweptClosings, sweptUpgrades, sweptStreams, sweptConnections, sweptTimeouts)

func sweptMethods() (cases []sweepCase) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH",
		"PROPFIND", "REPORT", "M-SEARCH", "PURGE", "SPAM", "get"} {
		cases = append(cases, sweepCase{name: "method " + method, send: call(method, "/")})
	}
	return append(cases,
		sweepCase{name: "OPTIONS *", send: call("OPTIONS", "*")},
		sweepCase{name: "CONNECT", send: "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"},
		sweepCase{name: "GET with a body", send: call("GET", "/", "Content-Length: 3") + "abc"},
		sweepCase{name: "DELETE with a body", send: call("DELETE", "/", "Content-Length: 3") + "abc"},
		sweepCase{name: "an absolute URL, as by HTTP_PROXY", send: call("GET", "http://web/path?q=1")},
		sweepCase{name: "an absolute URL of another host", send: call("GET", "http://other:8080/path")},
	)
}

func sweptTargets() (cases []sweepCase) {
	for _, target := range []string{"//a//b", "/a%2fb%2Fc", "/a/../b", "/a/./b/", "/a%2e%2e/b", "/%00", "/ä",
		"/%C3%A4", "/a?b=c&b=d&e", "/a?b=/../c%20d+e", "/?a|b<c>\"d\"", "/a;b=c,d", "/a\\b", "/a#b", "?a", "/a{b}[c]^`",
		"/a?",
		"/~!$&'()*+,;=:@", "/%zz", "/a%"} {
		cases = append(cases, sweepCase{name: "target " + target, send: call("GET", target)})
	}
	for _, size := range []int{8, 30, 59} {
		cases = append(cases, sweepCase{name: fmt.Sprintf("a target of %d KB", size),
			send: call("GET", "/"+strings.Repeat("a", size<<10))})
	}
	return cases
}

var sweptHeaders = []sweepCase{
	{name: "the same header twice", send: call("GET", "/", "X-A: 1", "X-A: 2", "x-a: 3")},
	{name: "the same known header twice", send: call("GET", "/", "Accept: a/b", "Accept: c/d", "Cookie: a=1",
		"Cookie: b=2", "Cache-Control: no-cache", "Cache-Control: no-store")},
	{name: "a header without a value", send: call("GET", "/", "X-A:", "X-B: ")},
	{name: "spaces around a value", send: call("GET", "/", "X-A:1", "X-B: \t a  b \t ")},
	{name: "a folded header", send: call("GET", "/", "X-A: a\r\n b")},
	{name: "a header with an underscore or a dot", send: call("GET", "/", "X_A: 1", "X.B: 2")},
	{name: "odd characters in a name", send: call("GET", "/", "!#$%&'*+-.^_`|~0: 1")},
	{name: "UTF-8 in a value", send: call("GET", "/", "X-A: ä€")},
	{name: "Latin-1 in a value", send: call("GET", "/", "X-A: \xe4\xff")},
	{name: "quotes and commas in a value", send: call("GET", "/", `X-A: "a, b", c;d="e"`)},
	{name: "headers of a browser", send: call("GET", "/", "User-Agent: Mozilla/5.0", "Accept-Encoding: gzip, br",
		"Upgrade-Insecure-Requests: 1", "Origin: null", "Referer: http://a/", "Range: bytes=0-1", "If-None-Match: *",
		"If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT", "Authorization: Basic YTpi", "DNT: 1")},
	{name: "headers of a proxy", send: call("GET", "/", "Via: 1.1 a", "Forwarded: for=1.2.3.4",
		"X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Host: a", "X-Forwarded-Port: 1",
		"X-Real-IP: 1.2.3.4",
		"X-Request-ID: a", "Max-Forwards: 3")},
	{name: "tracing headers", send: call("GET", "/", "Traceparent: 00-1-1-01", "Tracestate: a=b", "B3: 1-1-1",
		"X-B3-TraceId: 1", "X-Datadog-Trace-Id: 1", "Uber-Trace-Id: 1:1:0:1")},
	{name: "headers of Envoy", send: call("GET", "/", "X-Envoy-Max-Retries: 3")},
	{name: "headers of a connection", send: call("GET", "/", "Connection: X-A, keep-alive", "X-A: 1",
		"Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic YTpi")},
	{name: "TE: trailers", send: call("GET", "/", "Connection: TE", "TE: trailers")},
	{name: "TE: gzip", send: call("GET", "/", "Connection: TE", "TE: gzip")},
	{name: "Host with a port", send: "GET / HTTP/1.1\r\nHost: web:10001\r\n\r\n"},
	{name: "Host with capitals", send: "GET / HTTP/1.1\r\nHost: Web.Example\r\n\r\n"},
	{name: "Host with a dot at the end", send: "GET / HTTP/1.1\r\nHost: web.\r\n\r\n"},
	{name: "Host with an underscore", send: "GET / HTTP/1.1\r\nHost: a_b\r\n\r\n"},
	{name: "Host of IPv6", send: "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"},
	{name: "an empty line before the request", send: "\r\n" + call("GET", "/")},
	{name: "lines that end with LF alone", send: "GET / HTTP/1.1\nHost: web\nX-A: 1\n\n"},
	{name: "99 headers", send: call("GET", "/", manyHeaders(98)...)},
	{name: "150 headers", send: call("GET", "/", manyHeaders(149)...)},
	{name: "headers of 50 KB", send: call("GET", "/", kilobytes(50)...)},
	{name: "headers of 59 KB", send: call("GET", "/", kilobytes(59)...)},
	{name: "headers of 70 KB", send: call("GET", "/", kilobytes(70)...)},
	{name: "one header of 50 KB", send: call("GET", "/", "X-A: "+strings.Repeat("v", 50<<10))},
	{name: "HTTP/1.0", send: "GET / HTTP/1.0\r\n\r\n"},
	{name: "HTTP/1.0 with a host and Keep-Alive",
		send: "GET / HTTP/1.0\r\nHost: web\r\nConnection: keep-alive\r\n\r\n"},
	{name: "Connection: close", send: call("GET", "/", "Connection: close")},
	{name: "two requests in one packet", call: func(c *sweepClient) {
		c.write(call("GET", "/1") + call("GET", "/2"))
		c.reads(http.MethodGet)
		c.reads(http.MethodGet)
	}},
}

var sweptBodies = []sweepCase{
	{name: "a body of 0 bytes", send: post("")},
	{name: "a body of 1 byte", send: post("a")},
	{name: "a body of 3 MB", send: post(megabytes)},
	{name: "a body in chunks", send: call("POST", "/", "Transfer-Encoding: chunked") + chunks + "\r\n"},
	{name: "a body of no chunks", send: call("POST", "/", "Transfer-Encoding: chunked") + "0\r\n\r\n"},
	{name: "a body in chunks with trailers", send: call("POST", "/", "Transfer-Encoding: chunked", "Trailer: X-T") +
		chunks + "X-T: 1\r\n\r\n"},
	{name: "a POST without a length", send: call("POST", "/")},
	{name: "Content-Type and Content-Encoding", send: post("a", "Content-Type: application/json; charset=utf-8",
		"Content-Encoding: gzip", "Content-MD5: a")},
	{name: "a body of binary data", send: post("\x00\xff\r\n\r\n\x1f\x8b")},
	{name: "Expect: 100-continue", call: expects, serve: func(s *sweepServer) {
		if s.request.header("expect") != "" {
			s.write("HTTP/1.1 100 Continue\r\n\r\n")
		}
		s.reads()
		s.write(okResponse)
	}},
	{name: "Expect: 100-continue that the server rejects", call: expects, serve: func(s *sweepServer) {
		s.write(reply("417 Expectation Failed", "no", "Connection: close"))
	}},
	{name: "Expect: 100-continue at a server without it", send: post("abc", "Expect: 100-continue")},
	{name: "a response before the body", call: func(c *sweepClient) {
		c.write(call("POST", "/", "Content-Length: 100"))
		c.reads("POST")
	}, serve: func(s *sweepServer) { s.write(reply("413 Content Too Large", "no", "Connection: close")) }},
}

// expects sends headers, waits for a response, and sends the body if it is 100.
func expects(c *sweepClient) {
	c.write(call("POST", "/", "Expect: 100-continue", "Content-Length: 3"))
	interim, err := readMessage(c.r)
	if err != nil {
		c.saw("client", "the connection ends")
		return
	}
	c.sawMessage("client", interim.start, interim)
	if interim.status() == http.StatusContinue {
		c.write("abc")
		c.reads("POST")
	}
}

var sweptResponses = []sweepCase{
	{name: "a response of 0 bytes", send: call("GET", "/"), respond: reply("200 OK", "")},
	{name: "a response of 3 MB", send: call("GET", "/"), respond: reply("200 OK", megabytes)},
	{name: "a response in chunks", send: call("GET", "/"),
		respond: bare("200 OK", "Transfer-Encoding: chunked") + chunks + "\r\n"},
	{name: "a response in chunks with trailers", send: call("GET", "/", "TE: trailers"),
		respond: bare("200 OK", "Transfer-Encoding: chunked", "Trailer: X-T") + chunks + "X-T: 1\r\n\r\n"},
	{name: "a response that ends with its connection", send: call("GET", "/"), respond: bare("200 OK") + "abc",
		closes: true},
	{name: "the response to a HEAD with a length", send: call("HEAD", "/"),
		respond: bare("200 OK", "Content-Length: 5")},
	{name: "the response to a HEAD in chunks", send: call("HEAD", "/"),
		respond: bare("200 OK", "Transfer-Encoding: chunked")},
	{name: "the response to a HEAD with a body", send: call("HEAD", "/"),
		respond: reply("200 OK", "abc"), closes: true},
	{name: "204", send: call("GET", "/"), respond: bare("204 No Content")},
	{name: "204 with a length", send: call("GET", "/"), respond: bare("204 No Content", "Content-Length: 0")},
	{name: "204 with a body", send: call("GET", "/"), respond: reply("204 No Content", "abc"), closes: true},
	{name: "304", send: call("GET", "/"), respond: bare("304 Not Modified", `ETag: "a"`)},
	{name: "304 with a length", send: call("GET", "/"), respond: bare("304 Not Modified", "Content-Length: 5")},
	{name: "205", send: call("GET", "/"), respond: reply("205 Reset Content", "")},
	{name: "206", send: call("GET", "/"), respond: reply("206 Partial Content", "ab", "Content-Range: bytes 0-1/5")},
	{name: "301 to an absolute URL", send: call("GET", "/"), respond: reply("301 Moved Permanently", "",
		"Location: http://web:18080/a")},
	{name: "401 and 407", send: call("GET", "/"), respond: reply("401 Unauthorized", "", "WWW-Authenticate: Basic",
		`WWW-Authenticate: Bearer realm="a"`, "Proxy-Authenticate: Basic")},
	{name: "404", send: call("GET", "/"), respond: reply("404 Not Found", "no")},
	{name: "426", send: call("GET", "/"), respond: reply("426 Upgrade Required", "", "Upgrade: h2c",
		"Connection: Upgrade")},
	{name: "429", send: call("GET", "/"), respond: reply("429 Too Many Requests", "", "Retry-After: 1")},
	{name: "500", send: call("GET", "/"), respond: reply("500 Internal Server Error", "no")},
	{name: "503", send: call("GET", "/"), respond: reply("503 Service Unavailable", "no", "Retry-After: 1")},
	{name: "503 to a POST", send: post("a"), respond: reply("503 Service Unavailable", "no")},
	{name: "299", send: call("GET", "/"), respond: reply("299 Fine", "")},
	{name: "599", send: call("GET", "/"), respond: reply("599 Odd", "")},
	{name: "a reason of the application", send: call("GET", "/"), respond: reply("404 No such shop", "")},
	{name: "a response without a reason", send: call("GET", "/"), respond: reply("404 ", "")},
	{name: "100 that was not asked for", send: call("GET", "/"), respond: bare("100 Continue") + okResponse},
	{name: "102", send: call("GET", "/"), respond: bare("102 Processing") + okResponse},
	{name: "103", send: call("GET", "/"),
		respond: bare("103 Early Hints", "Link: </a>; rel=preload") + okResponse},
	{name: "headers of a response", send: call("GET", "/"), respond: reply("200 OK", "", "Server: a", "X-Powered-By: b",
		"Set-Cookie: a=1; Path=/", "Set-Cookie: b=2", "Vary: a", "Vary: b", "Cache-Control: no-store", "ETag: W/\"a\"",
		"Strict-Transport-Security: max-age=1", "Alt-Svc: h2=\":443\"", "Via: 1.1 a", "Age: 1", "X_A: 1", "X-B:",
		"Keep-Alive: timeout=5", "Content-Type: text/html", "Content-Encoding: gzip")},
	{name: "UTF-8 in a header of a response", send: call("GET", "/"), respond: reply("200 OK", "", "X-A: ä")},
	{name: "Latin-1 in a header of a response", send: call("GET", "/"), respond: reply("200 OK", "", "X-A: \xe4")},
	{name: "lines of a response that end with LF alone", send: call("GET", "/"),
		respond: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
	{name: "a response of HTTP/1.0", send: call("GET", "/"), respond: "HTTP/1.0 200 OK\r\n\r\nok", closes: true},
	{name: "a response with 150 headers", send: call("GET", "/"), respond: reply("200 OK", "", manyHeaders(149)...)},
	{name: "a response with headers of 50 KB", send: call("GET", "/"), respond: reply("200 OK", "", kilobytes(50)...)},
	{name: "a response with headers of 70 KB", send: call("GET", "/"), respond: reply("200 OK", "", kilobytes(70)...)},
	{name: "Connection: close of the server", send: call("GET", "/"),
		respond: reply("200 OK", "ok", "Connection: close"),
		closes:  true},
}
