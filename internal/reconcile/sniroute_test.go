package reconcile

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// zones confirm when the test tells them to.
type zones struct {
	requested chan []resource.Key
	confirm   chan struct{}
}

func (z *zones) Confirmed(ctx context.Context, rows ...resource.Key) error {
	z.requested <- rows
	select {
	case <-z.confirm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deletions receives the deleted rows and drops other writes.
type deletions chan resource.Key

func (d deletions) Put(context.Context, resource.Any) (string, error)    { return "", nil }
func (d deletions) Create(context.Context, resource.Any) (string, error) { return "", nil }

func (d deletions) Version(context.Context, resource.Key) (string, error) { return "", nil }
func (d deletions) Delete(_ context.Context, key resource.Key, _ string) error {
	d <- key
	return nil
}

func passedOn(since time.Time) *resource.Object[kind.RetainedSNIRoute] {
	return kind.RetainedSNIRoutes.Make("default", "web-80", kind.RetainedSNIRoute{Kind: "MeshService", Service: "web",
		Port: 80, Since: kind.Time{Time: since}})
}

// passing starts a reconciler with one retained SNI route.
func passing(t *testing.T) (w *world, z *zones, deleted deletions, observe func(resource.Any)) {
	w = newWorld(t, "241.0.0.0/8")
	w.plan.DrainTime = 5 * time.Second
	z, deleted = &zones{requested: make(chan []resource.Key, 1), confirm: make(chan struct{})}, make(deletions, 1)
	rc := New(w.plan, deleted, nil, w.commit, slog.New(slog.DiscardHandler))
	rc.Zones = z
	observe = func(o resource.Any) {
		changes := w.plan.State.DB.Commit(func(tx *table.Tx) { w.plan.State.Put(tx, o) })
		rc.Observe([]resource.Any{o}, nil, []*table.Changes{changes}, time.Now())
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); rc.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	observe(passedOn(w.now))
	return w, z, deleted, observe
}

// Zones confirm the changes of a global service to global, and not to this zone.
func TestSNIRoutesOfAGlobalServiceStayForATimeout(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row := kind.RetainedSNIRoutes.Make("default", "all-80.mzms", kind.RetainedSNIRoute{Kind: "MeshMultiZoneService",
		Service: "all", Port: 80, Since: kind.Time{Time: w.now}})
	w.put(row)
	requeue := w.reconcile("RetainedSNIRoute", row.Name)
	if want := w.now.Add(sniRouteTimeout); !requeue.Equal(want) {
		t.Fatalf("it is looked at again at %s, want %s", requeue, want)
	}
	w.now = requeue
	w.reconcile("RetainedSNIRoute", row.Name)
	if _, ok := w.plan.State.RetainedSNIRoutes.Find(w.reader(), "default", row.Name); ok {
		t.Error("it stays")
	}
}

func TestAnSNIRouteStaysForTheDrainTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, z, deleted, _ := passing(t)
		if rows := <-z.requested; len(rows) != 1 || rows[0] != kind.MeshServices.Key("default", "web") {
			t.Errorf("other zones must confirm %v", rows)
		}
		synctest.Wait()
		if len(deleted) > 0 {
			t.Fatal("it ends before they have answered")
		}
		z.confirm <- struct{}{}
		confirmed := time.Now()
		if key := <-deleted; key != kind.RetainedSNIRoutes.Key("default", "web-80") {
			t.Errorf("deletes %s", key)
		}
		if waited := time.Since(confirmed); waited != 5*time.Second {
			t.Errorf("it ends %s after every zone has confirmed, want the drain time", waited)
		}
	})
}

func TestAZoneThatIsCutOffIsWaitedForForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, z, deleted, _ := passing(t)
		<-z.requested
		began := time.Now()
		<-deleted
		if waited := time.Since(began); waited != sniRouteTimeout+5*time.Second {
			t.Errorf("waited %v, want %v and the drain time", waited, sniRouteTimeout)
		}
	})
}

// A port that returned and was removed again needs new confirmations.
func TestASecondRemovalIsConfirmedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, z, deleted, observe := passing(t)
		<-z.requested
		observe(passedOn(w.now.Add(time.Second)))
		z.confirm <- struct{}{}
		<-z.requested
		if len(deleted) > 0 {
			t.Error("it ends with the first answer")
		}
		z.confirm <- struct{}{}
		<-deleted
	})
}
