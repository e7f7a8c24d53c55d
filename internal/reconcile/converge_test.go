package reconcile

import (
	"context"
	"testing"

	"weft/internal/testwait"
	"weft/kind"
)

// TestConverge: a comparison with what was just written includes what the control plane writes in turn.
func TestConverge(t *testing.T) {
	m := newMirrored(t)
	m.rn.running = true
	m.user(kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 8080}}}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !m.rn.unconverged() || m.rc.Converge(ctx) == nil {
		t.Error("the service has no virtual IP yet, and nothing is pending")
	}
	m.drain()
	if err := m.rc.Converge(testwait.Context(t)); err != nil || m.rn.unconverged() {
		t.Errorf("all is written, and there are pending writes: %v", err)
	}
}
