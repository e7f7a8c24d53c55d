package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/wire"
)

// commanded returns an agent that serves its control socket.
func commanded(t *testing.T) *agent {
	t.Helper()
	a := &agent{
		Config:         Config{ControlSocket: filepath.Join(t.TempDir(), "s"), Log: slog.New(slog.DiscardHandler)},
		settings:       watch(&wire.Settings{}),
		statusReporter: newStatusReporter("run", "1.40.0"),
		ready:          watch(false), session: watch(time.Now()), namesReceived: watch(true),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	if err := a.serveCommands(ctx, &parts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = parts.Wait()
	})
	return a
}

// TestDrainCommand: the command returns once the control plane has confirmed that no client sends requests. The proxy
// is not ready from the beginning, and does not become ready any more.
func TestDrainCommand(t *testing.T) {
	a := commanded(t)
	a.ready.store(true)
	said := make(chan string)
	go func() {
		text, err := Drain(t.Context(), a.ControlSocket)
		if err != nil {
			text = err.Error()
		}
		said <- text
	}()
	draining := func(r *wire.Report) bool { return r.Draining }
	if _, err := a.statusReporter.report.await(t.Context(), draining); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ready.await(t.Context(), func(ready bool) bool { return !ready }); err != nil {
		t.Fatal(err)
	}
	a.statusReporter.sent.store(&wire.Report{}) // a report of before
	a.becomeReady(nil, nil)
	if ready, _ := a.ready.load(); ready {
		t.Error("a draining proxy became ready")
	}
	select {
	case text := <-said:
		t.Fatalf("the command returned %q before the confirmation", text)
	default:
	}
	a.settings.store(&wire.Settings{Drained: true})
	if text := <-said; !strings.HasPrefix(text, "drained: ") {
		t.Errorf("the command says %q", text)
	}
}

// TestWaitCommand: the command waits for an agent that has not started, and then until the agent is ready.
func TestWaitCommand(t *testing.T) {
	a := commanded(t)
	waited := make(chan error)
	go func() { waited <- WaitReady(t.Context(), a.ControlSocket) }()
	select {
	case err := <-waited:
		t.Fatalf("the command returned %v before the proxy was ready", err)
	default:
	}
	a.ready.store(true)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { waited <- WaitReady(ctx, filepath.Join(t.TempDir(), "absent")) }()
	cancel()
	if err := <-waited; err == nil {
		t.Error("the command did not wait for an agent")
	}
}

// TestControlSocket: a socket in use is not replaced. Without an agent there is nothing to drain.
func TestControlSocket(t *testing.T) {
	a := commanded(t)
	_, err := listenSocket(a.ControlSocket)
	if err == nil || !strings.Contains(err.Error(), "in use by another agent") {
		t.Errorf("a second agent gets %v", err)
	}
	if text, err := Drain(t.Context(), filepath.Join(t.TempDir(), "absent")); err != nil ||
		!strings.Contains(text, "nothing to drain") {
		t.Errorf("without an agent: %q, %v", text, err)
	}
}
