package agent

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"weft/internal/bubble"
	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/internal/wire"
)

func TestTheReportIsWhatWasSeenAndHeard(t *testing.T) {
	o := newStatusReporter("run", "1.40.0")
	o.setProbeResults(map[string]probeResult{"10.0.0.1:80": {address: "10.0.0.1", port: 80, generation: "g",
		cert: seenCert{"5e", "spiffe://default/a spiffe://default/b"}}})
	report, _ := o.report.load()
	if len(report.ReadyListeners) != 1 || report.ReadyListeners[0].Healthy {
		t.Fatalf("an application of which nothing is known is reported as %v", report.ReadyListeners)
	}
	o.setHealth("10.0.0.1:80", true)
	report, changed := o.report.load()
	if !report.ReadyListeners[0].Healthy || report.ReadyListeners[0].Serial != "5e" ||
		len(report.ReadyListeners[0].SpiffeIds) != 2 || report.Run != "run" || report.EnvoyVersion != "1.40.0" {
		t.Errorf("reported %v", report)
	}
	o.setHealth("10.0.0.1:80", true)
	select {
	case <-changed:
		t.Error("hearing the same again made a new report")
	default:
	}
	o.finish()
	if report, _ := o.report.load(); len(report.ReadyListeners) != 0 {
		t.Errorf("the last report serves %v", report.ReadyListeners)
	}
}

func TestProbeThresholds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var heard []string
		results := []bool{false, true, false, false, true, false, false, false, true, true}
		ctx, cancel := context.WithCancel(t.Context())
		p := probe{listener: "l", interval: time.Second, unhealthy: 3, healthy: 2}
		try := func(context.Context) bool {
			response := results[0]
			if results = results[1:]; len(results) == 0 {
				cancel()
			}
			return response
		}
		p.run(ctx, true, try, func(_ string, alive bool) {
			heard = append(heard, map[bool]string{true: "alive", false: "dead"}[alive])
		})
		if got := strings.Join(heard, " "); got != "dead alive" {
			t.Errorf("heard %q, want one death after three failures in a row and one return after two successes", got)
		}
	})
}

func TestAProbeConnects(t *testing.T) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", testnet.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	p := probe{application: listener.Addr().String(), timeout: testwait.Timeout}
	if !p.connect(t.Context()) {
		t.Error("an application that listens counts as dead")
	}
	listener.Close()
	if p.connect(t.Context()) {
		t.Error("a closed port counts as alive")
	}
}

func TestAProbeComesFromWhereRedirectRulesLetItPass(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := uint32(listener.Addr().(*net.TCPAddr).Port)
	p := newProbe(&wire.Listener{
		ServiceAddress: "127.0.0.1", ServicePort: port, ServiceSource: "127.0.0.6",
		Probe: &wire.Probe{TimeoutMs: uint32(testwait.Timeout.Milliseconds())},
	})
	if !p.connect(t.Context()) {
		t.Fatal("an application that listens counts as dead")
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if from := conn.RemoteAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.6" {
		t.Errorf("the probe came from %s, want 127.0.0.6", from)
	}
}

func TestRenewalIsInGoodTimeAndSpread(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 6 * time.Hour}, {0.5, 7 * time.Hour}, {1, 8 * time.Hour}} {
		if got := renewAt(begin, begin.Add(10*time.Hour), c.jitter).Sub(begin); got.Round(time.Second) != c.want {
			t.Errorf("with jitter %v renewed after %s of ten hours, want %s", c.jitter, got, c.want)
		}
	}
}

func TestAnAgentWhoseClockIsAheadPausesBetweenRequests(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	if got := renewAt(now, now.Add(-time.Hour), 0).Sub(now); got < time.Second {
		t.Errorf("a certificate that seems expired is requested again after %s", got)
	}
}

func TestTheNextCertificateIsRequestedInTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		due := now.Add(time.Hour)
		store := &workloadCert{generation: "a", renew: due}
		requested := func(l *workloadCert, identity *wire.Identity) time.Duration {
			var renewalTurn renewalTurn
			return renewalTurn.next(l, identity).Sub(now)
		}
		if got := requested(nil, &wire.Identity{Generation: "a", SpreadMs: 60_000}); got != 0 {
			t.Errorf("without a certificate it is requested in %s, want at once", got)
		}
		if got := requested(store, &wire.Identity{Generation: "a"}); got != time.Hour {
			t.Errorf("a valid certificate is requested again in %s, want when it is due", got)
		}
		if got := requested(store, &wire.Identity{Generation: "b"}); got != 0 {
			t.Errorf("another generation is asked for in %s, want at once", got)
		}
		if got := requested(store, &wire.Identity{Generation: "b", SpreadMs: 10_000}); got > 10*time.Second {
			t.Errorf("another generation is asked for in %s, want within 10 s", got)
		}
		if got := requested(&workloadCert{generation: "a", renew: now},
			&wire.Identity{Generation: "b", SpreadMs: 3_600_000}); got != 0 {
			t.Errorf("a certificate that is due waits %s for the proxy's turn", got)
		}
		var kept renewalTurn
		many := &wire.Identity{Generation: "b", SpreadMs: 3_000_000}
		if first, second := kept.next(store, many), kept.next(store, many); first != second {
			t.Errorf("its turn moved from %s to %s", first, second)
		}
	})
}

func TestEnvoyVersions(t *testing.T) {
	for out, want := range map[string]string{
		"\nenvoy  version: 0123abc/1.40.0/Clean/RELEASE/BoringSSL\n": "",
		"envoy  version: 0123abc/1.41.2/Clean/RELEASE/BoringSSL":     "",
		"envoy  version: 0123abc/2.0.0/Clean/RELEASE/BoringSSL":      "",
		"envoy  version: 0123abc/1.39.9/Clean/RELEASE/BoringSSL":     "is Envoy 1.39.9, and 1.40 is the oldest",
		"GNU bash, version 5.2":                                      "does not say which version",
	} {
		_, err := checkVersion("/bin/envoy", []byte(out))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", out, err, want)
		}
	}
}

func TestEnvoysLogArrivesLineByLine(t *testing.T) {
	var writes []string
	l := &lineWriter{to: writer(func(p []byte) { writes = append(writes, string(p)) })}
	for _, part := range []string{"a", "b\nc", "d\ne\n", "f"} {
		l.Write([]byte(part))
	}
	l.flush()
	if got := strings.Join(writes, "|"); got != "ab\n|cd\ne\n|f\n" {
		t.Errorf("written as %q", got)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(bytes.Clone(p)); return len(p), nil }

func TestWhatAKilledAgentLeftIsSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	alive, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does when a process exits
	next, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[*runtimeDir]bool{dead: false, alive: true, next: true} {
		if _, err := os.Stat(r.dir); (err == nil) != want {
			t.Errorf("%s: there is %v, want %v", r.dir, err == nil, want)
		}
	}
	next.remove()
	if _, err := os.Stat(next.dir); err == nil {
		t.Error("an agent that ends leaves its room")
	}
}

func TestATooLongPathIsSaidBeforeAnythingStarts(t *testing.T) {
	long := t.TempDir() + "/" + strings.Repeat("x", 100)
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	if _, err := newRuntimeDir(); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter one") {
		t.Errorf("error is %v", err)
	}
}
