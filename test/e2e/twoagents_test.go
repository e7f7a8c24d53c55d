package e2e

import (
	"testing"
)

// Two agents of one Dataplane take over the session from each other repeatedly, so no control plane confirms a drain.
// Each of them drains nevertheless, before its supervisor ends it.
func TestAnAgentDrainsWhoseSessionsBreak(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	dataplane := server("web-1", "web", "http", 2, 20080)
	first := w.proxy("default", "web-1", dataplane)
	w.begin(w.machine, "default", "web-1-again", dataplane)
	w.eventually("an agent takes the session of the other", func() error {
		return wrote(first, "another agent of this Dataplane has connected")
	})
	w.stops(first)
	if code := first.State().ExitCode(); code != 0 {
		t.Errorf("weft-dp drained and ended with %d, want 0", code)
	}
}
