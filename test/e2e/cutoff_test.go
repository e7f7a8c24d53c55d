package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/testwait"
)

// certificateAt returns the certificate that an inbound at an address of the zone presents.
func (w *world) certificateAt(address string) (*x509.Certificate, error) {
	conn, err := w.machine.dial(w.t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var certificate *x509.Certificate
	see := func(s tls.ConnectionState) error { certificate = s.PeerCertificates[0]; return nil }
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, VerifyConnection: see})
	return certificate, client.HandshakeContext(testwait.Context(w.t))
}

// TestDrillZonesAreCutOffForLong: two zones are cut off from global for longer than any of their certificates is valid.
// Requests and new connections between them do not fail, a restarted control plane renews the certificates, and a new
// proxy serves. Afterwards each side has what the other one has written meanwhile.
func TestDrillZonesAreCutOffForLong(t *testing.T) {
	if !*showDrills {
		t.Skip("a long drill: make drills")
	}
	f := newFederation(t)
	east, west := f.eastAndWestBy(strings.Replace(crossZoneRules, "provider: {type: Bundled}",
		"provider: {type: Bundled, bundled: {certificateParameters: {expiry: "+renewedLife.String()+"}}}", 1))
	inbound := east.address(3) + ":20080"
	former, err := east.certificateAt(inbound)
	if err != nil {
		t.Fatal(err)
	}
	if valid := former.NotAfter.Sub(time.Now()); valid > renewedLife {
		t.Fatalf("the certificate is valid for another %s, want %s at most", valid, renewedLife)
	}
	// Each TCP connection is a handshake of both proxies.
	echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
	d := west.drill("zones are cut off from global while their certificates expire",
		inTurn(west.get(west.outbound(3, "http")), echo))
	d.more(20)
	f.cut("global")
	f.global.apply(denying("spiffe://default.west.mesh.local/workload/late"))
	for _, zone := range []*world{east, west} {
		zone.plane.Kill()
		zone.startPlane()
	}
	west.proxy("default", "late", webClient("late", 5, "east", 80))
	west.passes(west.outbound(5, "http"), "web-1")
	d.sendFor(renewedLife, "all certificates from before the cut expire")
	renewed, err := east.certificateAt(inbound)
	if err != nil {
		t.Fatal(err)
	}
	if !renewed.NotAfter.After(former.NotAfter) {
		t.Errorf("the certificate is valid until %s, and was until %s", renewed.NotAfter, former.NotAfter)
	}
	west.passes(west.outbound(5, "http"), "web-1")
	d.more(20)
	f.global.eventually("global shows the zone as not connected while it is cut off", func() error {
		if err := f.global.zoneOnline("west"); err == nil {
			return errors.New("it is shown as connected")
		}
		return nil
	})
	f.mend("global")
	west.eventually("the permission that global got meanwhile has come", func() error {
		return west.denied(west.outbound(5, "http"))
	})
	f.global.eventually("the Dataplane that the zone got meanwhile has come", func() error {
		return f.global.has("dataplanes", "late")
	})
	d.more(20)
	d.end()
}
