package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weft/internal/wire"
)

// newTestLeaf is a leaf whose serial number is the given byte.
func newTestLeaf(t *testing.T, serial byte) *leaf {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(serial)), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLeaf(key, &wire.SignResponse{
		Chain: [][]byte{der}, Serial: string("0123456789abcdef"[serial>>4]) + string("0123456789abcdef"[serial&15]),
		NotAfterUnix: time.Now().Add(time.Hour).Unix(),
	}, "g", 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listenAs serves TLS with whatever leaf current answers, and asks for the client's as Envoy does.
func listenAs(t *testing.T, current func() *leaf) *wire.Listener {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		ClientAuth:     tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &current().pair, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	address := listener.Addr().(*net.TCPAddr)
	return &wire.Listener{Address: "127.0.0.1", Port: uint32(address.Port), Generation: "1", Tls: true}
}

func TestAListenerServesOnceItPresentsTheExpectedLeaf(t *testing.T) {
	old, next := newTestLeaf(t, 0x11), newTestLeaf(t, 0x22)
	presented := watch(old)
	listener := listenAs(t, func() *leaf { l, _ := presented.load(); return l })
	key := at(listener.Address, listener.Port)
	look := func(want *leaf, before map[string]sighting) (map[string]sighting, error) {
		return check(t.Context(), nil, []*wire.Listener{listener}, want, before)
	}

	seen, err := look(old, nil)
	if err != nil || seen[key].leaf.serial != "11" {
		t.Fatalf("saw %+v (%v), want serial 11", seen[key], err)
	}
	seen, err = look(next, seen)
	if err == nil || !strings.Contains(err.Error(), "has serial 11, want 22") {
		t.Errorf("error is %v, want one that names both serials", err)
	}
	if seen[key].leaf.serial != "11" {
		t.Errorf("while the next leaf is on its way the listener counts as %+v, want as it was", seen[key])
	}
	presented.store(next)
	if seen, err = look(next, seen); err != nil || seen[key].leaf.serial != "22" {
		t.Errorf("saw %+v (%v) after the rotation, want serial 22", seen[key], err)
	}
	listener.Generation = "2"
	if seen, err = look(next, seen); err != nil || seen[key].generation != "2" {
		t.Errorf("saw %+v (%v), want generation 2", seen[key], err)
	}
}

func TestNothingServesBeforeItIsSeen(t *testing.T) {
	l := newTestLeaf(t, 0x11)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint32(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	for name, c := range map[string]struct {
		listener *wire.Listener
		leaf     *leaf
	}{
		"a closed port":         {&wire.Listener{Address: "127.0.0.1", Port: port}, nil},
		"a closed port for TLS": {&wire.Listener{Address: "127.0.0.1", Port: port, Tls: true}, l},
		"no certificate yet":    {listenAs(t, func() *leaf { return l }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := check(t.Context(), nil, []*wire.Listener{c.listener}, c.leaf, nil)
			if err == nil || len(seen) != 0 {
				t.Errorf("saw %v (%v), want nothing and the reason", seen, err)
			}
		})
	}
}

// A proxy of which no listener serves yet has reported all that serves. It is not ready.
func TestAProxyIsReadyOnceNoListenerWaits(t *testing.T) {
	a := &agent{Config: Config{Log: slog.New(slog.DiscardHandler)}, outlook: newOutlook("run", "1"),
		ready: watch(false), named: watch(true)}
	a.outlook.sent.store(&wire.Report{})
	if a.becomeReady(nil, errors.New("connection refused")) {
		t.Error("it is ready while a listener does not serve")
	}
	if !a.becomeReady(nil, nil) {
		t.Error("it is not ready though nothing is waited for")
	}
}

func TestAListenerThatIsGoneIsNotReported(t *testing.T) {
	seen, err := check(t.Context(), nil, nil, nil, map[string]sighting{"10.0.0.1:80": {port: 80}})
	if err != nil || len(seen) != 0 {
		t.Errorf("still reported: %v (%v)", seen, err)
	}
}

// envoyWith is an administration interface that lists listeners at these addresses, and no others.
func envoyWith(t *testing.T, addresses ...string) *admin {
	t.Helper()
	var statuses []string
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		statuses = append(statuses,
			fmt.Sprintf(`{"local_address": {"socket_address": {"address": %q, "port_value": %s}}}`, host, port))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"listener_statuses": [%s]}`, strings.Join(statuses, ", "))
	}))
	t.Cleanup(server.Close)
	to := server.Listener.Addr().String()
	return &admin{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	}}}}
}

// Where Envoy could not have the capture port, nothing that is redirected there arrives, though every
// listener behind it is as it should be.
func TestACapturedListenerServesOnceItAndTheCapturePortAreActive(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		active  []string
		want    string // in the error; empty: it serves
	}{
		"both":                          {"10.0.0.1", []string{"10.0.0.1:80", "0.0.0.0:15006"}, ""},
		"both of IPv6":                  {"fd00::1", []string{"[fd00::1]:80", "[::]:15006"}, ""},
		"no capture listener":           {"10.0.0.1", []string{"10.0.0.1:80"}, "0.0.0.0:15006"},
		"the other family's":            {"10.0.0.1", []string{"10.0.0.1:80", "[::]:15006"}, "0.0.0.0:15006"},
		"IPv6 with the other family's":  {"fd00::1", []string{"[fd00::1]:80", "0.0.0.0:15006"}, "[::]:15006"},
		"still warming behind the port": {"10.0.0.1", []string{"0.0.0.0:15006"}, "10.0.0.1:80"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := &wire.Listener{Address: c.address, Port: 80, CapturePort: 15006}
			seen, err := check(t.Context(), envoyWith(t, c.active...), []*wire.Listener{listener}, nil, nil)
			if c.want == "" && (err != nil || len(seen) != 1) {
				t.Errorf("saw %v (%v), want that it serves", seen, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(seen) != 0) {
				t.Errorf("saw %v (%v), want nothing and an error that names %s", seen, err, c.want)
			}
		})
	}
}
