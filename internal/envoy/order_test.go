package envoy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// greetingSize is the size of a server's first message. It exceeds all buffers between server and client.
const greetingSize = 3_000_000

// greeter returns an application that speaks first, then echoes each byte. It counts its connections.
func greeter(t *testing.T) (net.Addr, *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
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
					_, _ = io.Copy(conn, conn)
				}
			}()
		}
	}()
	return l.Addr(), dialed
}

// order tells which side of a connection speaks first.
type order struct {
	name    string
	sends   string // by the client, before it reads
	expects int    // bytes that an allowed client reads
}

var orders = []order{
	{"client first", "x", greetingSize + 1},
	{"server first", "", greetingSize},
}

// talk returns the number of bytes that a caller reads at an address. A denied caller reads to the end of the
// connection, an allowed one what it expects.
func (o order) talk(address string, config *tls.Config) int {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(testwait.Deadline())
	_, _ = io.WriteString(conn, o.sends)
	n, _ := io.CopyN(io.Discard, conn, int64(o.expects))
	return int(n)
}

// A denied caller of a server reads nothing, whichever side speaks first, and the application gets no connection. It
// gets none either before the handshake is complete.
func TestDeniedCallersReadNothing(t *testing.T) {
	app, dialed := greeter(t)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	in := inboundTo(t, app, kind.TCP, rules()...)
	serveEnvoy(t, append(inboundResources(in, evictedName), trust(east, west),
		certificateSecret(t, east.certificate(t, serverID)))...)
	for name, caller := range callers(t, east, west) {
		for _, o := range orders {
			t.Run(name+"/"+o.name, func(t *testing.T) {
				read, want, connections := o.talk(address(in), presenting(caller.certificate)), 0, int32(0)
				if caller.allowed {
					want, connections = o.expects, 1
				}
				if got := dialed.Swap(0); read != want || got != connections {
					t.Errorf("read %d bytes over %d connections of the application, want %d over %d", read, got, want,
						connections)
				}
			})
		}
	}
	silent, err := net.Dial("tcp", address(in))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if read := orders[1].talk(address(in), presenting(east.certificate(t, clientID))); read != greetingSize ||
		dialed.Load() != 1 {
		t.Errorf("beside a client that begins no handshake: read %d bytes, %d connections of the application, want 1",
			read, dialed.Load())
	}
}

// allows reports whether a TCP inbound accepts a caller.
func allows(t *testing.T, address string, config *tls.Config) bool {
	t.Helper()
	switch read := orders[1].talk(address, config); read {
	case 0:
		return false
	case greetingSize:
		return true
	default:
		t.Fatalf("read %d of %d bytes", read, greetingSize)
		return false
	}
}

// Envoy evaluates the expressions of rules with any content as intended: a rule matches only its SPIFFE IDs, and its
// origin is text.
func TestNoRuleEscapesItsExpression(t *testing.T) {
	texts := []string{
		`x') ? 'allow:x' : 'allow:y')%`, `x' || true || '`, `x\`, `x\'`, `%CEL('allow:')%`, `x)%:5%`, "x\x00y", "x\ny",
		"x%%y", `x"y`, "xé", "x\U0001f600", "x,y",
	}
	app, _ := greeter(t)
	east := newAuthority(t, domainEast)
	var resources []*xds.Resource
	var inbounds []*proxy.InboundListener
	for i, text := range texts {
		in := inboundTo(t, app, kind.TCP, match.Rule{Origin: text, IDPattern: kind.IDPattern{Exact: clientID}},
			match.Rule{Origin: "z", IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/" + text}})
		in.Name = fmt.Sprint("text-", i)
		in.Permissions.Deny = []match.Rule{{Origin: text, IDPattern: kind.IDPattern{Prefix: serverID + text}}}
		inbounds = append(inbounds, in)
		resources = append(resources, inboundOf(in, true)...)
	}
	resources = append(resources, EvictionFilters("default", texts)...)
	startEnvoy(t, append(resources, trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for i, in := range inbounds {
		for id, want := range map[string]bool{clientID: true, serverID: false, "spiffe://" + domainEast + "/y": false} {
			if got := allows(t, address(in), presenting(east.certificate(t, id))); got != want {
				t.Errorf("rules with %q: %s is allowed: %v, want %v", texts[i], id, got, want)
			}
		}
	}
}

// A hostile CA that the mesh trusts cannot write a second SPIFFE ID by a comma.
func TestASANWithACommaIsDenied(t *testing.T) {
	app, dialed := greeter(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for _, id := range []string{serverID + "," + clientID, "spiffe://" + domainEast + "/x," + clientID + ",",
		clientID + ",x"} {
		if read := orders[1].talk(address(in), presenting(east.certificate(t, id))); read > 0 || dialed.Load() > 0 {
			t.Errorf("%s reads %d bytes", id, read)
		}
	}
	if !allows(t, address(in), presenting(east.certificate(t, clientID))) {
		t.Error("the client is denied")
	}
}

// A CA of one trust domain cannot write another domain's SPIFFE ID into x-forwarded-client-cert.
func TestACallerForgesNoDetailsOfItsCertificate(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("x-forwarded-client-cert"))
	}))
	t.Cleanup(app.Close)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app.Listener.Addr(), kind.HTTP,
		match.Rule{Origin: "clients", IDPattern: kind.IDPattern{Prefix: "spiffe://" + domainEast + "/"}})
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	own := "spiffe://" + domainEast + "/workload/x"
	for _, c := range []struct {
		ids  []string
		want int
	}{
		{[]string{own}, 200},
		{[]string{own, "https://x.example/"}, 200},
		{[]string{own + ";"}, 403}, {[]string{own + ","}, 403}, {[]string{own + "="}, 403},
		{[]string{own, "urn:y;URI=spiffe://" + domainWest + "/workload/admin"}, 403},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: presenting(east.certificate(t, c.ids...))}}
		response, err := client.Get("https://" + address(in))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%q get %d, want %d", c.ids, response.StatusCode, c.want)
		}
	}
}

// A list of evicted instances above the maximum length of an expression denies each of them and no other, alone and
// after many rules.
func TestLongLists(t *testing.T) {
	app, _ := greeter(t)
	east := newAuthority(t, domainEast)
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("client-%05d.default.east.dataplane.mesh.local", i))
	}
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	for i := range 3_000 {
		in.Permissions.Allow[0].OtherIDs = append(in.Permissions.Allow[0].OtherIDs, fmt.Sprintf("%s-%d", clientID, i))
	}
	startEnvoy(
		t,
		append(inboundResources(in, names...), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for _, c := range []struct {
		dns, id string
		want    bool
	}{
		{names[0], clientID, false}, {names[5_000], clientID, false}, {names[9_999], clientID + "-2999", false},
		{"client-10000.default.east.dataplane.mesh.local", clientID, true},
		{"client-00000.default.east.dataplane.mesh.local.x", clientID + "-0", true},
		{"x.client-00000.default.east.dataplane.mesh.local", clientID + "-2999", true},
		{"other", clientID + "-3000", false},
	} {
		if got := allows(t, address(in), presenting(east.instance(t, c.dns, c.id))); got != c.want {
			t.Errorf("%s of %s is allowed: %v, want %v", c.id, c.dns, got, c.want)
		}
	}
}

// A resumed TLS session does not bypass a decision.
func TestNoSessionIsResumedAfterADenial(t *testing.T) {
	app, _ := greeter(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	startEnvoy(
		t,
		append(inboundResources(in, evictedName), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := presenting(east.instance(t, evictedName, clientID))
		config.ClientSessionCache, config.MinVersion, config.MaxVersion = tls.NewLRUClientSessionCache(1), version,
			version
		for range 3 {
			if allows(t, address(in), config) {
				t.Errorf("with %s an evicted instance reads", tls.VersionName(version))
			}
		}
	}
}

// An inbound that accepts plaintext beside mutual TLS decides on the TLS connections and accepts the plaintext ones.
func TestAPlainConnectionBesideDecidedOnes(t *testing.T) {
	app, dialed := greeter(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	in.AlsoPlaintext = true
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for id, want := range map[string]bool{clientID: true, serverID: false} {
		if got := allows(t, address(in), presenting(east.certificate(t, id))); got != want {
			t.Errorf("%s is allowed: %v, want %v", id, got, want)
		}
	}
	plain, err := net.Dial("tcp", address(in))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, _ = io.WriteString(plain, "x")
	if n, err := io.CopyN(io.Discard, plain, greetingSize+1); err != nil || dialed.Load() != 2 {
		t.Errorf("a plain client reads %d bytes, %d connections: %v", n, dialed.Load(), err)
	}
}

// A client may end its sending side: the application sees the end, and its later bytes reach the client.
func TestHalfOfAConnectionCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(append(all, make([]byte, greetingSize)...))
	}()
	east := newAuthority(t, domainEast)
	in := inboundTo(t, l.Addr(), kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	conn, err := tls.Dial("tcp", address(in), presenting(east.certificate(t, clientID)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "all")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(conn); err != nil || len(back) != greetingSize+3 {
		t.Errorf("read %d bytes: %v", len(back), err)
	}
}

// A connection of an allowed caller never serves a denied one.
func TestADecisionIsOfItsOwnConnection(t *testing.T) {
	app, _ := greeter(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	good, bad := presenting(east.certificate(t, clientID)), presenting(east.certificate(t, serverID))
	done := make(chan struct{})
	var leaving sync.WaitGroup
	for range 4 {
		leaving.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					leave(address(in), good)
				}
			}
		})
	}
	for range 60 {
		if allows(t, address(in), bad) {
			t.Error("a denied caller reads, beside allowed ones that leave")
			break
		}
	}
	close(done)
	leaving.Wait()
	if !allows(t, address(in), good) {
		t.Error("an allowed caller reads nothing")
	}
}

// leave closes a connection as soon as its handshake is complete.
func leave(address string, config *tls.Config) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = tls.Client(conn, config).Handshake()
	conn.Close()
}

// An inbound at an IPv6 address, whose name has colons, decides like any other.
func TestADecisionAtAnIPv6Address(t *testing.T) {
	app, _ := greeter(t)
	free, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	free.Close()
	port := testnet.Port(t)
	east := newAuthority(t, domainEast)
	in := inboundTo(t, app, kind.TCP, match.Rule{Origin: "client", IDPattern: kind.IDPattern{Exact: clientID}})
	in.Address, in.Port, in.Name = "::1", uint32(port), fmt.Sprintf("::1_%d", port)
	startEnvoy(t, append(inboundResources(in), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for id, want := range map[string]bool{clientID: true, serverID: false} {
		if got := allows(t, fmt.Sprintf("[::1]:%d", port), presenting(east.certificate(t, id))); got != want {
			t.Errorf("%s is allowed: %v, want %v", id, got, want)
		}
	}
}

// A server of any protocol closes a connection whose handshake does not begin or does not complete.
func TestAHandshakeThatDoesNotEndIsClosed(t *testing.T) {
	t.Parallel()
	app, _ := greeter(t)
	east := newAuthority(t, domainEast)
	ofBytes, ofRequests := inboundTo(t, app, kind.TCP), inboundTo(t, app, kind.HTTP)
	ofRequests.Name = "requests"
	resources := append(inboundResources(ofBytes), inboundOf(ofRequests, true)...)
	startEnvoy(t, append(resources, trust(east), certificateSecret(t, east.certificate(t, serverID)))...)
	for _, in := range []*proxy.InboundListener{ofBytes, ofRequests} {
		for _, says := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
			t.Run(string(in.Protocol)+fmt.Sprint(len(says)), func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", address(in))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, says)
				_ = conn.SetDeadline(testwait.Deadline())
				if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it stays open, and the timeout of a handshake is %s", handshakeTimeout)
				}
			})
		}
	}
}
