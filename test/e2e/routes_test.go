package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weft/internal/traffic"
)

// nextServer is a second version of the services "http" and "tcp" of threeProtocols.
const nextServer = `
type: Dataplane
mesh: default
name: next-1
labels: {kuma.io/workload: next}
networking:
  address: NET.4
  inbound:
  - {port: 20080, servicePort: 18080, serviceAddress: NET.4, protocol: http, tags: {kuma.io/service: next}}
  - {port: 20082, servicePort: 18081, serviceAddress: NET.4, protocol: tcp, tags: {kuma.io/service: next-tcp}}
`

// httpRoute is a MeshHTTPRoute of the client for requests to the service "http".
func httpRoute(rules string) string {
	return "type: MeshHTTPRoute\nmesh: default\nname: r\nspec: {targetRef: {kind: Dataplane, labels: " +
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: MeshService, name: http}, rules: [" + rules + "]}]}\n"
}

// toNext is a rule that leads requests with a match to the service "next".
func toNext(match string) string {
	return "{matches: [" + match + "], default: {backendRefs: [{kind: MeshService, name: next, port: 20080}]}}"
}

// filtered is a rule with filters for requests below /f.
func filtered(filters string) string {
	return "{matches: [{path: {type: PathPrefix, value: /f}}], default: {filters: [" + filters + "]}}"
}

// tcpRoute is a MeshTCPRoute of the client for connections to a service.
func tcpRoute(service, backends string) string {
	return "type: MeshTCPRoute\nmesh: default\nname: c\nspec: {targetRef: {kind: Dataplane, labels: " +
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: MeshService, name: " + service + "}, rules: [{default: " +
		"{backendRefs: [" + backends + "]}}]}]}\n"
}

// arrived is a request as an application got it.
type arrived struct {
	By, Method, URL, Host string
	Header                http.Header
}

// routedWorld is a mesh with two versions of the services "http" and "tcp", and a client.
type routedWorld struct {
	*world
	url string
	mu  sync.Mutex
	got []arrived // all requests at the applications
}

func newRoutedWorld(t *testing.T) *routedWorld {
	w := &routedWorld{world: newWorld(t)}
	w.apply(secured)
	w.application(2, "web")
	w.application(4, "next")
	w.echo(2, 18081)
	w.respondTo(4, 18081, "next")
	w.proxies("default", threeProtocols("web-1", "NET.2"), nextServer, everyCaller)
	w.url = fmt.Sprintf("http://%s:10001", w.address(3))
	w.eventually("a request passes", func() error { return get(w.url + "/") })
	return w
}

// application records the requests that it gets. Below /f/stall and /api/stall, it does not respond.
func (w *routedWorld) application(host int, name string) {
	server := w.service(host, 18080, name)
	server.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen := arrived{name, r.Method, r.URL.String(), r.Host, r.Header}
		w.mu.Lock()
		w.got = append(w.got, seen)
		w.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/stall") {
			<-r.Context().Done()
			return
		}
		rw.Header()["X-Old"], rw.Header()["X-Gone"] = []string{"old"}, []string{"gone"}
		_ = json.NewEncoder(rw).Encode(seen)
	})
}

// respondTo serves TCP connections, and responds to each byte with a text.
func (w *world) respondTo(host, port int, text string) {
	l := w.listen(host, port)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for one := make([]byte, 4); ; {
					if _, err := io.ReadFull(conn, one); err != nil {
						return
					}
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// send sends a request, such as "GET /a" with the headers "name: value", without following redirects.
func (w *routedWorld) send(request string, headers ...string) (*http.Response, arrived, error) {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, w.url+path, nil)
	if err != nil {
		return nil, arrived{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	response, err := client.Transport.RoundTrip(r)
	if err != nil {
		return nil, arrived{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var seen arrived
	_ = json.Unmarshal(body, &seen) // the proxy's own responses are text
	return response, seen, err
}

// servedBy requires which application responds to a request.
func (w *routedWorld) servedBy(name, request string, headers ...string) func() error {
	return func() error {
		response, seen, err := w.send(request, headers...)
		if err == nil && seen.By != name {
			err = fmt.Errorf("%s %v: %s by %q, want %s", request, headers, response.Status, seen.By, name)
		}
		return err
	}
}

// responds requires the status of a response, and values of its headers.
func (w *routedWorld) responds(status int, request string, want map[string]string) func() error {
	return func() error {
		response, _, err := w.send(request)
		if err != nil {
			return err
		}
		if response.StatusCode != status {
			return fmt.Errorf("%s: %s, want %d", request, response.Status, status)
		}
		for name, value := range want {
			if got := strings.Join(response.Header.Values(name), ","); got != value {
				return fmt.Errorf("%s: the header %s is %q, want %q", request, name, got, value)
			}
		}
		return nil
	}
}

// arrives requires that an application gets a request in a form.
func (w *routedWorld) arrives(request string, check func(arrived) error) func() error {
	return func() error {
		response, seen, err := w.send(request, "x-set: old", "x-add: old", "x-remove: old")
		if err == nil && seen.By == "" {
			err = errors.New(response.Status)
		}
		if err != nil {
			return err
		}
		return check(seen)
	}
}

func expect(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}

func all(checks ...func() error) func() error {
	return func() error {
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	}
}

// shares sends 200 requests and requires the number that each status or application gets, within a range.
func (w *routedWorld) shares(request string, low, high int, of func(*http.Response, arrived) bool) func() error {
	return func() error {
		n := 0
		for range 200 {
			response, seen, err := w.send(request)
			if err != nil {
				return err
			}
			if of(response, seen) {
				n++
			}
		}
		if n < low || n > high {
			return fmt.Errorf("%d of 200, want %d to %d", n, low, high)
		}
		return nil
	}
}

// TestRoutesHaveTheirEffect: each field of a MeshHTTPRoute does to requests what it says, in one mesh of Envoys.
func TestRoutesHaveTheirEffect(t *testing.T) {
	w := newRoutedWorld(t)
	byNext := func(_ *http.Response, seen arrived) bool { return seen.By == "next" }
	path := func(kind, value string) string {
		return toNext(fmt.Sprintf("{path: {type: %s, value: %q}}", kind, value))
	}
	header := func(match string) string { return toNext("{headers: [" + match + "]}") }
	query := func(match string) string { return toNext("{queryParams: [" + match + "]}") }
	for _, c := range []struct {
		field, rules string
		effect       func() error
	}{
		{"path Exact", path("Exact", "/a"), all(w.servedBy("next", "GET /a?q=1"), w.servedBy("web", "GET /a/b"))},
		{"path PathPrefix", path("PathPrefix", "/b"), all(w.servedBy("next", "POST /b"), w.servedBy("next", "GET /b/c"),
			w.servedBy("web", "GET /bc"))},
		{"path RegularExpression", path("RegularExpression", "/c/[0-9]+"), all(w.servedBy("next", "GET /c/12?a=b"),
			w.servedBy("web", "GET /c/12/d"))},
		{"method", toNext("{method: PUT}"), all(w.servedBy("next", "PUT /"), w.servedBy("web", "POST /"))},
		{"header Exact", header("{name: x-a, value: b}"), all(w.servedBy("next", "GET /", "X-A: b"),
			w.servedBy("web", "GET /", "X-A: bc"), w.servedBy("web", "GET /"))},
		{"header Prefix", header("{type: Prefix, name: x-b, value: b}"), all(w.servedBy("next", "GET /", "X-B: bc"),
			w.servedBy("web", "GET /", "X-B: cb"))},
		{"header RegularExpression", header(`{type: RegularExpression, name: x-c, value: "[0-9]+"}`),
			all(w.servedBy("next", "GET /", "X-C: 12"), w.servedBy("web", "GET /", "X-C: 12a"))},
		{"header Present", header("{type: Present, name: x-d}"), all(w.servedBy("next", "GET /", "X-D: any"),
			w.servedBy("web", "GET /"))},
		{"header Absent", header("{type: Absent, name: x-e}"), all(w.servedBy("next", "GET /"),
			w.servedBy("web", "GET /", "X-E: any"))},
		{"query Exact", query("{type: Exact, name: v, value: b}"), all(w.servedBy("next", "GET /?a=1&v=b"),
			w.servedBy("web", "GET /?v=bc"), w.servedBy("web", "GET /"))},
		{"query RegularExpression", query(`{type: RegularExpression, name: v, value: "[0-9]+"}`),
			all(w.servedBy("next", "GET /?v=12"), w.servedBy("web", "GET /?v=1a"))},
		{"several matches", toNext("{path: {type: Exact, value: /x}, method: GET}, {headers: [{name: x-f, value: g}]}"),
			all(w.servedBy("next", "GET /x"), w.servedBy("web", "POST /x"), w.servedBy("next", "POST /x", "X-F: g"))},
		{"the order of rules", path("PathPrefix", "/o") + ", {matches: [{path: {type: PathPrefix, value: /o/own}}], " +
			"default: {backendRefs: [{kind: MeshService, name: http, port: 20080}]}}",
			all(w.servedBy("next", "GET /o/x"), w.servedBy("web", "GET /o/own/x"))},
		{"weight", "{matches: [{path: {type: PathPrefix, value: /w}}], default: {backendRefs: [{kind: MeshService, " +
			"name: http, port: 20080, weight: 90}, {kind: MeshService, name: next, port: 20080, weight: 10}]}}",
			w.shares("GET /w", 5, 45, byNext)},
		{"weight 0", "{matches: [{path: {type: PathPrefix, value: /z}}], default: {backendRefs: [{kind: MeshService, " +
			"name: http, port: 20080, weight: 0}, {kind: MeshService, name: next, port: 20080}]}}",
			w.shares("GET /z", 200, 200, byNext)},
		{"no weight", "{matches: [{path: {type: PathPrefix, value: /n}}], default: {backendRefs: [{kind: " +
			"MeshService, " +
			"name: http, port: 20080, weight: 0}]}}", w.responds(503, "GET /n", nil)},
		{"a backend that does not exist", "{matches: [{path: {type: PathPrefix, value: /g}}], default: {backendRefs: " +
			"[{kind: MeshService, name: gone, port: 20080}]}}",
			all(w.responds(500, "GET /g", nil), w.servedBy("web", "GET /"))},
		{"one of two backends that does not exist", "{matches: [{path: {type: PathPrefix, value: /h}}], default: " +
			"{backendRefs: [{kind: MeshService, name: gone, port: 20080}, {kind: MeshService, name: next, port: " +
			"20080}]}}",
			all(w.shares("GET /h", 60, 140, byNext), w.shares("GET /h", 60, 140, func(r *http.Response,
				_ arrived) bool {
				return r.StatusCode == 500
			}))},
		{"requestHeaderModifier", filtered("{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: " +
			"X-Set, " +
			"value: '100%'}], add: [{name: x-add, value: '%REQ(x-set)%'}], remove: [X-Remove]}}"),
			w.arrives("GET /f", func(seen arrived) error {
				return errors.Join(expect("x-set", seen.Header["X-Set"], "[100%]"),
					expect("x-remove", seen.Header["X-Remove"], "[]"), expect("x-add", len(seen.Header["X-Add"]), 2))
			})},
		{"responseHeaderModifier", filtered("{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: " +
			"x-old, " +
			"value: new}], add: [{name: x-new, value: 'a%%b'}], remove: [x-gone]}}"),
			w.responds(200, "GET /f", map[string]string{"x-old": "new", "x-new": "a%b", "x-gone": ""})},
		{"requestRedirect", filtered("{type: RequestRedirect, requestRedirect: {scheme: https, hostname: h.example, " +
			"port: 8443, path: {type: ReplaceFullPath, replaceFullPath: /new}, statusCode: 308}}"),
			w.responds(308, "GET /f/a?b=c", map[string]string{"location": "https://h.example:8443/new?b=c"})},
		{"requestRedirect of a prefix", filtered("{type: RequestRedirect, requestRedirect: {hostname: h.example, " +
			"path: " +
			"{type: ReplacePrefixMatch, replacePrefixMatch: /v2}}}"),
			w.responds(302, "GET /f/a?b=c", map[string]string{"location": "http://h.example/v2/a?b=c"})},
		{"requestRedirect of a scheme", filtered("{type: RequestRedirect, requestRedirect: {scheme: https, hostname: " +
			"h.example, statusCode: 303}}"), w.responds(303, "GET /f",
			map[string]string{"location": "https://h.example/f"})},
		{"urlRewrite.hostname", filtered("{type: URLRewrite, urlRewrite: {hostname: h.example}}"),
			w.arrives("GET /f", func(seen arrived) error { return expect("host", seen.Host, "h.example") })},
		{"urlRewrite of a prefix", filtered("{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, " +
			"replacePrefixMatch: /v2}}}"),
			all(w.arrives("GET /f/users?a=b", func(seen arrived) error {
				return expect("URL", seen.URL,
					"/v2/users?a=b")
			}),
				w.arrives("GET /f?a=b", func(seen arrived) error { return expect("URL", seen.URL, "/v2?a=b") }))},
		{"urlRewrite of a prefix to the root", filtered("{type: URLRewrite, urlRewrite: {path: {type: " +
			"ReplacePrefixMatch, replacePrefixMatch: /}}}"),
			all(w.arrives("GET /f/users", func(seen arrived) error { return expect("URL", seen.URL, "/users") }),
				w.arrives("GET /f", func(seen arrived) error { return expect("URL", seen.URL, "/") }))},
		{"urlRewrite of a whole path", filtered(`{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, ` +
			`replaceFullPath: '/a\1'}}}`),
			w.arrives("GET /f/x?a=b", func(seen arrived) error { return expect("URL", seen.URL, `/a%5C1?a=b`) })},
		{"requestMirror", filtered("{type: RequestMirror, requestMirror: {backendRef: {kind: MeshService, name: " +
			"next, " +
			"port: 20080}}}"), all(w.servedBy("web", "GET /f/mirrored"), func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !slices.ContainsFunc(w.got, func(seen arrived) bool {
				return seen.By == "next" && seen.URL == "/f/mirrored" && strings.Contains(seen.Host, "-shadow")
			}) {
				return errors.New("next has got no copy")
			}
			return nil
		})},
		{"a MeshTimeout of the route", "{matches: [{path: {type: PathPrefix, value: /f}}], default: {backendRefs: " +
			"[{kind: MeshService, name: next, port: 20080}]}}\n---\n", nil},
	} {
		if c.effect == nil { // the last one: a second policy about the route
			w.apply(httpRoute(strings.TrimSuffix(c.rules, "\n---\n")))
			w.apply("type: MeshTimeout\nmesh: default\nname: t\nspec: {to: [{targetRef: {kind: MeshHTTPRoute, name: " +
				"r}, " +
				"default: {http: {requestTimeout: 300ms}}}]}\n")
			c.effect = w.responds(504, "GET /f/stall", nil)
		} else {
			w.apply(httpRoute(c.rules))
		}
		w.eventually("the effect of "+c.field, c.effect)
	}
	w.apply(httpRoute(toNext("{method: PATCH}") + ", {matches: [{method: PUT}], default: {backendRefs: [{kind: " +
		"MeshService, " +
		"name: gone, port: 1}]}}"))
	w.eventually("the condition of a backend that does not exist", func() error {
		out, err := w.weft("get", "meshhttproute", "r", "-o", "json")
		if err == nil && !strings.Contains(out, "to[0].rules[1].default.backendRefs[0]: there is no MeshService gone "+
			"in the "+
			"zone default") {
			err = errors.New(out)
		}
		return err
	})
}

// said exchanges bytes on a new connection to the client's port of "tcp", in one attempt of many.
func (w *world) said() (response string, err error) {
	err = w.converseOnce(w.address(3)+":10003", func(conn net.Conn) (err error) {
		response, err = exchange(conn, "weft")
		return err
	})
	return response, err
}

// TestTCPRoutesHaveTheirEffect: weights are shares of new connections and, on an HTTP port, of requests. Without a
// backend that exists, connections are closed.
func TestTCPRoutesHaveTheirEffect(t *testing.T) {
	w := newRoutedWorld(t)
	w.eventually("a connection passes", func() error { _, err := w.said(); return err })
	w.apply(tcpRoute("tcp", "{kind: MeshService, name: tcp, port: 20082, weight: 1}, {kind: MeshService, name: "+
		"next-tcp, "+
		"port: 20082, weight: 3}, {kind: MeshService, name: gone, port: 1, weight: 100}"))
	w.eventually("three of four connections go to next-tcp", func() error {
		n := 0
		for range 100 {
			text, err := w.said()
			if err != nil {
				return err
			}
			if text == "next" {
				n++
			}
		}
		if n < 55 || n > 95 {
			return fmt.Errorf("%d of 100", n)
		}
		return nil
	})
	w.apply(tcpRoute("tcp", "{kind: MeshService, name: gone, port: 1}"))
	w.eventually("connections are closed", func() error {
		if text, err := w.said(); err == nil {
			return fmt.Errorf("got %q", text)
		}
		return nil
	})
	w.apply(tcpRoute("http", "{kind: MeshService, name: http, port: 20080}, {kind: MeshService, name: next, port: "+
		"20080}"))
	w.eventually("half of the requests go to next", w.shares("GET /", 60, 140, func(_ *http.Response,
		seen arrived) bool {
		return seen.By == "next"
	}))
}

// TestDrillRoutesAreEdited: an edited route changes no listener.
func TestDrillRoutesAreEdited(t *testing.T) {
	w := newRoutedWorld(t)
	for name, edit := range map[string]func(*routedWorld, *testing.T){
		"MeshHTTPRoute": (*routedWorld).editHTTPRoute, "MeshTCPRoute": (*routedWorld).editTCPRoute,
	} {
		t.Run(name, func(t *testing.T) {
			before := w.counter("client", listenerChanges)
			edit(w, t)
			if after := w.counter("client", listenerChanges); after != before {
				t.Errorf("the edits changed listeners: %d changes before, %d after", before, after)
			}
		})
	}
}

// editHTTPRoute shifts weights and edits filters, and fails no request.
func (w *routedWorld) editHTTPRoute(*testing.T) {
	d := w.drill("a MeshHTTPRoute is edited, ten times", traffic.Get(w.url+"/w"))
	for i := range 11 {
		updates := w.counter("client", `http\.[^:]*\.rds\.kri_msvc_default_[^:]*__http_20080\.config_reload`)
		w.apply(httpRoute(fmt.Sprintf("{matches: [{path: {type: PathPrefix, value: /w}}], default: {filters: [{type: "+
			"RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-edit, value: '%d'}]}}], backendRefs: "+
			"[{kind: "+
			"MeshService, name: http, port: 20080, weight: %d}, {kind: MeshService, name: next, port: 20080, weight: "+
			"%d}]}}", i, 10-i, i)))
		w.eventually("the edit has arrived", func() error {
			now := w.counter("client", `http\.[^:]*\.rds\.kri_msvc_default_[^:]*__http_20080\.config_reload`)
			if now <= updates {
				return fmt.Errorf("%d reloads", now)
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
}

// editTCPRoute shifts weights: open connections stay where they are, and new ones follow.
func (w *routedWorld) editTCPRoute(t *testing.T) {
	w.eventually("a connection passes", func() error { _, err := w.said(); return err })
	open, err := net.Dial("tcp", w.address(3)+":10003")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, backend := range []struct{ name, text string }{{"next-tcp", "next"}, {"tcp", "weft"}, {"next-tcp", "next"}} {
		w.apply(tcpRoute("tcp", "{kind: MeshService, name: "+backend.name+", port: 20082}"))
		w.eventually("new connections go to "+backend.name, func() error {
			text, err := w.said()
			return errors.Join(err, expect("the response", text, backend.text))
		})
		if text, err := exchange(open, "weft"); err != nil || text != "weft" {
			t.Fatalf("the open connection got %q: %v", text, err)
		}
	}
}
