package reconcile

import (
	"context"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/kind"
)

// TestSettle: a comparison with what was just written includes what the control plane writes in turn.
func TestSettle(t *testing.T) {
	m := newMirrored(t)
	m.rn.running = true
	m.user(kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 8080}}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*settlePoll)
	defer cancel()
	if err := m.rc.Settle(ctx); err == nil {
		t.Error("the service has no virtual IP yet, and nothing is pending")
	}
	m.drain()
	began := time.Now()
	if err := m.rc.Settle(testwait.Context(t)); err != nil || time.Since(began) >= settleTime {
		t.Errorf("all is written, and after %s there are pending writes: %v", time.Since(began), err)
	}
}
