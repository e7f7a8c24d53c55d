package reconcile

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// zones confirm when the test tells them to.
type zones struct {
	requested chan []resource.Key
	confirm   chan struct{}
}

func (z *zones) AwaitConfirmed(ctx context.Context, rows ...resource.Key) error {
	z.requested <- rows
	select {
	case <-z.confirm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func passedOn(since time.Time) *resource.Object[kind.RetainedSNIRoute] {
	return kind.RetainedSNIRoutes.Make("default", "web-80", kind.RetainedSNIRoute{Kind: "MeshService", Service: "web",
		Port: 80, Since: kind.Time{Time: since}})
}

// retaining starts a reconciler with one retained SNI route.
func retaining(t *testing.T) (m *mirrored, z *zones) {
	m = follow(newWorld(t, "241.0.0.0/8"), true, slog.New(slog.DiscardHandler))
	m.now = time.Now()
	z = &zones{requested: make(chan []resource.Key, 1), confirm: make(chan struct{})}
	m.plan.DrainTime, m.barrier.DrainTime, m.barrier.Zones = 5*time.Second, 5*time.Second, z
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.rc.Run(ctx) }()
	go keepTime(ctx, m)
	t.Cleanup(func() { stop(); <-done })
	m.user(passedOn(m.now))
	return m, z
}

// retained returns whether the store has the retained SNI route.
func (m *mirrored) retained() bool {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows[kind.RetainedSNIRoutes.Key("default", "web-80")] != nil
}

// untilDeleted waits until the retained SNI route is deleted, and returns the time that it took.
func untilDeleted(m *mirrored) time.Duration {
	began := time.Now()
	for m.retained() {
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began)
}

// Zones confirm the changes of a global service to global, and not to this zone.
func TestSNIRoutesOfAGlobalServiceStayForATimeout(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row := kind.RetainedSNIRoutes.Make("default", "all-80.mzms", kind.RetainedSNIRoute{Kind: "MeshMultiZoneService",
		Service: "all", Port: 80, Since: kind.Time{Time: w.now}})
	w.put(row)
	requeue := w.reconcile("RetainedSNIRoute", row.Name)
	if want := w.now.Add(retainTimeout); !requeue.Equal(want) {
		t.Fatalf("it is looked at again at %s, want %s", requeue, want)
	}
	w.now = requeue
	w.reconcile("RetainedSNIRoute", row.Name)
	if _, ok := w.plan.State.Tables.RetainedSNIRoutes.Find(w.reader(), "default", row.Name); ok {
		t.Error("it stays")
	}
}

func TestAnSNIRouteStaysForTheDrainTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, z := retaining(t)
		if rows := <-z.requested; len(rows) != 1 || rows[0] != kind.MeshServices.Key("default", "web") {
			t.Errorf("other zones must confirm %v", rows)
		}
		if !m.retained() {
			t.Fatal("it ends before they have answered")
		}
		z.confirm <- struct{}{}
		if waited := untilDeleted(m); waited != 5*time.Second {
			t.Errorf("it ends %s after every zone has confirmed, want the drain time", waited)
		}
	})
}

func TestAZoneThatIsCutOffIsWaitedForForAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, z := retaining(t)
		go func() {
			for range z.requested { // again and again
			}
		}()
		if waited := untilDeleted(m); waited != retainTimeout+5*time.Second {
			t.Errorf("waited %v, want %v and the drain time", waited, retainTimeout)
		}
		close(z.requested)
	})
}

// A port that returned and was removed again needs new confirmations.
func TestASecondRemovalIsConfirmedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, z := retaining(t)
		<-z.requested
		m.user(passedOn(m.now.Add(time.Second)))
		<-z.requested
		time.Sleep(8 * time.Second)
		if !m.retained() {
			t.Error("it ends with the first answer")
		}
		z.confirm <- struct{}{}
		untilDeleted(m)
	})
}

// keepTime commits at each deadline until ctx ends, in a bubble.
func keepTime(ctx context.Context, m *mirrored) {
	for ctx.Err() == nil {
		next, changed := m.plan.State.Tables.DB.NextDeadline()
		var come <-chan time.Time
		if !next.IsZero() {
			come = time.After(time.Until(next))
		}
		select {
		case <-come:
			m.commit(func(*table.Tx) {})
		case <-changed:
		case <-ctx.Done():
		}
	}
}
