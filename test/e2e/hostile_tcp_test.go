package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weft/internal/testwait"
)

// greetingSize is the size of a server's first message. It exceeds all buffers between server and client.
const greetingSize = 3_000_000

// greeter starts an application that speaks first, then echoes. It counts its connections.
func (w *world) greeter(host, port int) *atomic.Int32 {
	w.t.Helper()
	l := w.listen(host, port)
	w.t.Cleanup(func() { l.Close() })
	dialed := &atomic.Int32{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			dialed.Add(1)
			go func() {
				defer conn.Close()
				if _, err := conn.Write(make([]byte, greetingSize)); err == nil {
					io.Copy(conn, conn)
				}
			}()
		}
	}()
	return dialed
}

// speaker tells which side speaks first on a TCP connection, and how much an allowed client reads.
type speaker struct {
	name    string
	says    string // the client, before it reads
	silent  bool   // the client sends only the end of its side
	expects int
}

var speakers = []speaker{
	{"the client speaks first", "x", false, greetingSize + 1},
	{"the server speaks first", "", false, greetingSize},
	{"the client only listens", "", true, greetingSize},
}

// reads returns the number of bytes that a client reads at an address: to the end of the connection, or what it
// expects.
func (s speaker) reads(ctx context.Context, address string) (n int, err error) {
	err = converse(ctx, (&net.Dialer{}).DialContext, address, func(conn net.Conn) error {
		if _, err := io.WriteString(conn, s.says); err != nil {
			return err
		}
		if s.silent {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
		}
		read, err := io.CopyN(io.Discard, conn, int64(s.expects))
		n = int(read)
		return err
	})
	return n, err
}

// readsOnce is reads in one attempt of many.
func (s speaker) readsOnce(t *testing.T, address string) (n int, err error) {
	err = attempt(t, func(ctx context.Context) (err error) {
		n, err = s.reads(ctx, address)
		return err
	})
	return n, err
}

// Protocols that are forwarded as TCP, and protocols whose requests are read.
var (
	connectionProtocols = []string{"tcp", "tls", "kafka"}
	requestProtocols    = []string{"http", "http2", "grpc"}
)

// member is a client in the mesh, at a host of the test, with the expected results of its calls.
type member struct {
	name    string
	team    string
	host    int
	allowed bool
}

var members = []member{
	{"a-good", "a", 3, true},
	{"a-denied", "a", 4, false},
	{"a-good-admin", "a", 5, false},
	{"a-evicted", "b", 6, false},
}

// served returns the ports at which a member reaches each service.
func served() map[string]int {
	ports := map[string]int{"outside": 10000}
	for i, protocol := range append(connectionProtocols, requestProtocols...) {
		ports[protocol] = 10001 + i
	}
	return ports
}

// guardedServer returns a Dataplane with an inbound of each protocol. The first one, of the service "tcp", has the
// given protocol and application port.
func guardedServer(first string, servicePort int) string {
	inbounds := ""
	for i, protocol := range append(connectionProtocols, requestProtocols...) {
		speaks, port := protocol, 18080+i/3
		if i == 0 {
			speaks, port = first, servicePort
		}
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: NET.2, protocol: %s, "+
			"tags: {team: a, kuma.io/service: %s}}",
			20080+i, protocol, port, speaks, protocol)
	}
	return "type: Dataplane\nmesh: default\nname: server\nnetworking:\n  address: NET.2\n  inbound:" + inbounds
}

// guardedMesh starts a mesh with a service of each protocol, and an external one behind an egress. The permission
// allows three members by prefixes, denies one of them, and does not match a-good-admin. It returns the number of
// connections to the external server.
func guardedMesh(t *testing.T) (w *world, outside *atomic.Int32) {
	w = newWorld(t)
	w.greeter(2, 18080)
	outside = w.greeter(50, 18091)
	w.service(2, 18081, "web")
	const ids = "spiffe://default.default.mesh.local/workload/"
	w.apply(withIdentity + external("outside", "tcp", 82, "{address: NET.50, port: 18091}", "") + fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: all
spec: {rules: [{default: {
  allow: [{spiffeID: {type: Prefix, value: "%[1]sa-good"}}, {spiffeID: {type: Prefix, value: "%[1]sa-denied"}},
    {spiffeID: {type: Prefix, value: "%[1]sa-evicted"}}],
  allowWithShadowDeny: [{spiffeID: {type: Exact, value: "%[1]sa-good"}}],
  deny: [{spiffeID: {type: Exact, value: "%[1]sa-denied"}}]}}]}
`, ids))
	w.proxy("default", "server", guardedServer("tcp", 18080))
	w.proxy("default", "egress-1", strings.Replace(egress("egress-1", 20), "labels: {", "labels: {team: a, ", 1))
	for _, m := range members {
		outbounds := ""
		for service, port := range served() {
			to := "tags: {kuma.io/service: " + service + "}"
			if service == "outside" {
				to = "backendRef: {kind: MeshExternalService, name: outside, port: 82}"
			}
			outbounds += fmt.Sprintf("\n  - {address: NET.%d, port: %d, %s}", m.host, port, to)
		}
		w.proxy("default", m.name,
			fmt.Sprintf("type: Dataplane\nmesh: default\nname: %[1]s\nlabels: {team: %[2]s, kuma.io/workload: "+
				"%[1]s}\nnetworking:\n  address: NET.%[3]d\n  outbound:%[4]s",
				m.name, m.team, m.host, outbounds))
	}
	return w, outside
}

// at returns the address at which a member reaches a service.
func (w *world) at(m member, service string) string {
	return fmt.Sprintf("%s:%d", w.address(m.host), served()[service])
}

// TestHostileCallersReadWhatAServerSaysFirst: denied members stay silent, or speak, and read the message of a TCP
// server in the mesh, or of an external one behind an egress. The result is the one that weft explain returns.
func TestHostileCallersReadWhatAServerSaysFirst(t *testing.T) {
	a := newAttack(t,
		"a member that no rule allows, that a rule denies, or that is evicted reads what a TCP server says")
	w, outside := guardedMesh(t)
	good, evicted := members[0], members[3]
	for _, m := range []member{good, evicted} {
		for service := range served() {
			w.eventually(m.name+" reaches "+service, func() error { return w.gets(m, service, true) })
		}
	}
	w.apply(admitting("a"))
	for service := range served() {
		w.eventually("the evicted one is denied for "+service, func() error { return w.gets(evicted, service, false) })
	}
	before := w.dials("server")
	outside.Store(0)
	tries := forms(t, 3, 100)
	for _, m := range members {
		for _, service := range append(connectionProtocols, "outside") {
			for _, s := range speakers {
				for range tries {
					w.tries(a, m, service, s)
				}
			}
		}
		for _, service := range requestProtocols {
			if err := w.gets(m, service, m.allowed); err != nil {
				t.Error(err)
			}
		}
		w.explained(m)
	}
	if got, want := w.dials("server")-before, tries*len(speakers)*len(connectionProtocols); got != want {
		t.Errorf("the server in the mesh was dialed %d times, want %d, for those who are allowed", got, want)
	}
	if got, want := int(outside.Load()), tries*len(speakers); got != want {
		t.Errorf("the server outside was dialed %d times, want %d, for those who are allowed", got, want)
	}
}

// tries counts one connection. For an allowed member it only checks that the member gets its response.
func (w *world) tries(a *attack, m member, service string, s speaker) {
	w.t.Helper()
	n, err := s.reads(testwait.Context(w.t), w.at(m, service))
	switch {
	case m.allowed && n != s.expects:
		w.t.Errorf("%s, %s, %s: read %d of %d bytes: %v", m.name, service, s.name, n, s.expects, err)
	case m.allowed:
	case n > 0:
		a.fellTo("%s reads %d bytes of %s, where %s", m.name, n, service, s.name)
	case errors.Is(err, io.EOF) || strings.Contains(fmt.Sprint(err), "reset"):
		a.repelled()
	default:
		w.t.Errorf("%s, %s, %s: the connection does not end: %v", m.name, service, s.name, err)
	}
}

// dials returns the number of connections of a proxy to the servers of its TCP inbounds. weft-dp opens others for its
// probes.
func (w *world) dials(name string) (sum int) {
	w.t.Helper()
	body := w.page(name, "stats")
	found :=
		regexp.MustCompile(
			`(?m)^cluster\.self_inbound_[^:]*_2008[012]\.upstream_cx_total: (\d+)$`).FindAllStringSubmatch(body, -1)
	if len(found) != len(connectionProtocols) {
		w.t.Fatalf("%s has no count of its connections to the servers", name)
	}
	for _, f := range found {
		n, err := strconv.Atoi(f[1])
		if err != nil {
			w.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// gets returns an error unless the member's access to a service is as wanted.
func (w *world) gets(m member, service string, want bool) error {
	url := "http://" + w.at(m, service)
	if served()[service] < served()["http"] {
		listens := speakers[2] // its connection ends in any case
		n, err := listens.readsOnce(w.t, w.at(m, service))
		if whole := n == listens.expects; whole != want || n > 0 != want {
			return fmt.Errorf("%s read %d bytes of %s: %v", m.name, n, service, err)
		}
		return nil
	}
	if !want {
		return w.denied(url)
	}
	return get(url)
}

// explained compares the result of weft explain with a member's access. An evicted member has no configuration; its
// explanation states that it is not admitted.
func (w *world) explained(m member) {
	w.t.Helper()
	for service := range served() {
		out, err := w.weft("explain", "--from", m.name, "--to", service, "-o", "json")
		var said struct{ Verdict, Reason string }
		if err == nil {
			err = json.Unmarshal([]byte(out), &said)
		}
		if want := map[bool]string{true: "allowed", false: "denied"}[m.allowed]; err != nil || said.Verdict != want {
			w.t.Errorf("explain says of %s and %s %q (%s), want %s: %v", m.name, service, said.Verdict, said.Reason,
				want, err)
		}
	}
}

// TestRulesChangeUnderOpenConnections: a change of the rules, and an eviction, do not close open TCP connections that
// were allowed, and apply to the next one.
func TestRulesChangeUnderOpenConnections(t *testing.T) {
	w, _ := guardedMesh(t)
	good, evicted := members[0], members[3]
	var open []net.Conn
	for _, service := range append(connectionProtocols, "outside") {
		w.eventually(good.name+" reaches "+service, func() error { return w.gets(good, service, true) })
		conn, err := net.Dial("tcp", w.at(good, service))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(testwait.Deadline())
		if _, err := io.CopyN(io.Discard, conn, greetingSize); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	w.apply(`
type: MeshTrafficPermission
mesh: default
name: none
spec: {rules: [{default: {deny: [{spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/"}}]}}]}
---
` + admitting("a"))
	for _, service := range append(connectionProtocols, "outside") {
		w.eventually("the next connection is denied", func() error { return w.gets(good, service, false) })
		w.eventually("and that of an evicted one", func() error { return w.gets(evicted, service, false) })
	}
	for i, conn := range open {
		if err := says(conn, "still here"); err != nil {
			t.Errorf("open connection %d: %v", i, err)
		}
	}
	for _, name := range []string{"server", "egress-1"} {
		body := w.page(name, "stats")
		if !strings.Contains(body, "listener_manager.total_filter_chains_draining: 0") ||
			!strings.Contains(body, "listener_manager.total_listeners_draining: 0") {
			t.Errorf("%s drains", name)
		}
		if !strings.Contains(body, "weft.tcp_connections") ||
			!strings.Contains(body, "MeshTrafficPermission default/none rules[0].default.deny[0]") {
			t.Errorf("%s does not count what it denies by rule", name)
		}
		if !strings.Contains(body, "MeshTrafficPermission default/all rules[0].default.allowWithShadowDeny[0]") {
			t.Errorf("%s does not count what it would deny by rule", name)
		}
	}
}

// TestHostileCallersWhileAnInboundChanges: denied members try continuously while the application of a TCP inbound moves
// to another port, and while the inbound becomes HTTP and TCP again.
func TestHostileCallersWhileAnInboundChanges(t *testing.T) {
	a := newAttack(t, "a member that is not allowed reads what a TCP server says while its inbound changes")
	w, _ := guardedMesh(t)
	w.greeter(2, 18084)
	good := members[0]
	w.eventually(good.name+" reaches the server", func() error { return w.gets(good, "tcp", true) })
	done := make(chan struct{})
	var trying sync.WaitGroup
	for _, m := range members[1:3] {
		trying.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if n, _ := speakers[2].readsOnce(t, w.at(m, "tcp")); n > 0 {
					a.fellTo("%s reads %d bytes", m.name, n)
					return
				}
				a.repelled()
			}
		})
	}
	for range forms(t, 1, 10) {
		w.apply(guardedServer("tcp", 18084))
		w.eventually("the application has moved", func() error { return w.dialsApplication("server", 18084) })
		w.eventually(good.name+" reaches it there", func() error { return w.gets(good, "tcp", true) })
		w.apply(guardedServer("http", 18081))
		w.eventually("its application has requests", func() error { return w.dialsApplication("server", 18081) })
		w.eventually("the inbound takes requests", func() error { return get("http://" + w.at(good, "tcp")) })
		w.apply(guardedServer("tcp", 18080))
		w.eventually("the inbound takes TCP connections", func() error { return w.gets(good, "tcp", true) })
	}
	close(done)
	trying.Wait()
}

// dialsApplication returns nil once the first inbound of a proxy leads to a port.
func (w *world) dialsApplication(name string, port int) error {
	body, err := w.api("/meshes/default/dataplanes/" + name + "/clusters")
	if want := fmt.Sprintf("_20080::%s:%d::", w.address(2), port); err == nil && !strings.Contains(body, want) {
		err = fmt.Errorf("no cluster has %s", want)
	}
	return err
}
