package dpserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// TestAReportIsNotMultiplied: the SPIFFE IDs of a listener are stored with each inbound of that listener, so the stored
// row is bounded too, not only the Report.
func TestAReportIsNotMultiplied(t *testing.T) {
	const inbounds = 256
	var document strings.Builder
	document.WriteString("type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: 10.0.0.1\n  inbound:\n")
	for i := range inbounds {
		fmt.Fprintf(&document, "  - {name: i%d, port: 8080, tags: {kuma.io/service: web}}\n", i)
	}
	p := newPlane(t)
	if err := p.registerAs(p.dataplaneToken("web-1"), document.String()); err != nil {
		t.Fatal(err)
	}
	_, settings := p.session("run-1")
	generation := settings.Listeners[0].Generation
	serving := func(ids, bytes int) *wire.ReadyListener {
		s := &wire.ReadyListener{Address: "10.0.0.1", Port: 8080, Generation: generation, Healthy: true}
		for range ids {
			s.SpiffeIds = append(s.SpiffeIds, strings.Repeat("x", bytes))
		}
		return s
	}
	for _, c := range []struct {
		name    string
		serving []*wire.ReadyListener
		says    string
	}{
		{"many long SPIFFE IDs", []*wire.ReadyListener{serving(80, 2048)},
			"the SPIFFE IDs of 256 inbounds have 41943040 bytes, at most 1048576 are stored"},
		{"one listener many times", []*wire.ReadyListener{serving(1, 20), serving(1, 20)},
			"the Report has the listener 10.0.0.1:8080 twice"},
	} {
		stream, _ := p.session("run-1")
		p.send(stream, &wire.Report{Run: "run-1", ReadyListeners: c.serving})
		_, err := stream.Recv()
		if err == nil {
			t.Fatalf("%s: the Report is accepted", c.name)
		}
		wantStatus(t, err, codes.InvalidArgument, c.says)
	}
	p.session("run-1", serving(32, 100))
	stored(p, kind.DataplaneListenerStatuses, func(s kind.DataplaneListenerStatus) bool {
		return len(s.Inbounds) == inbounds && len(s.Inbounds[0].SpiffeIDs) == 32
	})
}

// TestCertificatesAreSignedAtARate: a request above the rate gets the time of the next attempt.
func TestCertificatesAreSignedAtARate(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.server.FreezeBuckets() // else a slow machine never gets above the rate
	p.register()
	var err error
	for range 1000 {
		if _, err = p.sign(p.web1Token(), "web-1"); err != nil {
			break
		}
	}
	wantStatus(t, err, codes.ResourceExhausted, "too many certificate requests")
	if details := status.Convert(err).Details(); len(details) != 1 {
		t.Errorf("the error has the details %v, want RetryInfo", details)
	}
}

// TestReportsArePaced: the last Report is stored, the ones before it are not, and the session continues.
func TestReportsArePaced(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, settings := p.session("run-1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, cursor, err := p.rows.List(ctx, kind.DataplaneListenerStatuses.Name)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := p.rows.Watch(ctx, []string{kind.DataplaneListenerStatuses.Name}, cursor)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const reports = 200
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for i := range reports + 1 {
		<-pace.C // so that each could be stored
		p.send(stream, &wire.Report{Run: "run-1", Draining: i == reports, ReadyListeners: []*wire.ReadyListener{
			{Address: "10.0.0.1", Port: 8080, Generation: settings.Listeners[0].Generation, Healthy: i%2 == 0},
		}})
	}
	writes := 0
	for events := range watch {
		writes += len(events)
		o, err := admission.Decode(events[len(events)-1].Row)
		if err != nil {
			t.Fatal(err)
		}
		if o.(*resource.Object[kind.DataplaneListenerStatus]).Spec.Draining {
			break
		}
	}
	if most := 3 + int(time.Since(began)/(100*time.Millisecond)); writes > most {
		t.Errorf("%d reports in %s made %d writes, want %d at most", reports, time.Since(began), writes, most)
	}
	p.settings(stream, func(s *wire.Settings) bool { return s.Drained })
}
