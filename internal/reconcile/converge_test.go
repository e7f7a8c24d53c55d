package reconcile

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/kind"
)

var webService = kind.MeshService{Ports: []kind.ServicePort{{Port: 8080}}}

// TestConverge: a comparison with what was just written includes what the control plane writes in turn, on the leader
// and on another replica. It waits no longer than that.
func TestConverge(t *testing.T) {
	for name, leads := range map[string]bool{"the leader": true, "another replica": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := follow(newWorld(t, "241.0.0.0/8"), true, slog.New(slog.DiscardHandler))
				if leads {
					go m.rc.Run(t.Context())
					synctest.Wait()
				}
				m.user(kind.MeshServices.Make("default", "web", webService))
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := m.rc.Converge(ctx); err == nil {
					t.Error("the service has no virtual IP yet, and nothing is pending")
				}
				var pending string
				var err error
				done, begin := make(chan struct{}), time.Now()
				go func() {
					defer close(done)
					pending, err = m.rc.Converge(t.Context())
				}()
				synctest.Wait()
				if !leads { // another replica writes
					go m.rc.runner.run(t.Context())
				}
				<-done
				if err != nil || pending != "" || time.Since(begin) > convergeTime {
					t.Errorf("all is written, and %q, %v after %s", pending, err, time.Since(begin))
				}
				if _, status := m.service("web"); len(status.VIPs) == 0 {
					t.Error("it returned before the service had a virtual IP")
				}
			})
		})
	}
}

// TestPendingWrites: a comparison states that the effect of earlier writes is missing where they are not executed, and
// another replica waits for no write that the leader has not executed for long.
func TestPendingWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := follow(newWorld(t, "241.0.0.0/8"), true, slog.New(slog.DiscardHandler))
		m.user(kind.MeshServices.Make("default", "web", webService))
		begin := time.Now()
		pending, err := m.rc.Converge(t.Context())
		const want = "this replica has not received from the leader all that follows from earlier changes: " +
			"1 writes are pending after 2s"
		if err != nil || pending != want || time.Since(begin) != convergeTime {
			t.Errorf("%q, %v after %s, want %q", pending, err, time.Since(begin), want)
		}
		if pending, err = m.rc.Converge(t.Context()); err != nil || pending != "" ||
			time.Since(begin) > followTime {
			t.Errorf("the leader does not write, and %q, %v after %s", pending, err, time.Since(begin))
		}
	})
}

// TestConvergeAfterACommit: jobs are those of the newest commit, also between the commit and its jobs.
func TestConvergeAfterACommit(t *testing.T) {
	m := newMirrored(t)
	m.rn.running = true
	m.drain()
	if n, _, _ := m.rn.unconverged(m.rn.heard.Revision); n > 0 {
		t.Fatalf("all is written, and %d writes are pending", n)
	}
	if n, _, _ := m.rn.unconverged(m.rn.heard.Revision + 1); n == 0 {
		t.Error("the jobs of a commit are not known yet, and nothing is pending")
	}
}
