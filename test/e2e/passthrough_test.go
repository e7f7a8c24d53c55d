package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"weft/internal/demo"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// outside is servers outside the mesh, and a client whose connections to them are redirected to its proxy.
type outside struct {
	*world
	client *machine
}

// Ports of the servers outside the mesh.
const (
	greetingPort  = "19306" // the server sends first, and then what it receives
	encryptedPort = "19443"
	requestsPort  = "19000" // HTTP/1.1 and HTTP/2 without TLS
)

func newOutside(t *testing.T) *outside {
	wantRoot(t)
	w := newWorld(t)
	w.apply(secured)
	router := newRouter(t)
	client := w.redirected(router, "client", "3")
	w.serve(router.listen(t, ":"+requestsPort), "outside")
	w.greeting(router.listen(t, ":"+greetingPort))
	w.greeting(tls.NewListener(router.listen(t, ":"+encryptedPort), anyCertificate(t)))
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))
	return &outside{w, client}
}

// greeting sends a greeting on each connection, and then what it receives.
func (w *world) greeting(l net.Listener) {
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.WriteString(conn, "hello"); err == nil {
					io.Copy(conn, conn)
				}
			}()
		}
	}()
}

func anyCertificate(t *testing.T) *tls.Config {
	t.Helper()
	config, err := demo.AnyCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// try makes a connection as its words say: tcp or tcp6, tls SNI, http HOST, http-once HOST with `Connection: close`, or
// http2 HOST.
func (o *outside) try(ctx context.Context, probe string) error {
	of, name, _ := strings.Cut(probe, " ")
	switch of {
	case "http", "http-once", "http2":
		return o.request(ctx, of, name)
	case "tls":
		return converse(ctx, o.client.dial, net.JoinHostPort(routerAtClient, encryptedPort), func(c net.Conn) error {
			return greeted(tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}))
		})
	case "tcp6":
		return converse(ctx, o.client.dial, net.JoinHostPort(router6AtClient, greetingPort), greetedFirst)
	}
	return converse(ctx, o.client.dial, net.JoinHostPort(routerAtClient, greetingPort), greetedFirst)
}

// tryOnce is try in one attempt of many.
func (o *outside) tryOnce(probe string) error {
	return attempt(o.t, func(ctx context.Context) error { return o.try(ctx, probe) })
}

// greetedFirst expects a greeting before it sends anything. A proxy that inspects first bytes waits 15 s for them, so
// that it gets some after a while.
func greetedFirst(conn net.Conn) error {
	go func() {
		testwait.Pass(time.Second, "a forwarded connection has a greeting by then")
		_, _ = io.WriteString(conn, "\x00\r\n\r\n") // the connection may be closed
	}()
	return greeted(conn)
}

// greeted expects a greeting.
func greeted(conn net.Conn) error {
	said := make([]byte, 5)
	if _, err := io.ReadFull(conn, said); err != nil {
		return err
	}
	if string(said) != "hello" {
		return fmt.Errorf("it says %q", said)
	}
	return nil
}

func (o *outside) request(ctx context.Context, version, host string) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version != "http2")
	protocols.SetUnencryptedHTTP2(version == "http2")
	c := &http.Client{Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: version == "http-once",
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return o.client.dial(ctx, "tcp", net.JoinHostPort(routerAtClient, requestsPort))
		}}}
	defer c.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":"+requestsPort+"/", nil)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// passthroughPolicy is a MeshPassthrough of the whole mesh with a conf.
func passthroughPolicy(conf string) string {
	return fmt.Sprintf("type: MeshPassthrough\nmesh: default\nname: p\nspec: {default: {%s}}\n", conf)
}

// TestPassthroughHasItsEffect: each field of a MeshPassthrough decides which redirected connections are forwarded, and
// no edit closes or drains an open one.
func TestPassthroughHasItsEffect(t *testing.T) {
	o := newOutside(t)
	every := []string{"tcp", "tcp6", "tls a.example", "tls b.a.example", "tls other.test", "http a.example",
		"http b.a.example", "http other.test", "http2 a.example", "http-once a.example"}
	o.eventually("every connection is forwarded without a policy", func() error { return o.all(every, every) })

	const tlsOf = "{type: Domain, protocol: tls, value: %q}"
	keep := fmt.Sprintf(tlsOf, "kept.example")
	o.apply(passthroughPolicy("appendMatch: [{type: IP, value: 10.0.3.1}, " + keep + "]"))
	o.eventually("connections to an address are forwarded", func() error { return o.tryOnce("tcp") })
	open := map[string]net.Conn{}
	for name, port := range map[string]string{"to an address": greetingPort, "to a domain": encryptedPort} {
		conn, err := o.client.dial(t.Context(), "tcp", net.JoinHostPort(routerAtClient, port))
		if err != nil {
			t.Fatal(err)
		}
		if port == encryptedPort {
			conn = tls.Client(conn, &tls.Config{ServerName: "kept.example", InsecureSkipVerify: true})
		}
		conn.SetDeadline(testwait.Deadline())
		if err := greeted(conn); err != nil {
			t.Fatalf("the connection %s: %v", name, err)
		}
		open[name] = conn
	}

	for _, c := range []struct {
		conf   string
		passed []string
	}{
		{"passthroughMode: None", nil},
		{"passthroughMode: None, appendMatch: [{type: IP, value: 10.0.3.1}]", nil},
		{"passthroughMode: All", every},
		{"passthroughMode: Matched", nil},
		{"appendMatch: [{type: IP, value: 10.0.3.1, port: 19306, protocol: mysql}]", []string{"tcp"}},
		{"appendMatch: [{type: IP, value: 10.0.3.1, port: 19307}]", nil},
		{`appendMatch: [{type: CIDR, value: "fd00:3::/64"}]`, []string{"tcp6"}},
		{"appendMatch: [{type: CIDR, value: 10.0.0.0/8}]", []string{"tcp", "tls a.example", "tls b.a.example",
			"tls other.test", "http a.example", "http b.a.example", "http other.test", "http2 a.example",
			"http-once a.example"}},
		{"appendMatch: [" + fmt.Sprintf(tlsOf, "a.example") + "]", []string{"tls a.example"}},
		{"appendMatch: [" + fmt.Sprintf(tlsOf, "*.example") + "]", []string{"tls a.example", "tls b.a.example"}},
		{`appendMatch: [{type: Domain, value: "*", protocol: tls, port: 19443}]`, []string{"tls a.example",
			"tls b.a.example", "tls other.test"}},
		{`appendMatch: [{type: Domain, value: "*", protocol: tls, port: 443}]`, nil},
		{"appendMatch: [{type: Domain, value: a.example, protocol: http, port: 19000}]", []string{"http a.example",
			"http-once a.example", "http2 a.example"}},
		{"appendMatch: [{type: Domain, value: b.a.example, protocol: http, port: 19000}, " +
			fmt.Sprintf(tlsOf, "other.test") + "]", []string{"http b.a.example", "tls other.test"}},
		{"appendMatch: [{type: Domain, value: a.example, protocol: http, port: 80}]", nil},
		{"appendMatch: [{type: Domain, value: other.test, protocol: grpc}]", []string{"http other.test"}},
		{`appendMatch: [{type: Domain, value: "*.a.example", protocol: http2, port: 19000}, {type: Domain, ` +
			`value: b.a.example, protocol: http, port: 80}]`, []string{"http b.a.example"}},
		{`appendMatch: [{type: Domain, value: "*", protocol: http, port: 19000}]`, []string{"http a.example",
			"http b.a.example", "http other.test", "http2 a.example", "http-once a.example"}},
		{"appendMatch: [{type: IP, value: 10.0.3.1, protocol: tls}]", []string{"tls a.example", "tls b.a.example",
			"tls other.test"}},
		{"appendMatch: [{type: IP, value: 10.0.3.1, protocol: http}]", []string{"http a.example", "http b.a.example",
			"http other.test", "http2 a.example", "http-once a.example"}},
		// A server that sends first does so beside rules that inspect other connections.
		{"appendMatch: [{type: IP, value: 10.0.3.1, port: 19306}, " + fmt.Sprintf(tlsOf, "a.example") + "]",
			[]string{"tcp", "tls a.example"}},
	} {
		o.apply(passthroughPolicy(c.conf))
		o.eventually(c.conf, func() error { return o.all(every, c.passed) })
	}
	for name, conn := range open {
		if err := says(conn, "weft"); err != nil {
			t.Errorf("the connection %s is closed: %v", name, err)
		}
		conn.Close()
	}
	if n := o.counter("client", `listener_manager\.listener_in_place_updated`); n == 0 {
		t.Error("no listener was changed in place")
	}
	for _, statistic := range []string{"total_filter_chains_draining", "total_listeners_draining",
		"listener_modified"} {
		n := o.counter("client", `listener_manager\.`+statistic)
		if statistic == "listener_modified" {
			n -= o.counter("client", `listener_manager\.listener_in_place_updated`)
		}
		if n != 0 {
			t.Errorf("%s is %d", statistic, n)
		}
	}
	if _, err := o.weft("delete", "meshpassthrough", "p"); err != nil {
		t.Fatal(err)
	}
	o.eventually("every connection is forwarded again", func() error { return o.all(every, every) })
}

// all tries connections, of which some pass.
func (o *outside) all(probes, passed []string) error {
	results := make(chan error, len(probes))
	for _, probe := range probes {
		go func() {
			err := o.tryOnce(probe)
			want := strings.Contains("\n"+strings.Join(passed, "\n")+"\n", "\n"+probe+"\n")
			switch {
			case want && err != nil:
				results <- fmt.Errorf("%s: %w", probe, err)
			case !want && err == nil:
				results <- fmt.Errorf("%s passes", probe)
			default:
				results <- nil
			}
		}()
	}
	var all error
	for range probes {
		all = errors.Join(all, <-results)
	}
	return all
}

// TestDrillPassthroughIsEdited: edits of a MeshPassthrough lose no connection and no request that the policy allows
// before and after.
func TestDrillPassthroughIsEdited(t *testing.T) {
	o := newOutside(t)
	conf := func(i int) string {
		more := ""
		for n := range i % 4 {
			more += fmt.Sprintf(", {type: Domain, value: d%d.example, protocol: tls}, {type: IP, value: 192.0.2.%d}, "+
				"{type: Domain, value: d%d.example, protocol: http, port: 80}", n, n+1, n)
		}
		return passthroughPolicy("appendMatch: [{type: IP, value: 10.0.3.1, port: 19306}, {type: Domain, value: " +
			"a.example, protocol: tls}, {type: Domain, value: a.example, protocol: http, port: 19000}" + more + "]")
	}
	o.apply(conf(0))
	allowed := []string{"tcp", "tls a.example", "http a.example"}
	o.eventually("the policy has arrived", func() error {
		return o.all(append(allowed, "tls other.test"), allowed)
	})
	sends := make([]traffic.Send, len(allowed))
	for i, probe := range allowed {
		sends[i] = func(ctx context.Context) (string, error) { return probe, o.try(ctx, probe) }
	}
	d := o.drill("a MeshPassthrough is edited, ten times", inTurn(sends...))
	d.more(50)
	for i := range 10 {
		before := o.counter("client", `listener_manager\.listener_in_place_updated`)
		o.apply(conf(i + 1))
		o.eventually("the edit has arrived", func() error {
			if now := o.counter("client", `listener_manager\.listener_in_place_updated`); now <= before {
				return fmt.Errorf("%d listeners were changed in place", now)
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
}
