package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"weft/internal/wire"
)

const webID = "spiffe://weft.test/web"

// certs is Envoy's page /certs with leaves, each as "SPIFFEID SERIAL", the later ones newer.
func certs(now time.Time, leaves ...string) string {
	var entries []string
	for i, leaf := range leaves {
		id, serial, _ := strings.Cut(leaf, " ")
		entries = append(entries, fmt.Sprintf(`{"ca_cert": [], "cert_chain": [{"serial_number": %q, "subject_alt_names": [{"uri": %q}], "valid_from": %q, "expiration_time": %q}]}`,
			serial, id, now.Add(time.Duration(i)*time.Second).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	}
	return fmt.Sprintf(`{"certificates": [{"ca_cert": [{"serial_number": "1"}], "cert_chain": []}, %s]}`, strings.Join(entries, ", "))
}

// envoyShowing answers the administration interface of an Envoy that has certificates.
func envoyShowing(t *testing.T, page func() string) *admin {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, page())
	}))
	t.Cleanup(server.Close)
	return &admin{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}}
}

func TestTheNewestCertificateOfTheWantedNameIsTheProxys(t *testing.T) {
	for _, test := range []struct {
		name, page, serial, problem string
	}{
		{"one", certs(time.Now(), webID+" 0a"), "0a", ""},
		{"a newer one", certs(time.Now(), webID+" 0a", webID+" 0b"), "0b", ""},
		{"another name beside it", certs(time.Now(), webID+" 0a", "spiffe://weft.test/other 0b"), "0a", ""},
		{"another name alone", certs(time.Now(), "spiffe://weft.test/other 0b", "spiffe://weft.test/other 0c"), "",
			"Envoy has a certificate of spiffe://weft.test/other, and wants one of " + webID},
		{"none", `{"certificates": []}`, "", "Envoy has no certificate, and wants one of " + webID},
		{"no page", "garbage", "", "envoy's certificates"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := envoyShowing(t, func() string { return test.page }).certificate(t.Context(), webID)
			if got.GetSerial() != test.serial || (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Errorf("it is %v (%v), want serial %q and an error with %q", got, err, test.serial, test.problem)
			}
		})
	}
}

func TestWhyThereIsNoCertificateSaysWhatToDo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	identity := &wire.Identity{Name: "identity", SpiffeId: webID, SpireSocket: socket}
	seen := fmt.Errorf("Envoy has no certificate")
	if why := whyNoCertificate(t.Context(), identity, seen); !strings.Contains(why, "no such file or directory: start the SPIRE agent there, or correct provider.spire.agent.socketPath of MeshIdentity identity") {
		t.Errorf("without a socket: %s", why)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if why := whyNoCertificate(t.Context(), identity, seen); !strings.Contains(why, "Envoy has no certificate: register an entry") {
		t.Errorf("with an agent that does not know it: %s", why)
	}
}

// What Envoy has from SPIRE is what the listeners are to present, and what the control plane is told; once the
// control plane signs again, nothing of SPIRE's is told.
func TestACertificateOfSPIREIsFollowed(t *testing.T) {
	page := watch(`{"certificates": []}`)
	a := &agent{
		Config:   Config{Log: slog.New(slog.DiscardHandler)},
		settings: watch(&wire.Settings{Identity: &wire.Identity{SpiffeId: webID, SpireSocket: "/nowhere", Generation: "1"}}),
		leaf:     watch[*leaf](nil), outlook: newOutlook("run", "1.40.0"),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan struct{})
	admin := envoyShowing(t, func() string { now, _ := page.load(); return now })
	go func() {
		defer close(ended)
		a.keepSeeing(ctx, admin)
	}()
	told := func(serial string) {
		t.Helper()
		_, err := a.outlook.report.await(ctx, func(r *wire.Report) bool { return r.Certificate.GetSerial() == serial })
		if err != nil {
			t.Fatalf("the certificate %q is not told: %v", serial, err)
		}
	}
	page.store(certs(time.Now(), webID+" 0a"))
	told("0a")
	if l, _ := a.leaf.load(); l == nil || l.serial != "0a" || len(l.chain) > 0 {
		t.Errorf("the leaf is %+v, want the serial 0a and no key", l)
	}
	a.settings.store(&wire.Settings{Identity: &wire.Identity{SpiffeId: webID, Generation: "2"}})
	told("")
	cancel()
	<-ended
}

// A listener shows its certificate before it asks for the caller's, and refuses those who have none.
func TestAListenerWithACertificateOfSPIREServes(t *testing.T) {
	listener := listenAs(t, func() *leaf { return newTestLeaf(t, 0x22) })
	seen, err := check(t.Context(), nil, []*wire.Listener{listener}, &leaf{serial: "22"}, nil)
	if got := seen[at(listener.Address, listener.Port)].leaf.serial; err != nil || got != "22" {
		t.Errorf("saw serial %q (%v), want 22", got, err)
	}
}

// A leaf that Envoy has from SPIRE has no key here: Envoy is never sent an empty one in place of what it has.
func TestALeafOfSPIREIsNotServed(t *testing.T) {
	held := newLeaves()
	server := grpc.NewServer()
	secret.RegisterSecretDiscoveryServiceServer(server, &secrets{leaves: held})
	stream, err := secret.NewSecretDiscoveryServiceClient(serveUnix(t, server)).StreamSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held.of(leafSecret).store(&leaf{serial: "01"})
	if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{leafSecret}}); err != nil {
		t.Fatal(err)
	}
	// A request for another one is read after the first, and answered alone.
	held.of("other").store(&leaf{serial: "02", chain: []byte("chain"), key: []byte("key")})
	if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil || response.VersionInfo != "02" {
		t.Errorf("the first answer is %v (%v), want the leaf that the agent has", response, err)
	}
}
