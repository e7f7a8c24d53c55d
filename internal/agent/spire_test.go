package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/kind"
)

const webID = "spiffe://weft.test/web"

// certificates returns Envoy's page of the secrets from SPIRE. Each argument is "SPIFFEID SERIAL"; later ones are
// newer.
func certificates(t *testing.T, certs ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for i, cert := range certs {
		id, serial, _ := strings.Cut(cert, " ")
		uri, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		number, _ := new(big.Int).SetString(serial, 16)
		template := &x509.Certificate{
			SerialNumber: number, URIs: []*url.URL{uri},
			NotBefore: time.Now().Add(time.Duration(i) * time.Second), NotAfter: time.Now().Add(time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf(`{
			"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump.DynamicSecret", "name": "default",
			"secret": {
				"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "default",
				"tls_certificate": {
					"certificate_chain": {"inline_bytes": %q},
					"private_key": {"inline_bytes": "W3JlZGFjdGVkXQ=="}}}}`,
			base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))))
	}
	return `{"configs": [` + strings.Join(entries, ",") + `]}`
}

// awaited is the page of an Envoy that has requested a certificate and has none.
const awaited = `{"configs": [{
	"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump.DynamicSecret", "name": "default",
	"secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "default"}}]}`

// envoyShowing returns the administration interface of an Envoy with active and warming secrets.
func envoyShowing(t *testing.T, has, awaits func() string) *admin {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("resource") == "dynamic_active_secrets" {
			fmt.Fprint(w, has())
		} else {
			fmt.Fprint(w, awaits())
		}
	}))
	t.Cleanup(server.Close)
	return &admin{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}}
}

func TestTheNewestCertificateOfTheWantedNameIsTheProxys(t *testing.T) {
	const other = "spiffe://weft.test/other"
	for _, test := range []struct {
		name, has, awaits string
		serial, problem   string
	}{
		{"one", certificates(t, webID+" 0a"), "{}", "0a", ""},
		{"a newer one", certificates(t, webID+" 0a", webID+" 0b"), "{}", "0b", ""},
		{"another name beside it", certificates(t, webID+" 0a", other+" 0b"), "{}", "0a", ""},
		{"another name alone", certificates(t, other+" 0b", other+" 0c"), "{}", "",
			"Envoy has a certificate of " + other + ", and wants one of " + webID},
		{"one that is awaited", "{}", awaited, "", "Envoy has no certificate, and wants one of " + webID},
		{"none is wanted", "{}", "{}", "", ""},
		{"no page", "garbage", "{}", "", "envoy's secrets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			page := func(text string) func() string { return func() string { return text } }
			got, err := envoyShowing(t, page(test.has), page(test.awaits)).certificate(t.Context(), webID)
			if got.GetSerial() != test.serial || (err == nil) != (test.problem == "") || err != nil &&
				!strings.Contains(err.Error(), test.problem) {
				t.Errorf("it is %v (%v), want serial %q and an error with %q", got, err, test.serial, test.problem)
			}
		})
	}
}

func TestWhyThereIsNoCertificateSaysWhatToDo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	identity := &wire.Identity{Name: "identity", SpiffeId: webID, SpireSocket: socket}
	seen := fmt.Errorf("Envoy has no certificate")
	if why := whyNoCertificate(t.Context(), identity, seen); !strings.Contains(why,
		"no such file or directory: start the SPIRE agent there, or correct provider.spire.agent.socketPath of "+
			"MeshIdentity identity") {
		t.Errorf("without a socket: %s", why)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if why := whyNoCertificate(t.Context(), identity, seen); !strings.Contains(why,
		"Envoy has no certificate: register an entry") {
		t.Errorf("with an agent that does not know it: %s", why)
	}
}

// The listeners must present Envoy's certificate from SPIRE, and the report has it. Once the control plane signs again,
// the report has none.
func TestACertificateOfSPIREIsFollowed(t *testing.T) {
	page := watch("{}")
	a := &agent{
		Config: Config{Log: slog.New(slog.DiscardHandler)},
		settings: watch(&wire.Settings{Identity: &wire.Identity{SpiffeId: webID, SpireSocket: "/nowhere",
			Generation: "1"}}),
		cert: watch[*workloadCert](nil), statusReporter: newStatusReporter("run", "1.40.0"),
	}
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	ended := make(chan struct{})
	admin := envoyShowing(t, func() string { now, _ := page.load(); return now }, func() string { return awaited })
	go func() {
		defer close(ended)
		a.watchSPIRECertificate(ctx, admin)
	}()
	told := func(serial string) {
		t.Helper()
		_, err := a.statusReporter.report.await(ctx, func(r *wire.Report) bool {
			return r.Certificate.GetSerial() == serial
		})
		if err != nil {
			t.Fatalf("the certificate %q is not told: %v", serial, err)
		}
	}
	page.store(certificates(t, webID+" 0a"))
	told("0a")
	if l, _ := a.cert.load(); l == nil || l.serial != "0a" || len(l.chain) > 0 {
		t.Errorf("the certificate is %+v, want the serial 0a and no key", l)
	}
	a.settings.store(&wire.Settings{Identity: &wire.Identity{SpiffeId: webID, Generation: "2"}})
	told("")
	cancel()
	<-ended
}

// A listener presents its certificate before it requests the client's, and rejects clients without one.
func TestAListenerWithACertificateOfSPIREServes(t *testing.T) {
	listener := listenAs(t, func() *workloadCert { return newTestCert(t, 0x22) })
	var seen map[string]probeResult
	err := probeUntilReached(t, nil, listener, &workloadCert{serial: "22"}, &seen)
	if got := seen[kind.HostPort(listener.Address, listener.Port)].cert.serial; err != nil || got != "22" {
		t.Errorf("saw serial %q (%v), want 22", got, err)
	}
}

// A certificate from SPIRE has no key here. Envoy is never sent an empty one in its place.
func TestACertificateOfSPIREIsNotServed(t *testing.T) {
	store := newWorkloadCerts()
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{certs: store})
	stream, err := secretv3.NewSecretDiscoveryServiceClient(serveUnix(t, server)).StreamSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store.of(identitySecret).store(&workloadCert{serial: "01"})
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType,
		ResourceNames: []string{identitySecret}}); err != nil {
		t.Fatal(err)
	}
	// A request for another secret on the same stream replaces the first.
	store.of("other").store(&workloadCert{serial: "02", chain: []byte("chain"), key: []byte("key")})
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secretType,
		ResourceNames: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil || response.VersionInfo != "02" {
		t.Errorf("the first response is %v (%v), want the certificate that the agent has", response, err)
	}
}
