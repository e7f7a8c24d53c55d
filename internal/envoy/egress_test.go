package envoy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/internal/xds"
	"weft/kind"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

const (
	apiSNI   = "a0123456789abcdef.api.80.default.mes"
	otherSNI = "afedcba9876543210.other.80.default.mes"
)

// chainFor is a chain that lets in whom the rules allow.
func chainFor(sni string, protocol kind.Protocol, allow ...match.Rule) graph.EgressChain {
	name := strings.Split(sni, ".")[1]
	return graph.EgressChain{
		EgressService: graph.EgressService{
			Key:  graph.DestinationKey{Kind: graph.ExternalService, Mesh: "default", Service: name, Port: 80},
			SNIs: []string{sni}, Protocol: protocol,
		},
		Permissions:  &match.Permissions{Allow: allow},
		TrustDomains: []string{domainEast, domainWest},
	}
}

// outsideOf is where a chain leads.
func outsideOf(c graph.EgressChain, tls *kind.ExternalTLS, servers ...kind.ExternalEndpoint) *graph.ExternalUpstream {
	return &graph.ExternalUpstream{Key: c.Key.On(graph.ExternalLocality), Protocol: c.Protocol, Endpoints: servers, TLS: tls}
}

func serverOf(t *testing.T, address string, at net.Addr) kind.ExternalEndpoint {
	t.Helper()
	return kind.ExternalEndpoint{Address: address, Port: uint32(at.(*net.TCPAddr).Port)}
}

// startEgress runs an egress with the chains, and answers where it listens.
func startEgress(t *testing.T, east *authority, chains []graph.EgressChain, more ...*xds.Resource) string {
	t.Helper()
	if !slices.ContainsFunc(more, func(r *xds.Resource) bool { return r.Name == trustSecret }) {
		more = append(more, trust(east))
	}
	more = append(more, Evicted("default", []string{evictedName})...)
	l := &graph.EgressListener{Address: "127.0.0.1", Port: freePort(t)}
	resources := append(more, identity(t, east.leaf(t, serverID)), Egress(l, graph.Source{}, chains))
	for i := range chains {
		resources = append(resources, ChainResources(&chains[i])...)
	}
	startEnvoy(t, resources...)
	return fmt.Sprintf("127.0.0.1:%d", l.Port)
}

// through is a client of HTTP whose connections go to an egress under a server name.
func through(t *testing.T, egress, sni string, leaf tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: naming(leaf, sni),
		DialContext:     (&dialTo{egress}).DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// Who gets out to what is a matter of the certificate and the server name together.
func TestWhoGetsOut(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	echoing, heard := listener(t)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	second := clientID + "-2"
	api := chainFor(apiSNI, kind.HTTP, match.Rule{Origin: "first", Exact: clientID})
	db := chainFor(otherSNI, kind.TCP, match.Rule{Origin: "second", Exact: second})
	open := chainFor("a0123456789abcdef.open.80.default.mes", kind.HTTP, match.Everybody("the mesh").Allow...)
	var more []*xds.Resource
	for chain, at := range map[*graph.EgressChain]net.Addr{&api: app.Listener.Addr(), &db: echoing, &open: app.Listener.Addr()} {
		more = append(more, ExternalUpstream(outsideOf(*chain, nil, serverOf(t, "127.0.0.1", at)))...)
	}
	egress := startEgress(t, east, []graph.EgressChain{api, db, open}, append(more, trust(east, west))...)

	for _, c := range []struct {
		who       string
		leaf      tls.Certificate
		api, open bool
	}{
		{"named by the rule", east.leaf(t, clientID), true, true},
		{"another", east.leaf(t, second), false, true},
		{"of another domain", west.leaf(t, "spiffe://"+domainWest+"/workload/client"), false, true},
		{"signed by another domain's CA", west.leaf(t, clientID), false, false},
		{"with names in two domains", east.leaf(t, clientID, "spiffe://"+domainWest+"/workload/x"), false, false},
		{"signed by nobody's CA", newAuthority(t, domainEast).leaf(t, clientID), false, false},
		{"without a name", east.leaf(t), false, false},
		{"an instance that was put out", east.instance(t, evictedName, clientID), false, false},
	} {
		t.Run(c.who, func(t *testing.T) {
			for sni, want := range map[string]bool{apiSNI: c.api, open.SNIs[0]: c.open, "a0123456789abcdef.gone.80.default.mes": false, "": false, graph.ReadyName: false} {
				response, err := through(t, egress, sni, c.leaf).Get("https://example/")
				if got := err == nil && response.StatusCode == 200; got != want {
					t.Errorf("through %q: %v (%v, %v), want %v", sni, got, response, err, want)
				}
			}
		})
	}
	t.Run("the agent beside it sees the leaf", func(t *testing.T) {
		seen := false
		conn, err := tls.Dial("tcp", egress, &tls.Config{
			ServerName: graph.ReadyName, InsecureSkipVerify: true,
			VerifyPeerCertificate: func(leaf [][]byte, _ [][]*x509.Certificate) error { seen = len(leaf) > 0; return nil },
		})
		if err == nil {
			conn.Close()
		}
		if !seen {
			t.Errorf("a handshake under %s shows no leaf: %v", graph.ReadyName, err)
		}
	})
	for leaf, want := range map[string]bool{second: true, clientID: false} {
		conn, err := tls.Dial("tcp", egress, naming(east.leaf(t, leaf), otherSNI))
		if err == nil {
			defer conn.Close()
			_, _ = io.WriteString(conn, "x")
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		if got := err == nil; got != want || heard.Swap(0) > 0 != want {
			t.Errorf("bytes of %s get out: %v (%v), want %v", leaf, got, err, want)
		}
	}
}

// worldly is the certificate of a server of the world with the names.
func (a *authority) worldly(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{DNSNames: names, IPAddresses: ipsOf(names)})
}

func ipsOf(names []string) []net.IP {
	var ips []net.IP
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

func (a *authority) text() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func pair(t *testing.T, leaf tls.Certificate) (certificate, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// machineTrusts is what the agent would say of the machine's authorities.
func machineTrusts(a *authority) *xds.Resource {
	return xds.NewResource(xds.Secret, rootsSecret, &tlsv3.Secret{
		Name: rootsSecret,
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inlined(a.text())}},
	})
}

// Which server outside is taken for the service.
func TestWhichServerOutsideIsBelieved(t *testing.T) {
	world, other := newAuthority(t, "world"), newAuthority(t, "other")
	verify := func(mode string, change func(*kind.ExternalVerification)) *kind.ExternalTLS {
		v := &kind.ExternalVerification{Mode: mode}
		if change != nil {
			change(v)
		}
		return &kind.ExternalTLS{Enabled: true, Verification: v}
	}
	named := func(name string) func(*kind.ExternalVerification) {
		return func(v *kind.ExternalVerification) { v.ServerName = name }
	}
	sans := func(kindOf, value string) func(*kind.ExternalVerification) {
		return func(v *kind.ExternalVerification) { v.SubjectAltNames = []kind.SANMatch{{Type: kindOf, Value: value}} }
	}
	for _, c := range []struct {
		name     string
		address  string
		server   tls.Certificate
		tls      *kind.ExternalTLS
		ca       *authority // nil: the machine's, which is world
		believed bool
	}{
		{"its own host name", "localhost", world.worldly(t, "localhost"), verify("", nil), nil, true},
		{"a wildcard", "127.0.0.1", world.worldly(t, "*.example.com"), verify("", named("api.example.com")), nil, true},
		{"another host name", "localhost", world.worldly(t, "elsewhere"), verify("", nil), nil, false},
		{"its own address", "127.0.0.1", world.worldly(t, "127.0.0.1"), verify("", nil), nil, true},
		{"another address", "127.0.0.1", world.worldly(t, "127.0.0.2"), verify("", nil), nil, false},
		{"the name that is asked for", "127.0.0.1", world.worldly(t, "api.example.com"), verify("", named("api.example.com")), nil, true},
		{"a written name", "localhost", world.worldly(t, "api.example.com"), verify("", sans("Exact", "api.example.com")), nil, true},
		{"a written prefix", "localhost", world.worldly(t, "api.example.com"), verify("", sans("Prefix", "api.")), nil, true},
		{"no written name", "localhost", world.worldly(t, "localhost"), verify("", sans("Exact", "api.example.com")), nil, false},
		{"a SPIFFE ID", "localhost", world.leaf(t, "spiffe://world/db"), verify("", sans("Exact", "spiffe://world/db")), nil, true},
		{"another authority", "localhost", other.worldly(t, "localhost"), verify("", nil), nil, false},
		{"the authority that is named", "localhost", other.worldly(t, "localhost"), verify("", nil), other, true},
		{"the machine's, where another is named", "localhost", world.worldly(t, "localhost"), verify("", nil), other, false},
		{"SkipSAN: any name", "localhost", world.worldly(t, "elsewhere"), verify("SkipSAN", nil), nil, true},
		{"SkipSAN: no other authority", "localhost", other.worldly(t, "localhost"), verify("SkipSAN", nil), nil, false},
		{"SkipCA: any authority", "localhost", other.worldly(t, "localhost"), verify("SkipCA", nil), nil, true},
		{"SkipCA: any name, which nobody vouches for", "localhost", other.worldly(t, "elsewhere"), verify("SkipCA", nil), nil, true},
		{"SkipAll: anybody", "localhost", other.worldly(t, "elsewhere"), verify("SkipAll", nil), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app := worldServer(t, &tls.Config{Certificates: []tls.Certificate{c.server}}, func(http.ResponseWriter, *http.Request) {})
			east := newAuthority(t, domainEast)
			chain := chainFor(apiSNI, kind.HTTP, match.Everybody("the mesh").Allow...)
			out := outsideOf(chain, c.tls, serverOf(t, c.address, app.Listener.Addr()))
			if c.ca != nil {
				out.CACert = c.ca.text()
			}
			egress := startEgress(t, east, []graph.EgressChain{chain}, append(ExternalUpstream(out), machineTrusts(world))...)
			if got := reaches(t, through(t, egress, apiSNI, east.leaf(t, clientID))); got != c.believed {
				t.Errorf("believed: %v, want %v", got, c.believed)
			}
		})
	}
}

// reaches says whether requests get an answer from outside. The first may come before its name was looked up.
func reaches(t *testing.T, client *http.Client) bool {
	t.Helper()
	for range 100 {
		response, err := client.Get("https://example/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if !strings.Contains(string(body), "no healthy upstream") {
			return response.StatusCode == 200
		}
	}
	t.Fatal("the server's name was not looked up")
	return false
}

func worldServer(t *testing.T, config *tls.Config, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// A server outside sees its own name, the certificate that was meant for it and nothing of who calls.
func TestWhatTheOutsideSees(t *testing.T) {
	world, east := newAuthority(t, "world"), newAuthority(t, domainEast)
	var seen http.Header
	var host, sni, presented string
	clients := x509.NewCertPool()
	clients.AddCert(world.cert)
	app := worldServer(t, &tls.Config{
		Certificates: []tls.Certificate{world.worldly(t, "localhost")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}, func(w http.ResponseWriter, r *http.Request) {
		seen, host, sni, presented = r.Header, r.Host, r.TLS.ServerName, r.TLS.PeerCertificates[0].DNSNames[0]
		w.Header().Set(unservedHeader, unservedRefused)
	})
	chain := chainFor(apiSNI, kind.HTTP, match.Everybody("the mesh").Allow...)
	out := outsideOf(chain, &kind.ExternalTLS{Enabled: true}, serverOf(t, "localhost", app.Listener.Addr()))
	out.ClientCert, out.ClientKey = pair(t, world.worldly(t, "weft.example"))
	egress := startEgress(t, east, []graph.EgressChain{chain}, append(ExternalUpstream(out), machineTrusts(world))...)
	client := through(t, egress, apiSNI, east.leaf(t, clientID))
	if !reaches(t, client) {
		t.Fatal("the server refuses the egress")
	}
	request, _ := http.NewRequestWithContext(t.Context(), "GET", "https://api.extsvc.mesh.local/", nil)
	request.Header.Set("x-forwarded-client-cert", "URI=spiffe://forged")
	request.Header.Set("x-envoy-expected-rq-timeout-ms", "15000")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get(unservedHeader); got != "" {
		t.Errorf("the outside's %s: %s is passed on to proxies that would believe it", unservedHeader, got)
	}
	if host != "localhost" || sni != "localhost" || presented != "weft.example" {
		t.Errorf("it is asked for as %q and %q by %q, want localhost twice and weft.example", host, sni, presented)
	}
	var names []string
	for name := range seen {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	if want := []string{"accept-encoding", "user-agent", "x-forwarded-proto", "x-request-id"}; !slices.Equal(names, want) {
		t.Errorf("it is sent the headers %v, want %v", names, want)
	}
}

// What comes first is used while it answers; where nobody does, what stands in reserve, and no request is lost.
func TestReservesAreUsedWhenNobodyBeforeThemAnswers(t *testing.T) {
	east := newAuthority(t, domainEast)
	answers := func(name string) *httptest.Server {
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(app.Close)
		return app
	}
	first, reserve := answers("first"), answers("reserve")
	chain := chainFor(apiSNI, kind.HTTP, match.Everybody("the mesh").Allow...)
	before, after := serverOf(t, "127.0.0.1", first.Listener.Addr()), serverOf(t, "127.0.0.1", reserve.Listener.Addr())
	after.Priority = 1
	egress := startEgress(t, east, []graph.EgressChain{chain}, ExternalUpstream(outsideOf(chain, nil, before, after))...)
	client := through(t, egress, apiSNI, east.leaf(t, clientID))
	ask := func() string {
		response, err := client.Post("https://example/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	for range 10 {
		if got := ask(); got != "first" {
			t.Fatalf("answered by %q while the first one is well", got)
		}
	}
	first.Close()
	for range 20 {
		if got := ask(); got != "reserve" {
			t.Fatalf("answered by %q while the reserve is well", got)
		}
	}
}

// A service that comes or goes beside it leaves a connection alone that is open.
func TestChainsOfOthersComeAndGo(t *testing.T) {
	app, _ := listener(t)
	east := newAuthority(t, domainEast)
	all := match.Everybody("the mesh").Allow
	stays, comes := chainFor(apiSNI, kind.TCP, all...), chainFor(otherSNI, kind.TCP, all...)
	l := &graph.EgressListener{Address: "127.0.0.1", Port: freePort(t)}
	both := Egress(l, graph.Source{}, []graph.EgressChain{stays, comes})
	resources := append(ChainResources(&stays), ChainResources(&comes)...)
	for _, chain := range []graph.EgressChain{stays, comes} {
		resources = append(resources, ExternalUpstream(outsideOf(chain, nil, serverOf(t, "127.0.0.1", app)))...)
	}
	resources = append(resources, trust(east), identity(t, east.leaf(t, serverID)))
	resources = append(resources, Evicted("default", nil)...)
	reload := startReloading(t, Egress(l, graph.Source{}, []graph.EgressChain{stays}), resources...)
	egress := fmt.Sprintf("127.0.0.1:%d", l.Port)
	dial := func(sni string) (*tls.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", egress, naming(east.leaf(t, clientID), sni))
	}
	conn, err := dial(apiSNI)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered := func(conn net.Conn) bool {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, "x")
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err == nil
	}
	if !answered(conn) {
		t.Fatal("the connection is not answered to begin with")
	}
	reload(both)
	other, err := dial(otherSNI)
	for giveUp := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(giveUp); {
		other, err = dial(otherSNI) // Envoy takes the new listener in its own time
	}
	if err != nil || !answered(other) {
		t.Fatalf("what came is not reached: %v", err)
	}
	defer other.Close()
	reload(Egress(l, graph.Source{}, []graph.EgressChain{stays}))
	// What went is cut off after the drain time of a second, which shows that this has passed.
	_ = other.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := bufio.NewReader(other).ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("what went is still served: %v", err)
	}
	if !answered(conn) {
		t.Error("a connection was cut off by a service that came and went beside it")
	}
}
