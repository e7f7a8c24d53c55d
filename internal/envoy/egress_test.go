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

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/internal/zoneproxy"
	"weft/kind"
)

const (
	apiSNI   = "a0123456789abcdef.api.80.default.mes"
	otherSNI = "afedcba9876543210.other.80.default.mes"
)

// chainFor returns a filter chain that allows the clients of the given rules.
func chainFor(sni string, protocol kind.Protocol, allow ...match.Rule) proxy.EgressChain {
	name := strings.Split(sni, ".")[1]
	return proxy.EgressChain{
		EgressService: zoneproxy.EgressService{
			Key:  service.DestinationKey{Kind: service.ExternalService, Mesh: "default", Service: name, Port: 80},
			SNIs: []string{sni}, Protocol: protocol,
		},
		Permissions:  &match.Permissions{Allow: allow},
		TrustDomains: []string{domainEast, domainWest},
	}
}

// upstreamOf returns the external upstream of a chain.
func upstreamOf(
	c proxy.EgressChain,
	tls *kind.ExternalTLS,
	servers ...kind.ExternalEndpoint,
) *zoneproxy.ExternalUpstream {
	return &zoneproxy.ExternalUpstream{
		Key:       c.Key.WithLocality(service.ExternalLocality),
		Protocol:  c.Protocol,
		Endpoints: servers,
		TLS:       tls,
	}
}

func serverOf(t *testing.T, address string, at net.Addr) kind.ExternalEndpoint {
	t.Helper()
	return kind.ExternalEndpoint{Address: address, Port: uint32(at.(*net.TCPAddr).Port)}
}

// startEgress runs an egress with the chains and returns its address.
func startEgress(t *testing.T, east *authority, chains []proxy.EgressChain, more ...*xds.Resource) string {
	t.Helper()
	if !slices.ContainsFunc(more, func(r *xds.Resource) bool { return r.Name == trustSecret }) {
		more = append(more, trust(east))
	}
	more = append(more, EvictionFilters("default", []string{evictedName})...)
	l := &proxy.EgressListener{Address: "127.0.0.1", Port: freePort(t)}
	resources := append(append(more, certificateSecret(t, east.certificate(t, serverID))),
		Egress(l, identity.Source{}, chains)...)
	for i := range chains {
		resources = append(resources, ChainResources(&chains[i])...)
	}
	startEnvoy(t, resources...)
	return fmt.Sprintf("127.0.0.1:%d", l.Port)
}

// through returns an HTTP client whose connections go to an egress with an SNI.
func through(t *testing.T, egress, sni string, certificate tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: naming(certificate, sni),
		DialContext:     (&dialTo{egress}).DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testwait.Timeout}
}

// The certificate and the SNI together decide which external service a client reaches.
func TestWhoGetsOut(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	echoing, heard := listener(t)
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	second := clientID + "-2"
	api := chainFor(apiSNI, kind.HTTP, match.Rule{Origin: "first", IDPattern: kind.IDPattern{Exact: clientID}})
	db := chainFor(otherSNI, kind.TCP, match.Rule{Origin: "second", IDPattern: kind.IDPattern{Exact: second}})
	open := chainFor("a0123456789abcdef.open.80.default.mes", kind.HTTP, match.AllowAll("the mesh").Allow...)
	var more []*xds.Resource
	for chain, at := range map[*proxy.EgressChain]net.Addr{&api: app.Listener.Addr(), &db: echoing,
		&open: app.Listener.Addr()} {
		more = append(more, withoutPolicies(upstreamOf(*chain, nil, serverOf(t, "127.0.0.1", at)))...)
	}
	egress := startEgress(t, east, []proxy.EgressChain{api, db, open}, append(more, trust(east, west))...)

	for _, c := range []struct {
		who         string
		certificate tls.Certificate
		api, open   bool
	}{
		{"named by the rule", east.certificate(t, clientID), true, true},
		{"another", east.certificate(t, second), false, true},
		{"of another domain", west.certificate(t, "spiffe://"+domainWest+"/workload/client"), false, true},
		{"signed by another domain's CA", west.certificate(t, clientID), false, false},
		{"with names in two domains", east.certificate(t, clientID, "spiffe://"+domainWest+"/workload/x"), false,
			false},
		{"signed by an unknown CA", newAuthority(t, domainEast).certificate(t, clientID), false, false},
		{"without a name", east.certificate(t), false, false},
		{"an evicted instance", east.instance(t, evictedName, clientID), false, false},
	} {
		t.Run(c.who, func(t *testing.T) {
			for sni, want := range map[string]bool{apiSNI: c.api, open.SNIs[0]: c.open,
				"a0123456789abcdef.gone.80.default.mes": false, "": false, proxy.ReadyName: false} {
				response, err := through(t, egress, sni, c.certificate).Get("https://example/")
				if got := err == nil && response.StatusCode == 200; got != want {
					t.Errorf("through %q: %v (%v, %v), want %v", sni, got, response, err, want)
				}
			}
		})
	}
	t.Run("the agent beside it sees the certificate", func(t *testing.T) {
		seen := false
		conn, err := tls.Dial("tcp", egress, &tls.Config{
			ServerName: proxy.ReadyName, InsecureSkipVerify: true,
			VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
				seen = len(chain) > 0
				return nil
			},
		})
		if err == nil {
			conn.Close()
		}
		if !seen {
			t.Errorf("a handshake under %s presents no certificate: %v", proxy.ReadyName, err)
		}
	})
	for spiffeID, want := range map[string]bool{second: true, clientID: false} {
		conn, err := tls.Dial("tcp", egress, naming(east.certificate(t, spiffeID), otherSNI))
		if err == nil {
			defer conn.Close()
			_, _ = io.WriteString(conn, "x")
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		if got := err == nil; got != want || heard.Swap(0) > 0 != want {
			t.Errorf("bytes of %s get out: %v (%v), want %v", spiffeID, got, err, want)
		}
	}
}

// worldly returns a certificate of an external server with the names.
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

func pair(t *testing.T, signed tls.Certificate) (certificate, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(signed.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// machineTrusts returns the machine's root certificates as the agent serves them.
func machineTrusts(a *authority) *xds.Resource {
	return xds.NewResource(xds.Secret, rootsSecret, &tlsv3.Secret{
		Name: rootsSecret,
		Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inlined(a.text())}},
	})
}

// An external server is accepted only as the service's verification states.
func TestWhichExternalServerIsTrusted(t *testing.T) {
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
		name    string
		address string
		server  tls.Certificate
		tls     *kind.ExternalTLS
		ca      *authority // nil means the machine's roots, which include world
		trusted bool
	}{
		{"its own host name", "localhost", world.worldly(t, "localhost"), verify("", nil), nil, true},
		{"a wildcard", "127.0.0.1", world.worldly(t, "*.example.com"), verify("", named("api.example.com")), nil, true},
		{"another host name", "localhost", world.worldly(t, "another.example"), verify("", nil), nil, false},
		{"its own address", "127.0.0.1", world.worldly(t, "127.0.0.1"), verify("", nil), nil, true},
		{"another address", "127.0.0.1", world.worldly(t, "127.0.0.2"), verify("", nil), nil, false},
		{"the requested SNI", "127.0.0.1", world.worldly(t, "api.example.com"), verify("", named("api.example.com")),
			nil, true},
		{"a listed name", "localhost", world.worldly(t, "api.example.com"),
			verify("", sans("Exact", "api.example.com")), nil, true},
		{"a listed prefix", "localhost", world.worldly(t, "api.example.com"), verify("", sans("Prefix", "api.")), nil,
			true},
		{"no listed name", "localhost", world.worldly(t, "localhost"), verify("", sans("Exact", "api.example.com")),
			nil, false},
		{"a SPIFFE ID", "localhost", world.certificate(t, "spiffe://world/db"),
			verify("", sans("Exact", "spiffe://world/db")), nil, true},
		{"another CA", "localhost", other.worldly(t, "localhost"), verify("", nil), nil, false},
		{"the configured CA", "localhost", other.worldly(t, "localhost"), verify("", nil), other, true},
		{"the machine's CA, where another one is configured", "localhost", world.worldly(t, "localhost"),
			verify("", nil), other, false},
		{"SkipSAN: any name", "localhost", world.worldly(t, "another.example"), verify("SkipSAN", nil), nil, true},
		{"SkipSAN: no other CA", "localhost", other.worldly(t, "localhost"), verify("SkipSAN", nil), nil, false},
		{"SkipCA: any CA", "localhost", other.worldly(t, "localhost"), verify("SkipCA", nil), nil, true},
		{"SkipCA: any name, which no CA has verified", "localhost", other.worldly(t, "another.example"),
			verify("SkipCA", nil), nil, true},
		{"SkipAll: any server", "localhost", other.worldly(t, "another.example"), verify("SkipAll", nil), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app := worldServer(t, &tls.Config{Certificates: []tls.Certificate{c.server}},
				func(http.ResponseWriter, *http.Request) {})
			east := newAuthority(t, domainEast)
			chain := chainFor(apiSNI, kind.HTTP, match.AllowAll("the mesh").Allow...)
			out := upstreamOf(chain, c.tls, serverOf(t, c.address, app.Listener.Addr()))
			if c.ca != nil {
				out.CACert = c.ca.text()
			}
			egress := startEgress(t, east, []proxy.EgressChain{chain},
				append(withoutPolicies(out), machineTrusts(world))...)
			if got := reaches(t, through(t, egress, apiSNI, east.certificate(t, clientID))); got != c.trusted {
				t.Errorf("trusted: %v, want %v", got, c.trusted)
			}
		})
	}
}

// reaches reports whether requests get a response of an external server. The first request may come before the host
// name is resolved.
func reaches(t *testing.T, client *http.Client) (does bool) {
	t.Helper()
	testwait.UntilTrue(t, "the server's name is looked up", func() bool {
		response, err := client.Get("https://example/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		does = response.StatusCode == 200
		return !strings.Contains(string(body), "no healthy upstream")
	})
	return does
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

// An external server gets its own host name and the certificate for it, and no header about the caller.
func TestWhatAnExternalServerSees(t *testing.T) {
	world, east := newAuthority(t, "world"), newAuthority(t, domainEast)
	var seen http.Header
	var host, sni, presented string
	clients := x509.NewCertPool()
	clients.AddCert(world.cert)
	app := worldServer(t, &tls.Config{
		Certificates: []tls.Certificate{world.worldly(t, "localhost")}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients,
	}, func(w http.ResponseWriter, r *http.Request) {
		seen, host, sni, presented = r.Header, r.Host, r.TLS.ServerName, r.TLS.PeerCertificates[0].DNSNames[0]
		w.Header().Set(unservedHeader, unservedNotReached)
	})
	chain := chainFor(apiSNI, kind.HTTP, match.AllowAll("the mesh").Allow...)
	out := upstreamOf(chain, &kind.ExternalTLS{Enabled: true}, serverOf(t, "localhost", app.Listener.Addr()))
	out.ClientCert, out.ClientKey = pair(t, world.worldly(t, "weft.example"))
	egress := startEgress(t, east, []proxy.EgressChain{chain}, append(withoutPolicies(out), machineTrusts(world))...)
	client := through(t, egress, apiSNI, east.certificate(t, clientID))
	if !reaches(t, client) {
		t.Fatal("the server rejects the egress")
	}
	request, _ := http.NewRequestWithContext(t.Context(), "GET", "https://api.extsvc.mesh.local/", nil)
	request.Header.Set("x-forwarded-client-cert", "URI=spiffe://forged")
	request.Header.Set("x-envoy-expected-rq-timeout-ms", "15000")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get(unservedHeader); got != "" {
		t.Errorf("%s: %s of an external server reaches proxies that would trust it", unservedHeader, got)
	}
	if host != "localhost" || sni != "localhost" || presented != "weft.example" {
		t.Errorf("host %q, SNI %q, client certificate %q, want localhost twice and weft.example", host, sni, presented)
	}
	var names []string
	for name := range seen {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	if want := []string{"accept-encoding", "user-agent", "x-forwarded-proto", "x-request-id"}; !slices.Equal(names,
		want) {
		t.Errorf("it is sent the headers %v, want %v", names, want)
	}
}

// The endpoints of the first priority are used while one of them responds. Then those of the next priority are used,
// and no request is lost.
func TestTheNextPriorityServesWhileNoEndpointOfTheFirstResponds(t *testing.T) {
	east := newAuthority(t, domainEast)
	responds := func(name string) *httptest.Server {
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, name)
		}))
		t.Cleanup(app.Close)
		return app
	}
	first, reserve := responds("first"), responds("reserve")
	chain := chainFor(apiSNI, kind.HTTP, match.AllowAll("the mesh").Allow...)
	before, after := serverOf(t, "127.0.0.1", first.Listener.Addr()), serverOf(t, "127.0.0.1", reserve.Listener.Addr())
	after.Priority = 1
	egress := startEgress(t, east, []proxy.EgressChain{chain},
		withoutPolicies(upstreamOf(chain, nil, before, after))...)
	client := through(t, egress, apiSNI, east.certificate(t, clientID))
	request := func() string {
		response, err := client.Post("https://example/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	for range 10 {
		if got := request(); got != "first" {
			t.Fatalf("answered by %q while the first one is well", got)
		}
	}
	first.Close()
	for range 20 {
		if got := request(); got != "reserve" {
			t.Fatalf("answered by %q while the reserve is well", got)
		}
	}
}

// A service that is added or removed does not close open connections to another service.
func TestChainsOfOthersComeAndGo(t *testing.T) {
	app, _ := listener(t)
	east := newAuthority(t, domainEast)
	all := match.AllowAll("the mesh").Allow
	stays, comes := chainFor(apiSNI, kind.TCP, all...), chainFor(otherSNI, kind.TCP, all...)
	l := &proxy.EgressListener{Address: "127.0.0.1", Port: freePort(t)}
	both := Egress(l, identity.Source{}, []proxy.EgressChain{stays, comes})
	one := Egress(l, identity.Source{}, []proxy.EgressChain{stays})
	resources := slices.Concat(ChainResources(&stays), ChainResources(&comes), one[1:])
	for _, chain := range []proxy.EgressChain{stays, comes} {
		resources = append(resources, withoutPolicies(upstreamOf(chain, nil, serverOf(t, "127.0.0.1", app)))...)
	}
	resources = append(resources, trust(east), certificateSecret(t, east.certificate(t, serverID)))
	resources = append(resources, EvictionFilters("default", nil)...)
	reload := startReloading(t, one[0], resources...)
	egress := fmt.Sprintf("127.0.0.1:%d", l.Port)
	dial := func(sni string) (*tls.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: testwait.Timeout}, "tcp", egress,
			naming(east.certificate(t, clientID), sni))
	}
	conn, err := dial(apiSNI)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	responded := func(conn net.Conn) bool {
		_ = conn.SetDeadline(testwait.Deadline())
		_, _ = io.WriteString(conn, "x")
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err == nil
	}
	if !responded(conn) {
		t.Fatal("the connection is not answered to begin with")
	}
	reload(both[0])
	var other *tls.Conn
	testwait.Until(t, "the added service is reached", func() error {
		other, err = dial(otherSNI) // Envoy applies the new listener asynchronously
		return err
	})
	if !responded(other) {
		t.Fatal("the added service does not respond")
	}
	defer other.Close()
	reload(one[0])
	// The removed chain closes its connections after the drain time of a second, which shows that this time has passed.
	_ = other.SetReadDeadline(testwait.Deadline())
	if _, err := bufio.NewReader(other).ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("what went is still served: %v", err)
	}
	if !responded(conn) {
		t.Error("a connection was cut off by a service that came and went beside it")
	}
}
