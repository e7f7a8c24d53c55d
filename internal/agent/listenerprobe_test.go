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
	"os"
	"strings"
	"testing"
	"time"

	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/kind"
)

// newTestCert returns a certificate whose serial number is the given byte.
func newTestCert(t *testing.T, serial byte) *workloadCert {
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
	l, err := newWorkloadCert(key, &wire.SignResponse{
		Chain: [][]byte{der}, Serial: string("0123456789abcdef"[serial>>4]) + string("0123456789abcdef"[serial&15]),
		NotAfterUnix: time.Now().Add(time.Hour).Unix(),
	}, "g", 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listenAs serves TLS with the certificate that current returns, and requests the client's as Envoy does.
func listenAs(t *testing.T, current func() *workloadCert) *wire.Listener {
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

func TestAListenerServesOnceItPresentsTheExpectedCertificate(t *testing.T) {
	old, next := newTestCert(t, 0x11), newTestCert(t, 0x22)
	presented := watch(old)
	listener := listenAs(t, func() *workloadCert { l, _ := presented.load(); return l })
	key := kind.HostPort(listener.Address, listener.Port)
	var seen map[string]probeResult
	probe := func(cert *workloadCert, serial, generation, problem string) {
		t.Helper()
		err := probeUntilReached(t, nil, listener, cert, &seen)
		got, failed := seen[key], problem != ""
		if got.cert.serial != serial || got.generation != generation || (err != nil) != failed ||
			failed && !strings.Contains(err.Error(), problem) {
			t.Errorf("saw %+v (%v), want serial %s of generation %s, and an error with %q", got, err, serial,
				generation, problem)
		}
	}

	probe(old, "11", "1", "")
	probe(next, "11", "1", "has serial 11, want 22")
	presented.store(next)
	probe(next, "22", "1", "")
	listener.Generation = "2"
	probe(next, "22", "2", "")
}

// probeUntilReached updates what is seen of a listener, and returns the error. A probe that ended at its timeout, as on
// a busy machine, is repeated.
func probeUntilReached(t *testing.T, envoy *admin, listener *wire.Listener, cert *workloadCert,
	seen *map[string]probeResult) (err error) {
	t.Helper()
	testwait.Until(t, "a probe reaches the listener", func() error {
		*seen, err = probeListeners(t.Context(), envoy, []*wire.Listener{listener}, cert, *seen)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return nil
	})
	return err
}

func TestNothingServesBeforeItIsSeen(t *testing.T) {
	l := newTestCert(t, 0x11)
	port := uint32(testnet.Port(t)) // closed
	for name, c := range map[string]struct {
		listener *wire.Listener
		cert     *workloadCert
	}{
		"a closed port":         {&wire.Listener{Address: "127.0.0.1", Port: port}, nil},
		"a closed port for TLS": {&wire.Listener{Address: "127.0.0.1", Port: port, Tls: true}, l},
		"no certificate yet":    {listenAs(t, func() *workloadCert { return l }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := probeListeners(t.Context(), nil, []*wire.Listener{c.listener}, c.cert, nil)
			if err == nil || len(seen) != 0 {
				t.Errorf("saw %v (%v), want nothing and the reason", seen, err)
			}
		})
	}
}

// A proxy without a serving listener has reported all serving listeners. It is not ready.
func TestAProxyIsReadyOnceNoListenerWaits(t *testing.T) {
	a := &agent{Config: Config{Log: slog.New(slog.DiscardHandler)}, statusReporter: newStatusReporter("run", "1"),
		ready: watch(false), namesReceived: watch(true), settings: watch[*wire.Settings](nil)}
	a.statusReporter.sent.store(&wire.Report{})
	if a.becomeReady(nil, errors.New("connection refused")) {
		t.Error("it is ready while a listener does not serve")
	}
	if !a.becomeReady(nil, nil) {
		t.Error("it is not ready though nothing is waited for")
	}
}

// Another listener of Envoy, or another program, has the address of one that Envoy rejects.
func TestAListenerServesOnceEnvoyHasItByName(t *testing.T) {
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	at := stranger.Addr().(*net.TCPAddr)
	for what, listener := range map[string]*wire.Listener{
		"captured": {Address: "127.0.0.1", Port: uint32(at.Port), CapturePort: 15006, Name: "inbound"},
		"bound":    {Address: "127.0.0.1", Port: uint32(at.Port), Name: "inbound"},
	} {
		t.Run(what, func(t *testing.T) {
			for name, serves := range map[string]bool{"outbound": false, "inbound": true} {
				envoy := envoyWith(t, name+"="+at.String(), "0.0.0.0:15006")
				var seen map[string]probeResult
				err := probeUntilReached(t, envoy, listener, nil, &seen)
				if (len(seen) == 1) != serves || (err == nil) != serves {
					t.Errorf("Envoy has %s there: saw %v (%v), want that it serves: %v", name, seen, err, serves)
				}
			}
		})
	}
}

// A new listener that Envoy rejects makes a ready proxy not ready, until it serves. One that serves with an earlier
// version does not.
func TestARejectedListenerIsNotReady(t *testing.T) {
	a := &agent{Config: Config{Log: slog.New(slog.DiscardHandler)}, statusReporter: newStatusReporter("run", "1"),
		ready: watch(true), namesReceived: watch(true),
		settings: watch(&wire.Settings{Listeners: []*wire.Listener{
			{Address: "10.0.0.1", Port: 80}, {Address: "10.0.0.1", Port: 81, Rejection: "duplicate address"},
		}})}
	settings, _ := a.settings.load()
	both := map[string]probeResult{"10.0.0.1:80": {}, "10.0.0.1:81": {}}
	if a.recheckReadiness(settings.Listeners, both); !a.becomeReady(both, nil) {
		t.Error("it is not ready, though its listener serves with an earlier version")
	}
	one := map[string]probeResult{"10.0.0.1:80": {}}
	if a.recheckReadiness(settings.Listeners, one); a.becomeReady(one, errors.New("no listener")) {
		t.Error("it is ready while Envoy has no version of a listener")
	}
	if why := a.whyNotReady(one); !strings.Contains(why, "10.0.0.1:81") || !strings.Contains(why, "duplicate address") {
		t.Errorf("the reason is %q", why)
	}
	a.statusReporter.sent.store(&wire.Report{ReadyListeners: make([]*wire.ReadyListener, len(both))})
	if !a.becomeReady(both, nil) {
		t.Error("it is not ready again, though both serve")
	}
}

// A proxy that starts is not ready while Envoy rejects a listener or a route, of which it has no earlier version. A
// proxy that was ready stays ready.
func TestAStartingProxyWithARejectedRouteIsNotReady(t *testing.T) {
	a := &agent{Config: Config{Log: slog.New(slog.DiscardHandler)}, statusReporter: newStatusReporter("run", "1"),
		ready: watch(false), namesReceived: watch(true),
		settings: watch(&wire.Settings{Rejection: "route kri_x: invalid escape sequence"})}
	a.statusReporter.sent.store(&wire.Report{})
	if a.becomeReady(nil, nil) {
		t.Error("it is ready while Envoy rejects a route")
	}
	if why := a.whyNotReady(nil); !strings.Contains(why, "route kri_x: invalid escape sequence") {
		t.Errorf("the reason is %q", why)
	}
	a.settings.store(&wire.Settings{})
	if !a.becomeReady(nil, nil) {
		t.Error("it is not ready, though Envoy rejects nothing any more")
	}
	a.settings.store(&wire.Settings{Rejection: "route kri_x: invalid escape sequence"})
	if a.recheckReadiness(nil, nil); !a.becomeReady(nil, nil) {
		t.Error("a proxy that was ready is not ready any more, since it rejects a route")
	}
	a.ready.store(false) // a new inbound is rejected
	if !a.becomeReady(nil, nil) {
		t.Error("a proxy that was ready waits for a route of which it has an earlier version")
	}
}

func TestAListenerThatIsGoneIsNotReported(t *testing.T) {
	seen, err := probeListeners(t.Context(), nil, nil, nil, map[string]probeResult{"10.0.0.1:80": {port: 80}})
	if err != nil || len(seen) != 0 {
		t.Errorf("still reported: %v (%v)", seen, err)
	}
}

// envoyWith returns an administration interface with listeners at these addresses only, each "NAME=ADDRESS" or the
// address alone.
func envoyWith(t *testing.T, addresses ...string) *admin {
	t.Helper()
	var statuses []string
	for _, address := range addresses {
		name, address, named := strings.Cut(address, "=")
		if !named {
			name, address = "", name
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		statuses = append(statuses,
			fmt.Sprintf(`{"name": %q, "local_address": {"socket_address": {"address": %q, "port_value": %s}}}`,
				name, host, port))
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

// If Envoy could not bind the capture port, redirected connections fail, although each listener is as expected.
func TestACapturedListenerServesOnceItAndTheCapturePortAreActive(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		active  []string
		want    string // of the error; empty: it serves
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
			var seen map[string]probeResult
			err := probeUntilReached(t, envoyWith(t, c.active...), listener, nil, &seen)
			if c.want == "" && (err != nil || len(seen) != 1) {
				t.Errorf("saw %v (%v), want that it serves", seen, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(seen) != 0) {
				t.Errorf("saw %v (%v), want nothing and an error that names %s", seen, err, c.want)
			}
		})
	}
}
