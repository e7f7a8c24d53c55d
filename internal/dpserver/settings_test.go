package dpserver

import (
	"testing"

	"weft/internal/graph"
	"weft/kind"
)

func TestAnAgentHearsHowConnectionsReachItsListeners(t *testing.T) {
	proxy := func(capture *graph.Capture) *graph.Proxy {
		return &graph.Proxy{Capture: capture, Listeners: []graph.InboundListener{{
			Address: "10.0.0.1", Port: 80, ServiceAddress: "10.0.0.1", ServicePort: 80, Bind: capture == nil,
		}}}
	}
	listener := func(capture *graph.Capture) (port uint32, source, generation string) {
		l := settings(proxy(capture), &kind.Networking{}, false).Listeners[0]
		return l.CapturePort, l.ServiceSource, l.Generation
	}
	port, source, generation := listener(nil)
	if port != 0 || source != "" {
		t.Errorf("a bound listener: capture port %d, source %q, want neither", port, source)
	}
	seen := map[string]bool{generation: true}
	for _, want := range []uint32{15006, 25006} {
		port, source, generation = listener(&graph.Capture{InboundPort: want})
		if port != want || source == "" {
			t.Errorf("a captured listener: capture port %d, source %q, want %d and a source", port, source, want)
		}
		if seen[generation] {
			t.Errorf("capture port %d: the generation is as before, so nobody looks whether the listener serves there", want)
		}
		seen[generation] = true
	}
}
