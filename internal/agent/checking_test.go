package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
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
	return &wire.Listener{Address: "127.0.0.1", Port: uint32(address.Port), Generation: "1", Tls: true, Bound: true}
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
	if err != nil || seen[key].serial != "11" {
		t.Fatalf("saw %+v (%v), want serial 11", seen[key], err)
	}
	seen, err = look(next, seen)
	if err == nil || !strings.Contains(err.Error(), "has serial 11, want 22") {
		t.Errorf("error is %v, want one that names both serials", err)
	}
	if seen[key].serial != "11" {
		t.Errorf("while the next leaf is on its way the listener counts as %+v, want as it was", seen[key])
	}
	presented.store(next)
	if seen, err = look(next, seen); err != nil || seen[key].serial != "22" {
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
		"a closed port":         {&wire.Listener{Address: "127.0.0.1", Port: port, Bound: true}, nil},
		"a closed port for TLS": {&wire.Listener{Address: "127.0.0.1", Port: port, Bound: true, Tls: true}, l},
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

func TestAListenerThatIsGoneIsNotReported(t *testing.T) {
	seen, err := check(t.Context(), nil, nil, nil, map[string]sighting{"10.0.0.1:80": {port: 80}})
	if err != nil || len(seen) != 0 {
		t.Errorf("still reported: %v (%v)", seen, err)
	}
}
