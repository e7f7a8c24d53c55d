package dpserver_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// renew requests a certificate of web-1.
func (p *plane) renew() error {
	p.t.Helper()
	_, err := p.agent.Sign(p.web1Token(), &wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(p.t)})
	return err
}

// TestAProxyRestartsWhileTheStoreTakesNoWrites: it registers, has a session with its settings, and what it serves is
// stored once the store takes writes again.
func TestAProxyRestartsWhileTheStoreTakesNoWrites(t *testing.T) {
	p := newPlane(t)
	p.register()
	first, settings := p.session("run-1")
	l := settings.Listeners[0]
	ready := &wire.ReadyListener{Address: l.Address, Port: l.Port, Generation: l.Generation, Healthy: true}
	p.send(first, &wire.Report{Run: "run-1", ReadyListeners: []*wire.ReadyListener{ready}})
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))

	p.rows.Fail(store.ErrReadOnly)
	p.register()
	// Another token vouches for it, which is recorded later.
	another := p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Name: "web-1", Workload: "web"})
	if _, err := p.agent.Register(another, &wire.RegisterRequest{Dataplane: []byte(web)}); err != nil {
		t.Errorf("with another token: %v", err)
	}
	_, settings = p.session("run-2")
	if len(settings.Listeners) != 1 {
		t.Errorf("settings are %v", settings)
	}
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	p.rows.Fail(nil)
	stored(p, kind.DataplaneListenerStatuses, func(s kind.DataplaneListenerStatus) bool { return s.Run == "run-2" })
}

// TestRenewalsWhileTheStoreTakesNoWrites: a certificate is renewed without its record where the store has one with the
// same SPIFFE IDs and root, and no other is signed.
func TestRenewalsWhileTheStoreTakesNoWrites(t *testing.T) {
	given := withIdentity(t)
	p := newPlane(t, given...)
	signing := func(change func(*kind.SigningCA)) {
		t.Helper()
		ca := given[0].(*resource.Object[kind.SigningCA])
		change(&ca.Spec)
		p.put(ca)
		p.eventually(func() bool {
			known, _ := p.server.Rows.SigningCA("default", "identity")
			return known.Spec.Life == ca.Spec.Life && bytes.Equal(known.Spec.Authority, ca.Spec.Authority)
		}, func() any { return "the CA is not known" })
	}
	p.register()
	p.session("run-1")
	p.rows.Fail(store.ErrReadOnly)
	p.renews.Store(true)
	wantStatus(t, p.renew(), codes.Unavailable, "read-only")

	p.rows.Fail(nil)
	if err := p.renew(); err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool { _, known := p.server.Rows.Certificates(web1); return known }, func() any {
		return "the certificate is not known"
	})
	signing(func(ca *kind.SigningCA) { ca.Life = kind.Duration(2 * time.Hour) }) // another expiry within this second
	p.rows.Fail(store.ErrReadOnly)
	p.renews.Store(false)
	wantStatus(t, p.renew(), codes.Unavailable, "read-only")
	p.renews.Store(true)
	if err := p.renew(); err != nil {
		t.Errorf("a renewal: %v", err)
	}

	// The CA is replaced just before the store takes no writes any more: its root is on no record of the proxy.
	p.rows.Fail(nil)
	signing(func(ca *kind.SigningCA) {
		ca.Authority = withIdentity(t)[0].(*resource.Object[kind.SigningCA]).Spec.Authority
	})
	p.rows.Fail(store.ErrReadOnly)
	wantStatus(t, p.renew(), codes.Unavailable, "read-only")
}
