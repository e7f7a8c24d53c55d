package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// slowPath is a router's path to one port of a machine. It delays each piece of data from clients, by a time that may
// change. Responses are not delayed.
type slowPath struct{ delay atomic.Int64 }

// slow adds a slow path to an address and port behind a router, without a delay at first.
func (m *machine) slow(t *testing.T, address string, port int) *slowPath {
	t.Helper()
	p, to := &slowPath{}, fmt.Sprintf("%s:%d", address, port)
	l := m.listen(t, "0.0.0.0:19999")
	m.command("iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", address, "--dport", fmt.Sprint(port),
		"-j", "REDIRECT", "--to-ports", "19999")
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := m.dial(t.Context(), "tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go p.deliver(client, server)
			go func() { defer client.Close(); io.Copy(client, server) }()
		}
	}()
	return p
}

// piece is data and its time of delivery.
type piece struct {
	data []byte
	at   time.Time
}

func (p *slowPath) deliver(from, to net.Conn) {
	pieces := make(chan piece, 1<<14)
	go func() {
		defer to.Close()
		for next := range pieces {
			testwait.Pass(time.Until(next.at), "the path delays data")
			if _, err := to.Write(next.data); err != nil {
				from.Close()
				return
			}
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		pieces <- piece{data[:n], time.Now().Add(time.Duration(p.delay.Load()))}
	}
}

// Requests that a client's proxy has sent before it acked the removal of an endpoint arrive seconds later: the listener
// exists, and allows the callers of the drained inbound.
func TestDrillRequestsArriveLateAtADrainedInbound(t *testing.T) {
	wantRoot(t)
	t.Parallel()
	// The longest drain time: a request arrives later than its delay on a busy machine.
	w := newInstance(t, int(subnets.Add(1)), "KUMA_DP_SERVER_DRAIN_TIME=20s")
	w.startPlane()
	ms := &machines{world: w, router: newRouter(t)}
	m := models()[0]
	w.apply(m.mesh + m.lettingIn("client", "web") + m.lettingIn("tester", "web-preview") +
		"---" + service("web", httpPort) + "---" + service("web-preview", httpPort))
	addresses := map[string]string{}
	colored := func(name string, active bool) string {
		return strings.ReplaceAll(rolledOut(name, 2, active), "NET.2", addresses[name])
	}
	for i, name := range []string{"blue", "green"} {
		machine, address := ms.routedMachine(name, i+1)
		addresses[name] = address
		w.serve(machine.listen(t, address+":18080"), name)
		w.proxyOn(machine, "default", name, strings.TrimPrefix(strings.TrimSpace(colored(name, name == "blue")), "---"))
	}
	machine, address := ms.routedMachine("client", 3)
	path := ms.router.slow(t, addresses["blue"], 20080)
	w.proxyOn(machine, "default", "client",
		strings.ReplaceAll(caller("client", 8, "backendRef: {kind: MeshService, name: web, port: 80}"), "NET.8",
			address))
	url := fmt.Sprintf("http://%s:10001/", address)
	w.responds(machine.fetch, url, "blue")

	dial := traffic.Dial(machine.dial)
	l := drillLoad()
	l.MaxOpen = 4 * l.PerSecond // the delay of the path keeps requests open
	d := w.drillUnder(l, "requests arrive late at an inbound that drains", inTurn(dial.Get(url), dial.Post(url)))
	d.more(50)
	path.delay.Store(int64(2500 * time.Millisecond))
	d.more(50)
	w.apply(colored("blue", false) + colored("green", true))
	w.responds(machine.fetch, url, "green")
	d.more(50)
	d.end()
}
