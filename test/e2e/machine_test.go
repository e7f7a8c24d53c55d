package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"weft/internal/testwait"
	"weft/test/network"
)

// proxyGroup is the group of weft-dp and its Envoy, by which redirect rules identify their connections.
const proxyGroup = 5678

// machine is a network namespace for programs and sockets, with its own interfaces and redirect rules. It belongs to
// one thread, and disappears with it, even where the test crashes.
type machine struct {
	t      *testing.T
	thread int
	calls  chan func()
	gone   chan struct{} // closed at the end of the test
}

// newMachine returns a machine with only a loopback interface.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, calls: make(chan func()), gone: make(chan struct{})}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // forever: no other goroutine may run on a thread of another namespace
		m.thread = syscall.Gettid()
		entered <- syscall.Unshare(syscall.CLONE_NEWNET)
		for {
			select {
			case call := <-m.calls:
				call()
			case <-m.gone:
				return
			}
		}
	}()
	t.Cleanup(func() { close(m.gone) })
	if err := <-entered; err != nil {
		t.Fatalf("this machine makes no network namespace (%v): run where root has CAP_SYS_ADMIN and CAP_NET_ADMIN",
			err)
	}
	m.command("ip", "link", "set", "lo", "up")
	// Within a minute a drill opens more connections to one address than there are ports.
	m.enable("ipv4/tcp_tw_reuse")
	return m
}

// do calls f on the machine, to start, listen or dial. A nil machine is that of the tests.
func (m *machine) do(f func() error) error {
	if m == nil {
		return f()
	}
	err := make(chan error)
	select {
	case m.calls <- func() { err <- f() }:
		return <-err
	case <-m.gone:
		return errors.New("the machine is gone")
	}
}

// command runs a program on the machine, requires success, and returns its output.
func (m *machine) command(program string, args ...string) string {
	m.t.Helper()
	return m.commandWith("", program, args...)
}

func (m *machine) commandWith(input, program string, args ...string) string {
	m.t.Helper()
	out, err := m.try(input, program, args...)
	if err != nil {
		m.t.Fatalf("%v\n%s", err, input)
	}
	return out
}

// try runs a program on the machine and returns its output, which an error contains too.
func (m *machine) try(input, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := m.run(cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, &out)
	}
	return out.String(), err
}

// run runs a program on the machine to its end.
func (m *machine) run(cmd *exec.Cmd) error {
	if err := m.do(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// connect connects two machines by a cable, whose ends have the same name.
func (m *machine) connect(other *machine, name, address, otherAddress string) {
	m.t.Helper()
	m.command("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", fmt.Sprint(other.thread))
	m.command("ip", "address", "add", address, "dev", name)
	other.command("ip", "address", "add", otherAddress, "dev", name)
	m.command("ip", "link", "set", name, "up")
	other.command("ip", "link", "set", name, "up")
}

// forwardPackets makes the machine a router.
func (m *machine) forwardPackets() {
	m.t.Helper()
	m.enable("ipv4/ip_forward")
	m.enable("ipv6/conf/all/forwarding")
}

// enable sets a setting of the kernel, which each machine has for itself, to 1.
func (m *machine) enable(setting string) {
	m.t.Helper()
	if err := m.do(func() error { return os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0) }); err != nil {
		m.t.Fatal(err)
	}
}

// bring makes a loopback port of the tests' machine reachable on this machine.
func (m *machine) bring(port int) { m.bringFrom(nil, port) }

// bringFrom makes a loopback port of another machine reachable on this machine.
func (m *machine) bringFrom(other *machine, port int) {
	m.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	forward(m.listen(m.t, address), other, address)
}

// forward forwards the connections of a listener to an address of a machine.
func forward(l net.Listener, to *machine, address string) {
	network.StartForwarder(l, func() (net.Conn, error) { return to.dial(context.Background(), "tcp", address) })
}

// listen returns a listener of the machine, which the end of the test closes. A child process has a copy of every
// listener between its fork and its exec, so a just closed address may still be in use.
func (m *machine) listen(t *testing.T, address string) (l net.Listener) {
	t.Helper()
	testwait.Until(t, "listens on "+address, func() error {
		return m.do(func() (err error) {
			l, err = net.Listen("tcp", address)
			return err
		})
	})
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects from the machine.
func (m *machine) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = m.do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// resolve starts a DNS server on the machine, over UDP, with the same address for every A query.
func (m *machine) resolve(at, address string) {
	m.t.Helper()
	var socket net.PacketConn
	err := m.do(func() (err error) {
		socket, err = net.ListenPacket("udp", at)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	server := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		if q := request.Question[0]; q.Qtype == dns.TypeA {
			header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: net.ParseIP(address)})
		}
		w.WriteMsg(reply)
	})}
	go server.ActivateAndServe()
	m.t.Cleanup(func() { socket.Close() })
}

// curl requests a URL from the machine, which resolves its host name. It is one attempt of many.
func (m *machine) curl(url string) (string, error) {
	return m.try("", "curl", "--silent", "--show-error", "--fail", "--max-time",
		fmt.Sprint(testwait.Attempt.Seconds()), url)
}

// fetch requests a URL from the machine over a new connection.
func (m *machine) fetch(url string) (string, error) {
	if m == nil {
		return fetch(url)
	}
	return fetchBy(&http.Client{
		Timeout:   testwait.Timeout,
		Transport: &http.Transport{DialContext: m.dial, DisableKeepAlives: true},
	}, url)
}

// wantRoot skips or fails a test that needs machines where there can be none.
func wantRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("nothing was tested: network namespaces and redirect rules are root's")
	}
	for _, program := range []string{"ip", "iptables-restore", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("redirecting connections takes %s: install iproute2, iptables and curl", program)
		}
	}
}
