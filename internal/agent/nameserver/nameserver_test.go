package nameserver

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"weft/internal/testnet"
	"weft/internal/testwait"
)

// mesh are the host names of these tests.
var mesh = []Name{
	{"web.svc.mesh.local", addresses("241.0.0.1")},
	{"both.svc.mesh.local", addresses("241.0.0.2", "fd00::2")},
	{"many.svc.mesh.local", addresses("241.0.0.3", "241.0.0.4", "241.0.0.5")},
	{"none.svc.mesh.local", nil},
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// start returns a running server and its address.
func start(t testing.TB, c Config) (*Server, netip.AddrPort) {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	var s *Server
	for err := error(nil); s == nil || err != nil; { // a port that is free for TCP may be in use for UDP
		c.Port = testnet.Port(t)
		s = New(c)
		err = s.Listen()
	}
	waitForResolvers(s)
	s.Replace(mesh)
	ended := make(chan error)
	go func() { ended <- s.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, netip.AddrPortFrom(loopback[0], uint16(c.Port))
}

// waitForResolvers lets a server wait for a resolver of the test for as long as the test waits.
func waitForResolvers(s *Server) {
	s.forwarder.each, s.forwarder.all = testwait.Timeout, testwait.Timeout
}

// resolver serves every query with the function, over UDP and TCP.
func resolver(t testing.TB, response func(*dns.Msg, string) *dns.Msg) netip.AddrPort {
	t.Helper()
	for {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := packets.LocalAddr().(*net.UDPAddr).AddrPort()
		connections, err := net.Listen("tcp", at.String())
		if err != nil {
			packets.Close()
			continue
		}
		for _, s := range []*dns.Server{{PacketConn: packets}, {Listener: connections}} {
			s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
				w.WriteMsg(response(m, w.LocalAddr().Network()))
			})
			go s.ActivateAndServe()
		}
		t.Cleanup(func() { packets.Close(); connections.Close() })
		return at
	}
}

// world responds with the address 192.0.2.1 and a TXT with the transport of the query.
func world(m *dns.Msg, network string) *dns.Msg {
	reply := new(dns.Msg).SetReply(m)
	reply.Answer = append(reply.Answer, record(fmt.Sprintf("%s 60 IN A 192.0.2.1", m.Question[0].Name)),
		record(fmt.Sprintf(`%s 60 IN TXT "over %s"`, m.Question[0].Name, network)))
	return reply
}

func record(text string) dns.RR {
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return rr
}

func question(name string, of uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, of) }

func queryOver(t testing.TB, network string, at netip.AddrPort, m *dns.Msg) *dns.Msg {
	t.Helper()
	reply, _, err := (&dns.Client{Net: network, UDPSize: maxUDP, Timeout: testwait.Timeout}).Exchange(m, at.String())
	if err != nil {
		t.Fatalf("%s %s: %v", network, m.Question[0].String(), err)
	}
	return reply
}

// told returns a response in a line: its code, the values of its records, and those of its authority.
func told(reply *dns.Msg) string {
	parts := []string{dns.RcodeToString[reply.Rcode]}
	for _, rr := range reply.Answer {
		parts = append(parts, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	for _, rr := range reply.Ns {
		parts = append(parts, fmt.Sprint("authority ", dns.TypeToString[rr.Header().Rrtype], " for ", rr.Header().Ttl))
	}
	return strings.Join(parts, ", ")
}

func TestNamesOfTheMeshAreResolvedHereAndAllOthersForwarded(t *testing.T) {
	_, at := start(t, Config{Resolvers: []netip.AddrPort{resolver(t, world)}})
	for _, c := range []struct {
		name string
		of   uint16
		want string
	}{
		{"web.svc.mesh.local.", dns.TypeA, "NOERROR, 241.0.0.1"},
		{"WEB.Svc.mesh.LOCAL.", dns.TypeA, "NOERROR, 241.0.0.1"},
		{"web.svc.mesh.local.", dns.TypeAAAA, "NOERROR, authority SOA for 30"},
		{"web.svc.mesh.local.", dns.TypeHTTPS, "NOERROR, authority SOA for 30"},
		{"both.svc.mesh.local.", dns.TypeAAAA, "NOERROR, fd00::2"},
		{"none.svc.mesh.local.", dns.TypeA, "NOERROR, authority SOA for 30"},
		{"other.svc.mesh.local.", dns.TypeA, `NOERROR, 192.0.2.1, "over udp"`},
		{"svc.mesh.local.", dns.TypeA, `NOERROR, 192.0.2.1, "over udp"`},
		{`web\.svc.mesh.local.`, dns.TypeA, `NOERROR, 192.0.2.1, "over udp"`},
		{"example.com.", dns.TypeA, `NOERROR, 192.0.2.1, "over udp"`},
	} {
		for _, network := range []string{"udp", "tcp"} {
			reply := queryOver(t, network, at, question(c.name, c.of))
			if got := told(reply); got != c.want {
				t.Errorf("%s: %s of %s is %q, want %q", network, dns.TypeToString[c.of], c.name, got, c.want)
			}
			if len(reply.Question) != 1 || reply.Question[0].Name != c.name {
				t.Errorf("%s: the answer about %s is about %v", network, c.name, reply.Question)
			}
		}
	}
}

func TestNamesComeAndGo(t *testing.T) {
	s, at := start(t, Config{Resolvers: []netip.AddrPort{resolver(t, world)}})
	web := func() string { return told(queryOver(t, "udp", at, question("web.svc.mesh.local.", dns.TypeA))) }
	s.Change([]Name{{"web.svc.mesh.local", addresses("241.9.9.9")}}, []string{"many.svc.mesh.local"})
	if got := web(); got != "NOERROR, 241.9.9.9" {
		t.Errorf("a name that has moved is answered with %q", got)
	}
	if got := told(queryOver(t, "udp", at, question("many.svc.mesh.local.", dns.TypeA))); !strings.Contains(got,
		"192.0.2.1") {
		t.Errorf("a name that is gone is answered with %q, want what the resolver says", got)
	}
	s.Replace(nil)
	if got := web(); !strings.Contains(got, "192.0.2.1") {
		t.Errorf("a name that is not in the new list is answered with %q, want what the resolver says", got)
	}
}

func TestSeveralAddressesTakeTurns(t *testing.T) {
	_, at := start(t, Config{})
	var first []string
	for range 3 {
		reply := queryOver(t, "udp", at, question("many.svc.mesh.local.", dns.TypeA))
		if len(reply.Answer) != 3 {
			t.Fatalf("%d addresses are answered, want all 3", len(reply.Answer))
		}
		first = append(first, reply.Answer[0].(*dns.A).A.String())
	}
	if slices.Sort(first); strings.Join(first, " ") != "241.0.0.3 241.0.0.4 241.0.0.5" {
		t.Errorf("in three answers the first ones are %v, want each once", first)
	}
}

func TestALongResponseIsTruncatedForUDPAndWholeOverTCP(t *testing.T) {
	s, at := start(t, Config{})
	var many []netip.Addr
	for i := range 200 {
		many = append(many, netip.AddrFrom4([4]byte{241, 1, 0, byte(i)}))
	}
	s.Change([]Name{{"long.svc.mesh.local", many}}, nil)
	short := queryOver(t, "udp", at, question("long.svc.mesh.local.", dns.TypeA))
	short.Compress = true // as it was sent
	if !short.Truncated || short.Len() > dns.MinMsgSize {
		t.Errorf("without EDNS %d bytes are answered (truncated: %v), want at most 512", short.Len(), short.Truncated)
	}
	wide := question("long.svc.mesh.local.", dns.TypeA)
	wide.SetEdns0(4096, false)
	if reply := queryOver(t, "udp", at, wide); reply.Truncated || len(reply.Answer) != 200 || reply.IsEdns0() == nil {
		t.Errorf("with room for it %d addresses are answered (truncated: %v), want 200 and EDNS", len(reply.Answer),
			reply.Truncated)
	}
	if reply := queryOver(t, "tcp", at, question("long.svc.mesh.local.", dns.TypeA)); reply.Truncated ||
		len(reply.Answer) != 200 {
		t.Errorf("over TCP %d addresses are answered, want 200", len(reply.Answer))
	}
}

func TestAnUnknownVersionOfEDNSIsRejected(t *testing.T) {
	_, at := start(t, Config{})
	m := question("web.svc.mesh.local.", dns.TypeA)
	m.SetEdns0(1232, false).IsEdns0().SetVersion(1)
	if reply := queryOver(t, "udp", at, m); reply.Rcode != dns.RcodeBadVers || len(reply.Answer) != 0 {
		t.Errorf("answered %s, want BADVERS", told(reply))
	}
}

func TestTheResolversTCPIsUsedWhereItsUDPIsTooShort(t *testing.T) {
	cut := func(m *dns.Msg, network string) *dns.Msg {
		reply := world(m, network)
		if reply.Truncated = network == "udp"; reply.Truncated {
			reply.Answer = nil
		}
		return reply
	}
	_, at := start(t, Config{Resolvers: []netip.AddrPort{resolver(t, cut)}})
	if got := told(queryOver(t, "udp", at,
		question("example.com.", dns.TypeA))); got != `NOERROR, 192.0.2.1, "over tcp"` {
		t.Errorf("answered %q", got)
	}
}

func TestAnotherResolverIsUsedWhereOneFails(t *testing.T) {
	var queries atomic.Int32
	failing := func(m *dns.Msg, _ string) *dns.Msg {
		queries.Add(1)
		return new(dns.Msg).SetRcode(m, dns.RcodeServerFailure)
	}
	_, at := start(t, Config{Resolvers: []netip.AddrPort{resolver(t, failing), resolver(t, world)}})
	for range 3 {
		if got := told(queryOver(t, "udp", at, question("example.com.", dns.TypeA))); !strings.Contains(got,
			"192.0.2.1") {
			t.Errorf("answered %q", got)
		}
	}
	if n := queries.Load(); n != 1 {
		t.Errorf("the resolver that fails was asked %d times, want once: the one that answers comes first", n)
	}
}

// TestTheNextResolverIsUsedWhereOneRejectsAQuery: as the C libraries do. The first resolver is asked first for the next
// name too, since it may know names that the others call nonexistent.
func TestTheNextResolverIsUsedWhereOneRejectsAQuery(t *testing.T) {
	rejected := map[string]func(*dns.Msg){
		"REFUSED":    func(reply *dns.Msg) { reply.Rcode = dns.RcodeRefused },
		"NOTIMP":     func(reply *dns.Msg) { reply.Rcode = dns.RcodeNotImplemented },
		"FORMERR":    func(reply *dns.Msg) { reply.Rcode = dns.RcodeFormatError },
		"NOTAUTH":    func(reply *dns.Msg) { reply.Rcode = dns.RcodeNotAuth },
		"a referral": func(reply *dns.Msg) { reply.Ns = []dns.RR{record("com. 60 IN NS ns.example.com.")} },
	}
	for what, reject := range rejected {
		first := resolver(t, func(m *dns.Msg, network string) *dns.Msg {
			if m.Question[0].Name == "inside.corp." {
				return world(m, network)
			}
			reply := new(dns.Msg).SetReply(m)
			reject(reply)
			return reply
		})
		second := resolver(t, func(m *dns.Msg, network string) *dns.Msg {
			if m.Question[0].Name == "inside.corp." {
				return new(dns.Msg).SetRcode(m, dns.RcodeNameError)
			}
			return world(m, network)
		})
		for what, resolvers := range map[string][]netip.AddrPort{
			what: {first, second}, what + ", and one that is gone": {first, gone(t), second},
		} {
			_, at := start(t, Config{Resolvers: resolvers})
			for _, name := range []string{"example.com.", "inside.corp."} {
				got := told(queryOver(t, "udp", at, question(name, dns.TypeA)))
				if !strings.Contains(got, "192.0.2.1") {
					t.Errorf("%s: %s is answered %q", what, name, got)
				}
			}
		}
	}
}

func TestTheCodeOfAResolverIsPassedOnWhereNoneKnows(t *testing.T) {
	rejecting := resolver(t, func(m *dns.Msg, _ string) *dns.Msg { return new(dns.Msg).SetRcode(m, dns.RcodeRefused) })
	for _, resolvers := range [][]netip.AddrPort{{rejecting}, {rejecting, gone(t)}, {gone(t), rejecting}} {
		_, at := start(t, Config{Resolvers: resolvers})
		got := told(queryOver(t, "udp", at, question("example.com.", dns.TypeA)))
		if want := dns.RcodeToString[dns.RcodeRefused]; got != want {
			t.Errorf("%v: responded %q, want %s", resolvers, got, want)
		}
	}
}

func TestAResolverWithoutEDNSIsQueriedWithoutIt(t *testing.T) {
	for _, code := range []int{dns.RcodeFormatError, dns.RcodeNotImplemented} {
		old := resolver(t, func(m *dns.Msg, network string) *dns.Msg {
			if m.IsEdns0() != nil {
				return new(dns.Msg).SetRcode(m, code)
			}
			return world(m, network)
		})
		_, at := start(t, Config{Resolvers: []netip.AddrPort{old}})
		m := question("example.com.", dns.TypeA)
		m.SetEdns0(1232, false)
		if got := told(queryOver(t, "udp", at, m)); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("%s: answered %q", dns.RcodeToString[code], got)
		}
	}
}

// gone is the address of a resolver that has ended.
func gone(t testing.TB) netip.AddrPort {
	return netip.AddrPortFrom(loopback[0], uint16(testnet.Port(t)))
}

func TestOnlyTheResolverCanRespond(t *testing.T) {
	other := func(m *dns.Msg, network string) *dns.Msg {
		m.Question[0].Name = "bank.example."
		return world(m, network)
	}
	_, at := start(t, Config{Resolvers: []netip.AddrPort{resolver(t, other)}})
	if got := told(queryOver(t, "udp", at, question("example.com.", dns.TypeA))); got != "SERVFAIL" {
		t.Errorf("an answer to another question is passed on: %q", got)
	}
}

func TestWithoutAResolverOnlyTheMeshIsResolved(t *testing.T) {
	_, at := start(t, Config{Resolvers: []netip.AddrPort{gone(t)}})
	if got := told(queryOver(t, "udp", at, question("example.com.", dns.TypeA))); got != "SERVFAIL" {
		t.Errorf("answered %q, want SERVFAIL", got)
	}
	if got := told(queryOver(t, "udp", at, question("web.svc.mesh.local.", dns.TypeA))); got != "NOERROR, 241.0.0.1" {
		t.Errorf("answered %q, want the name's address", got)
	}
}

func TestItIsNeverItsOwnResolver(t *testing.T) {
	c := Config{Log: slog.New(slog.DiscardHandler), Port: 5353}
	c.Resolvers = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5353"), netip.MustParseAddrPort("[::1]:5353")}
	if _, err := newResolvers(c).current(); err == nil || !strings.Contains(err.Error(), "no resolver but this one") {
		t.Errorf("error is %v", err)
	}
	other := netip.MustParseAddrPort("127.0.0.53:5353")
	c.Resolvers = append(c.Resolvers, other)
	if got, err := newResolvers(c).current(); err != nil || len(got) != 1 || got[0] != other {
		t.Errorf("resolvers are %v (%v), want %s alone", got, err, other)
	}
}

// TestALoopIsCut: redirect rules that capture weft-dp's own queries return them to the server, from the sending socket.
func TestALoopIsCut(t *testing.T) {
	var redirected atomic.Pointer[Server]
	var queries atomic.Int32
	back := resolver(t, func(m *dns.Msg, _ string) *dns.Msg {
		queries.Add(1)
		s := redirected.Load()
		s.forwarder.mu.Lock()
		var from netip.AddrPort
		for from = range s.forwarder.waiting {
		}
		s.forwarder.mu.Unlock()
		return s.reply(m, net.UDPAddrFromAddrPort(from))
	})
	s, at := start(t, Config{Resolvers: []netip.AddrPort{back}})
	redirected.Store(s)
	if got := told(queryOver(t, "udp", at, question("example.com.", dns.TypeA))); got != "SERVFAIL" ||
		queries.Load() > 2 {
		t.Errorf("answered %q after %d questions, want SERVFAIL at once", got, queries.Load())
	}
}

func TestResolvConfIsReadAnewWhenItChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	r := newResolvers(Config{ResolvConf: file, Port: 15053})
	for _, c := range []struct{ text, want string }{
		{"", "no such file"},
		{"nameserver 10.0.0.1\nnameserver fe80::1%eth0\nsearch example.com\n", "[10.0.0.1:53 [fe80::1%eth0]:53]"},
		{"nameserver 10.0.0.2\n", "[10.0.0.2:53]"},
		{"nameserver nonsense\n", "names no resolver"},
		{"nameserver 127.0.0.53\n", "[127.0.0.53:53]"},
	} {
		if c.text != "" {
			next := file + ".next"
			if err := os.WriteFile(next, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, file); err != nil {
				t.Fatal(err)
			}
		}
		got, err := r.current()
		if text := fmt.Sprint(got, err); !strings.Contains(text, c.want) {
			t.Errorf("with %q the resolvers are %s, want %s", c.text, text, c.want)
		}
	}
}

func TestResolversAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.2": "10.0.0.2:53", "10.0.0.2:5353": "10.0.0.2:5353", "fd00::2": "[fd00::2]:53",
		"[fd00::2]:54": "[fd00::2]:54",
		"":             "is no resolver", "dns.example.com": "is no resolver", "10.0.0.2:0": "is no resolver",
		"10.0.0.2:x": "is no resolver",
	} {
		resolver, err := ParseResolver(text)
		if got := fmt.Sprint(resolver, err); !strings.Contains(got, want) {
			t.Errorf("%q is read as %s, want %s", text, got, want)
		}
	}
}

// writer records the response over a network.
type writer struct {
	dns.ResponseWriter
	from  net.Addr
	wrote *dns.Msg
}

func (w *writer) RemoteAddr() net.Addr { return w.from }

func (w *writer) WriteMsg(m *dns.Msg) error {
	w.wrote = m
	_, err := m.Pack()
	return err
}

// FuzzHostilePackets: hostile queries and responses fail only the query, and a response over UDP is no longer than the
// client accepts.
func FuzzHostilePackets(f *testing.F) {
	pack := func(m *dns.Msg) []byte {
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		return packed
	}
	edns := question("web.svc.mesh.local.", dns.TypeANY)
	edns.SetEdns0(100, true)
	headerOnly := pack(question("x.", dns.TypeA))[:12]
	for _, m := range [][]byte{pack(question("web.svc.mesh.local.", dns.TypeA)), pack(edns), headerOnly} {
		f.Add(m, pack(world(question("example.com.", dns.TypeA), "udp")))
		f.Add(m, headerOnly)
	}
	f.Add(pack(question("example.com.", dns.TypeA)), pack(world(question("example.com.", dns.TypeA), "udp")))
	s := New(Config{ResolvConf: filepath.Join(f.TempDir(), "none"), Log: slog.New(slog.DiscardHandler)})
	s.Replace(mesh)
	f.Fuzz(func(t *testing.T, query, replied []byte) {
		request, reply := new(dns.Msg), new(dns.Msg)
		if request.Unpack(query) != nil {
			return
		}
		if reply.Unpack(replied) == nil && len(request.Question) == 1 && matches(reply, request) {
			finish(request, reply, true)
			if _, err := reply.Pack(); err == nil && reply.IsTsig() == nil && reply.Len() > sizeOver(request) {
				t.Errorf("%d bytes are passed on to a client that takes %d", reply.Len(), sizeOver(request))
			}
		}
		w := &writer{from: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4}}
		s.ServeDNS(w, request)
		if w.wrote == nil || w.wrote.Id != request.Id || w.wrote.Len() > sizeOver(request) {
			t.Errorf("asked %v, answered %v", request, w.wrote)
		}
	})
}
