package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

const (
	// dialTimeout bounds a dial to a listener of this machine.
	dialTimeout = time.Second
	// minProbePause and maxProbePause bound the pause between probes of listeners that do not serve yet.
	minProbePause = 20 * time.Millisecond
	maxProbePause = 250 * time.Millisecond
)

// keepProbingListeners probes the listeners and reports those that serve. An ACK is not sufficient: it only says that
// Envoy accepted the configuration. A listener is probed until it serves the expected certificate, and again when
// another generation or certificate is expected.
func (a *agent) keepProbingListeners(ctx context.Context, admin *admin) {
	seen := map[string]probeResult{}
	configured := false
	pause := minProbePause
	reason := "" // the logged reason for which the proxy is not ready
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		current, rotated := a.cert.load()
		var waiting error
		seen, waiting = probeListeners(ctx, admin, settings.Listeners, current, seen)
		a.statusReporter.setProbeResults(seen)
		configured = configured || admin.configured(ctx)
		a.recheckReadiness(settings.Listeners, seen)
		ready := configured && a.becomeReady(seen, waiting)
		if why := a.whyNotReady(seen); !ready && why != reason {
			reason = why
			a.Log.Info("not ready", "reason", why, "waiting", waiting)
		}
		var again <-chan time.Time
		if waiting != nil || !ready { // new listeners and certificates of a ready proxy are probed too
			again = time.After(pause)
			pause = min(2*pause, maxProbePause)
		}
		select {
		case <-changed:
			pause = minProbePause
		case <-rotated:
			pause = minProbePause
		case <-again:
			a.Log.Debug("not serving yet", "configured", configured, "waiting", waiting)
		case <-ctx.Done():
		}
	}
}

// probeListeners returns the listeners that serve, and an error about one that does not. A listener that served before
// stays in the result until its new generation serves, since the old one still does.
func probeListeners(ctx context.Context, admin *admin, listeners []*wire.Listener, l *workloadCert,
	before map[string]probeResult) (map[string]probeResult, error) {
	seen := map[string]probeResult{}
	var waiting error
	for _, listener := range listeners {
		key := kind.HostPort(listener.Address, listener.Port)
		want := probeResult{address: listener.Address, port: listener.Port, generation: listener.Generation}
		if listener.Tls && l != nil {
			want.cert = l.seen()
		}
		last, known := before[key]
		if known {
			seen[key] = last
		}
		if known && last == want {
			continue
		}
		if err := probeListener(ctx, admin, listener, l); err != nil {
			waiting = fmt.Errorf("%s: %w", key, err)
			continue
		}
		seen[key] = want
	}
	return seen, waiting
}

// probeListener finds a listener in Envoy's list, dials it, and expects the proxy's own certificate. A listener without
// a bound port is not dialed: it receives connections from the capture listener only, which must be active too.
func probeListener(ctx context.Context, admin *admin, listener *wire.Listener, l *workloadCert) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	key := kind.HostPort(listener.Address, listener.Port)
	if listener.CapturePort != 0 {
		return admin.wantActive(ctx, cmp.Or(listener.Name, key), captureAddress(listener))
	}
	if listener.Name != "" { // a former control plane sends none
		if err := admin.wantActive(ctx, listener.Name); err != nil {
			return err
		}
	}
	switch {
	case !listener.Tls:
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", key)
		if err != nil {
			return err
		}
		return conn.Close()
	case l == nil:
		return errors.New("there is no certificate yet")
	}
	return probeTLS(ctx, key, listener.ServerName, l)
}

// captureAddress returns the address of the listener that receives the redirected connections.
func captureAddress(listener *wire.Listener) string {
	wildcard := net.IPv4zero
	if strings.Contains(listener.Address, ":") {
		wildcard = net.IPv6zero
	}
	return kind.HostPort(wildcard.String(), listener.CapturePort)
}

// probeTLS compares serial numbers and verifies no chain: a server with this serial and its key is this proxy's Envoy.
// Envoy presents its certificate before it requests the client's, which the agent may lack.
func probeTLS(ctx context.Context, address, server string, l *workloadCert) error {
	serial := ""
	config := &tls.Config{
		ServerName:         server,
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			cert, err := x509.ParseCertificate(raw[0])
			if err == nil {
				serial = hex.EncodeToString(cert.SerialNumber.Bytes())
			}
			return err
		},
	}
	if l.hasKey() {
		config.Certificates = []tls.Certificate{l.pair}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	switch {
	case err == nil:
		conn.Close()
	case serial == "" || l.hasKey():
		return err
	}
	if serial != l.serial {
		return fmt.Errorf("the certificate served has serial %s, want %s", serial, l.serial)
	}
	return nil
}
