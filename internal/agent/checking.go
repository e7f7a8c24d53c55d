package agent

import (
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
)

const (
	// dialBound is how long a dial to a listener of this machine may take.
	dialBound = time.Second
	// soonest and latest are the waits between looks at listeners that do not serve yet.
	soonest = 20 * time.Millisecond
	latest  = 250 * time.Millisecond
)

// keepChecking finds out which listeners serve, and reports it: an ACK says no more than that Envoy took
// the configuration. A listener is looked at until it serves what is expected of it, and again once
// another generation or another leaf is expected.
func (a *agent) keepChecking(ctx context.Context, admin *admin) {
	seen := map[string]sighting{}
	configured := false
	pause := soonest
	reason := "" // why the proxy is not ready, as the log says
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		current, rotated := a.leaf.load()
		var waiting error
		seen, waiting = check(ctx, admin, settings.Listeners, current, seen)
		a.outlook.see(seen)
		configured = configured || admin.configured(ctx)
		ready := configured && a.becomeReady(seen, waiting)
		if why := a.whyNotReady(); !ready && why != reason {
			reason = why
			a.Log.Info("not ready", "reason", why, "waiting", waiting)
		}
		var again <-chan time.Time
		if waiting != nil || !ready { // a proxy that is ready gets new listeners and certificates
			again = time.After(pause)
			pause = min(2*pause, latest)
		}
		select {
		case <-changed:
			pause = soonest
		case <-rotated:
			pause = soonest
		case <-again:
			a.Log.Debug("not serving yet", "configured", configured, "waiting", waiting)
		case <-ctx.Done():
		}
	}
}

// check answers the listeners that serve, and why one does not. One that served before stays until
// another generation of it is seen, since it goes on serving.
func check(ctx context.Context, admin *admin, listeners []*wire.Listener, l *leaf,
	before map[string]sighting) (map[string]sighting, error) {
	seen := map[string]sighting{}
	var waiting error
	for _, listener := range listeners {
		key := at(listener.Address, listener.Port)
		want := sighting{address: listener.Address, port: listener.Port, generation: listener.Generation}
		if listener.Tls && l != nil {
			want.leaf = l.seen()
		}
		last, known := before[key]
		if known {
			seen[key] = last
		}
		if known && last == want {
			continue
		}
		if err := look(ctx, admin, listener, l); err != nil {
			waiting = fmt.Errorf("%s: %w", key, err)
			continue
		}
		seen[key] = want
	}
	return seen, waiting
}

// look dials a listener and wants to be answered by the proxy's own leaf. Of a listener that binds
// nothing, Envoy itself is asked: connections reach it by redirection only, through the capture listener,
// without which it is of no use.
func look(ctx context.Context, admin *admin, listener *wire.Listener, l *leaf) error {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	key := at(listener.Address, listener.Port)
	switch {
	case listener.CapturePort != 0:
		return admin.wantActive(ctx, key, captureAddress(listener))
	case !listener.Tls:
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", key)
		if err != nil {
			return err
		}
		return conn.Close()
	case l == nil:
		return errors.New("there is no certificate yet")
	}
	return lookTLS(ctx, key, listener.ServerName, l)
}

// captureAddress is where what is redirected to a listener arrives.
func captureAddress(listener *wire.Listener) string {
	wildcard := net.IPv4zero
	if strings.Contains(listener.Address, ":") {
		wildcard = net.IPv6zero
	}
	return at(wildcard.String(), listener.CapturePort)
}

// lookTLS compares serials and nothing more, so that no chain is verified: who holds our own serial and
// its key is our own Envoy. That has shown it before it asks for the agent's, which there may be none of.
func lookTLS(ctx context.Context, address, server string, l *leaf) error {
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
	if l.toServe() {
		config.Certificates = []tls.Certificate{l.pair}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	switch {
	case err == nil:
		conn.Close()
	case serial == "" || l.toServe():
		return err
	}
	if serial != l.serial {
		return fmt.Errorf("the certificate served has serial %s, want %s", serial, l.serial)
	}
	return nil
}
