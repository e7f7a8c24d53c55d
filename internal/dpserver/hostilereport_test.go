package dpserver_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"weft/internal/wire"
	"weft/kind"
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
	if err := p.registerAs(p.as("web-1"), document.String()); err != nil {
		t.Fatal(err)
	}
	_, settings := p.session("run-1")
	generation := settings.Listeners[0].Generation
	serving := func(ids, bytes int) *wire.Serving {
		s := &wire.Serving{Address: "10.0.0.1", Port: 8080, Generation: generation, Healthy: true}
		for range ids {
			s.Names = append(s.Names, strings.Repeat("x", bytes))
		}
		return s
	}
	for _, c := range []struct {
		name    string
		serving []*wire.Serving
		says    string
	}{
		{"many long SPIFFE IDs", []*wire.Serving{serving(80, 2048)}, "the SPIFFE IDs of 256 inbounds have 41943040 bytes, at most 1048576 are stored"},
		{"one listener many times", []*wire.Serving{serving(1, 20), serving(1, 20)}, "the Report has the listener 10.0.0.1:8080 twice"},
	} {
		stream, _ := p.session("run-1")
		p.send(stream, &wire.Report{Run: "run-1", Serving: c.serving})
		_, err := stream.Recv()
		if err == nil {
			t.Fatalf("%s: the Report is accepted", c.name)
		}
		wantStatus(t, err, codes.InvalidArgument, c.says)
	}
	p.session("run-1", serving(32, 100))
	stored(p, kind.DataplaneServings, func(s kind.DataplaneServing) bool {
		return len(s.Inbounds) == inbounds && len(s.Inbounds[0].Names) == 32
	})
}
