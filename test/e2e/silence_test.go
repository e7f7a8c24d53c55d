package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/internal/process"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// silence makes a machine, or a proxy on it, silent, and ends that.
type silence struct {
	name       string
	begin, end func()
	http       bool // TCP does not detect it
}

// dropped is a machine behind a router's cable of that name, to and from which all packets are dropped.
func dropped(router *machine, cable string) silence {
	rules := func(action string) {
		for _, direction := range []string{"-i", "-o"} {
			router.command("iptables", action, "FORWARD", direction, cable, "-j", "DROP")
		}
	}
	return silence{name: "its packets are dropped", begin: func() { rules("-I") }, end: func() { rules("-D") }}
}

func unplugged(router *machine, cable string) silence {
	set := func(state string) { router.command("ip", "link", "set", cable, state) }
	return silence{name: "its link is down", begin: func() { set("down") }, end: func() { set("up") }}
}

// stopped is a proxy with a stopped Envoy, whose machine acknowledges all data.
func (w *world) stopped(agent *process.Process) silence {
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(w.envoyOf(agent), s); err != nil {
			w.t.Error(err)
		}
	}
	return silence{name: "its Envoy is stopped", begin: func() { signal(syscall.SIGSTOP) }, end: func() {
		signal(syscall.SIGCONT)
	}}
}

// silenceLasts is the duration of traffic during a silence. It is longer than the longest ejection of an endpoint.
const silenceLasts = 12 * time.Second

// lives runs traffic from a machine during a silence. No safe request fails, nor does a new TCP connection, and each
// gets its response from another endpoint: the silence lasts until what was sent in it has its responses. How long that
// takes is a measurement, so the mesh has no timeout of a request.
func (w *world) lives(from *machine, s silence, what, host string, servers ...string) {
	w.t.Helper()
	dial := traffic.Dial(from.dial)
	at := func(port int) string { return fmt.Sprintf("http://%s:%d/", host, port) }
	for _, port := range []int{10001, 10002} {
		w.eventually(fmt.Sprintf("every server is reached at port %d", port), func() error {
			return respondedByEach(from, at(port), servers)
		})
	}
	w.eventually("no endpoint is ejected", func() error {
		clusters, err := w.api("/meshes/default/dataplanes/client/clusters")
		if err == nil && strings.Contains(clusters, "failed_outlier_check") {
			err = errors.New("one is")
		}
		return err
	})
	// Requests that wait for a silent machine are open for seconds, and then all need connections to another one. Few
	// of them are open, and few new connections: a slow machine would spend its time on handshakes that fail.
	open := 64
	if *showDrills {
		open = 1000
	}
	d := w.drillUnder(load(100, open), what+": "+s.name, inTurn(dial.Get(at(10001)), dial.Get(at(10002))))
	d.more(50)
	s.begin()
	drills := []*drill{d}
	if !s.http {
		drills = append(drills, w.drillUnder(load(10, beside.MaxOpen), what+": "+s.name+": new TCP connections",
			greetBy(from.dial, host+":10003")))
	}
	d.sendFor(silenceLasts, "clients meet silent endpoints, also after their ejections have ended")
	for _, d := range drills {
		d.awaitResponses("while an endpoint is silent")
	}
	s.end()
	d.more(50)
	a := newAttack(w.t, "silence fails requests: "+what+": "+s.name)
	for _, tally := range endAll(drills) {
		a.costs(tally)
	}
}

// respondedByEach returns an error unless each of the servers responds.
func respondedByEach(from *machine, url string, servers []string) error {
	seen := map[string]bool{}
	for range 20 {
		body, err := from.fetch(url)
		if err != nil {
			return err
		}
		by, _, _ := strings.Cut(body, " ")
		seen[by] = true
	}
	for _, server := range servers {
		if !seen[server] {
			return fmt.Errorf("%s does not answer, %v do", server, seen)
		}
	}
	return nil
}

// threeProtocols returns a server of http, http2 and tcp.
func threeProtocols(name, address string) string {
	inbounds := ""
	for i, protocol := range []string{"http", "http2", "tcp"} {
		port := 18080
		if protocol == "tcp" {
			port = 18081
		}
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: %s, protocol: %s, tags: "+
			"{kuma.io/service: %s}}", 20080+i, protocol, port, address, protocol, protocol)
	}
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nlabels: {kuma.io/workload: web}\nnetworking:\n  "+
		"address: %s\n  inbound:%s\n", name, address, inbounds)
}

// machines is a mesh on several machines: two servers of every protocol, and a client.
type machines struct {
	*world
	router, client *machine
	agents         []*process.Process
	cables         []string
}

func newMachines(t *testing.T) *machines {
	wantRoot(t)
	w := newWorld(t)
	ms := &machines{world: w, router: newRouter(t)}
	w.apply(secured + "---\n" + timeoutPolicy(withoutTimeout))
	for i, name := range []string{"web-1", "web-2"} {
		m, address := ms.routedMachine(name, i+1)
		w.serveOn(m, address, name)
		ms.agents = append(ms.agents, w.proxyOn(m, "default", name, threeProtocols(name, address)))
		ms.cables = append(ms.cables, name)
	}
	m, address := ms.routedMachine("client", 3)
	ms.client = m
	w.proxyOn(m, "default", "client", strings.ReplaceAll(everyCaller, "NET.3", address))
	return ms
}

// routedMachine returns a machine behind the router. It reaches the control plane even where its cable is cut.
func (ms *machines) routedMachine(name string, net int) (m *machine, address string) {
	m = newMachine(ms.t)
	address = fmt.Sprintf("10.1.%d.2", net)
	m.connect(ms.router, name, address+"/24", fmt.Sprintf("10.1.%d.1/24", net))
	m.command("ip", "route", "add", "default", "via", fmt.Sprintf("10.1.%d.1", net))
	m.bring(ms.plane.Ports.DataPlane)
	return m, address
}

// serveOn starts an application on a machine: HTTP on 18080, an echo on 18081.
func (w *world) serveOn(m *machine, address, name string) {
	w.serve(m.listen(w.t, address+":18080"), name)
	w.echoAt(m.listen(w.t, address+":18081"))
}

// A machine, or a proxy, that falls silent costs no safe request within a zone.
func TestDrillAServerFallsSilent(t *testing.T) {
	skipAttacks(t)
	ms := newMachines(t)
	all := []silence{dropped(ms.router, ms.cables[0]), ms.stopped(ms.agents[1])}
	if *showDrills {
		all = append(all, unplugged(ms.router, ms.cables[1]))
	}
	for _, s := range all {
		ms.lives(ms.client, s, "one of two servers falls silent", "10.1.3.2", "web-1", "web-2")
	}
}

// A server that continues after a client's first attempts to connect have failed completes the later ones, for which no
// client waits any more. Its proxy closes them: the next client would lose its data if the machine fell silent.
func TestNoConnectionWaitsForAClient(t *testing.T) {
	ms := newMachines(t)
	host := "10.1.3.2"
	ms.eventually("every server is reached", func() error {
		return respondedByEach(ms.client, "http://"+host+":10001/", []string{"web-1", "web-2"})
	})
	stopped := ms.stopped(ms.agents[1])
	const failed = `cluster\.kri_msvc_default_[^.]*__tcp_\d+\.upstream_cx_connect_timeout`
	before := ms.counter("client", failed)
	stopped.begin()
	d := ms.drillUnder(load(50, 32), "a server stops for longer than an attempt", greetBy(ms.client.dial,
		host+":10003"))
	ms.eventually("attempts of the client have failed", func() error {
		if ms.counter("client", failed) == before {
			return errors.New("none has")
		}
		return nil
	})
	stopped.end()
	d.more(50)
	d.end()
	ms.eventually("the client's proxy has no TCP connection", func() error {
		clusters, err := ms.api("/meshes/default/dataplanes/client/clusters")
		if surplus := openTCP.FindString(clusters); err == nil && surplus != "" {
			err = errors.New(surplus)
		}
		return err
	})
}

// openTCP is a line of Envoy's /clusters: an endpoint of a service of port 20082 with connections.
var openTCP = regexp.MustCompile(`(?m)^\S*_20082::\S*::cx_active::[1-9].*$`)

// An ingress that falls silent, and a server behind one, cost no safe request of another zone.
func TestDrillAnIngressFallsSilent(t *testing.T) {
	skipAttacks(t)
	f := newFederation(t)
	east, west := f.eastAndWestBy(crossZoneRules + "---\n" + timeoutPolicy(withoutTimeout))
	apart := f.machine("apart", east)
	agent := east.proxyOn(apart.machine, "default", "ingress-2", strings.ReplaceAll(ingress("ingress-2", 0), "NET.0",
		apart.address))
	used := regexp.MustCompile(regexp.QuoteMeta(apart.address+":20100") + "::cx_active::[1-9]")
	west.eventually("the client uses both ingresses", func() error {
		if _, err := west.machine.fetch(west.outbound(3, "http")); err != nil {
			return err
		}
		clusters, err := west.api("/meshes/default/dataplanes/client/clusters")
		if err == nil && !used.MatchString(clusters) {
			err = fmt.Errorf("it has no connection to %s", apart.address)
		}
		return err
	})
	host := west.address(3)
	west.lives(west.machine, dropped(f.router, "apart"), "one of two ingresses falls silent", host)
	if !*showDrills {
		return
	}
	west.lives(west.machine, west.stopped(agent), "one of two ingresses falls silent", host)
	west.lives(west.machine, unplugged(f.router, "apart"), "one of two ingresses falls silent", host)

	east.serveOn(apart.machine, apart.address, "web-2")
	server := east.proxyOn(apart.machine, "default", "web-2",
		strings.ReplaceAll(webServer("web-2", 0), "NET.0", apart.address))
	stopped := west.stopped(server)
	stopped.http = true // the ingress reaches a machine that accepts connections and reads no handshake
	west.lives(west.machine, stopped, "one of two servers behind ingresses falls silent", host)
	west.lives(west.machine, dropped(f.router, "apart"), "an ingress and a server fall silent", host)
}

// apart is a machine of a zone other than that of its control plane.
type apart struct {
	*machine
	address string
}

// machine returns a machine behind the router. It reaches a zone's control plane even where its cable is cut.
func (f *federation) machine(name string, w *world) apart {
	f.t.Helper()
	m, network := newMachine(f.t), fmt.Sprintf("10.0.%d", f.zones)
	f.zones++
	m.connect(f.router, name, network+".2/24", network+".1/24")
	m.command("ip", "route", "add", "default", "via", network+".1")
	m.bringFrom(w.machine, w.plane.Ports.DataPlane)
	return apart{m, network + ".2"}
}

// keepStill keeps a live peer still for longer than a machine may be silent: 3 s after a PING, of which there is one
// every 2 s.
func keepStill() {
	lasts := 6 * time.Second
	if *showDrills {
		lasts = 12 * time.Second
	}
	testwait.Pass(lasts, "a live peer is still for longer than a silent machine may be")
}

// A long response, a receiver that stops reading, a WebSocket and an idle connection do not count as silent.
func TestWhatKeepsStillIsNotTakenForSilent(t *testing.T) {
	w := newWorld(t)
	w.apply(secured + "---\n" + timeoutPolicy(withoutTimeout))
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	app := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(keepsStill)}
	go app.Serve(w.listen(2, 18080))
	t.Cleanup(func() { app.Close() })
	tcp := w.listen(2, 18081)
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				keepStill()
				n, _ := io.Copy(io.Discard, conn)
				fmt.Fprint(conn, n)
			}()
		}
	}()
	w.proxy("default", "web-1", strings.ReplaceAll(everyProtocol("web-1", 2), "NET.HOST", "NET.2"))
	w.proxy("default", "client", everyCaller)
	for _, port := range []int{10001, 10002} {
		w.eventually("a request passes", func() error { return get(w.out(3, port)) })
	}
	for i, protocol := range []string{"http", "http2"} {
		url := w.out(3, 10001+i)
		t.Run("a response over "+protocol, func(t *testing.T) {
			t.Parallel()
			if body, err := fetch(url + "slow"); err != nil || body != "slow" {
				t.Errorf("%q, %v", body, err)
			}
		})
		t.Run("an upload over "+protocol, func(t *testing.T) {
			t.Parallel()
			response, err := client.Post(url+"upload", "text/plain", io.LimitReader(zeros{}, large))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if body, err := io.ReadAll(response.Body); err != nil || string(body) != fmt.Sprint(large) {
				t.Errorf("%s: %q, %v", response.Status, body, err)
			}
		})
		t.Run("a download over "+protocol, func(t *testing.T) {
			t.Parallel()
			response, err := client.Get(url + "download")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			keepStill()
			if n, err := io.Copy(io.Discard, response.Body); err != nil || n != large {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
		if protocol == "http2" {
			continue // Go's server supports no WebSocket over HTTP/2
		}
		t.Run("a WebSocket over "+protocol, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", w.address(3)+fmt.Sprintf(":%d", 10001+i))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(testwait.Deadline())
			fmt.Fprint(conn,
				"GET /socket HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: "+
					"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			from := bufio.NewReader(conn)
			response, err := http.ReadResponse(from, nil)
			if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", response, err)
			}
			keepStill()
			fmt.Fprint(conn, "ping\n")
			if line, err := from.ReadString('\n'); line != "ping\n" {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", w.address(3)+":10003")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(testwait.Deadline())
		if _, err := io.Copy(conn, io.LimitReader(zeros{}, large)); err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		if body, err := io.ReadAll(conn); err != nil || string(body) != fmt.Sprint(large) {
			t.Errorf("%q, %v", body, err)
		}
	})
}

// large exceeds the buffers of proxies and kernels for a receiver that does not read.
const large = 64 << 20

func keepsStill(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		keepStill()
		fmt.Fprint(rw, "slow")
	case "/upload":
		keepStill()
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n)
	case "/download":
		io.Copy(rw, io.LimitReader(zeros{}, large))
	case "/socket":
		conn, both, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(conn, both)
	}
}
