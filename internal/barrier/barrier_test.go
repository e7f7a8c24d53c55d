package barrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// mesh is a mesh whose proxies, and then zones, ack when the test tells them to.
type mesh struct {
	acked, confirmed chan error
	begun            int // number of waits for proxies
}

func (m *mesh) WaitAcked(
	ctx context.Context,
	_ string,
	_ bool,
	_ []resource.Key,
	pending func(kind.PendingAcks),
) error {
	m.begun++
	pending(kind.NewPendingAcks([]resource.Key{kind.Dataplanes.Key("default", "slow")}))
	select {
	case err := <-m.acked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *mesh) AwaitConfirmed(ctx context.Context, _ ...resource.Key) error {
	select {
	case err := <-m.confirmed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bench runs a barrier over a table.
type bench struct {
	*Barrier
	t    *testing.T
	db   *table.DB
	rows *Rows
	mesh *mesh
	stop func()
}

func inBench(t *testing.T, test func(*bench)) {
	bubble.Test(t, func(t *testing.T) {
		b := &bench{t: t, db: table.New(), mesh: &mesh{acked: make(chan error), confirmed: make(chan error)}}
		b.rows = NewRows(b.db)
		var mu sync.Mutex
		b.Barrier = New(b.rows, b.mesh, func(change func(*table.Tx)) {
			mu.Lock()
			defer mu.Unlock()
			b.db.Commit(change)
		}, slog.New(slog.DiscardHandler))
		b.Zones, b.DrainTime = b.mesh, 5*time.Second
		b.run()
		test(b)
		b.stop()
	})
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.Reset()
	go func() { defer close(done); b.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
}

func (b *bench) state(states ...string) { b.stateAs(Condition{States: states}) }

func (b *bench) stateAs(c Condition) {
	c.Name, c.Mesh, c.ZoneRows = "c", "default", []resource.Key{kind.Meshes.Key("", "default")}
	b.State("c", &c)
	synctest.Wait()
}

func (b *bench) reader() *table.Reader { synctest.Wait(); return table.Eval(b.db.Snapshot()) }

func (b *bench) want(when, state string, acked bool) {
	b.t.Helper()
	if got := b.rows.IsAcked(b.reader(), "c", state); got != acked {
		b.t.Errorf("%s: %s is acked: %v, want %v", when, state, got, acked)
	}
}

// A state is acked once all proxies, then all zones, have acked it and the drain time has passed.
func TestAStateIsAckedAfterProxiesZonesAndTheDrainTime(t *testing.T) {
	inBench(t, func(b *bench) {
		b.state("a@1")
		p := b.rows.Progress(b.reader(), "c")
		if since, ok := b.rows.Began(b.reader(), "c", "a@1"); !ok || !since.Equal(time.Now()) || p.Proxies.Count != 1 {
			t.Errorf("the progress is %+v", p)
		}
		b.mesh.acked <- nil
		b.want("the proxies have acked", "a@1", false)
		time.Sleep(pendingZonesInterval)
		if p := b.rows.Progress(b.reader(), "c"); p.Zones == "" || p.Proxies.Count > 0 {
			t.Errorf("the progress is %+v, want the pending zones", p)
		}
		b.mesh.confirmed <- nil
		time.Sleep(5*time.Second - 1)
		b.want("before the drain time has passed", "a@1", false)
		time.Sleep(1)
		b.want("everything has acked", "a@1", true)
		b.want("another state", "a@2", false)
		if p := b.rows.Progress(b.reader(), "c"); p.Name != "" {
			t.Errorf("the progress is %+v, and no wait runs", p)
		}
	})
}

// A state that replaces none is acked without a drain time.
func TestAStateWithoutADrainIsAckedAtOnce(t *testing.T) {
	inBench(t, func(b *bench) {
		b.stateAs(Condition{States: []string{"a@1"}, NoDrain: true})
		b.mesh.acked <- nil
		b.want("the proxies have acked", "a@1", false)
		b.mesh.confirmed <- nil
		b.want("the zones have acked", "a@1", true)
	})
}

func (b *bench) ackAll() {
	b.mesh.acked <- nil
	b.mesh.confirmed <- nil
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// States that join a wait are acked by the next one, and do not restart the running one.
func TestStatesThatJoinAreAckedByTheNextWait(t *testing.T) {
	inBench(t, func(b *bench) {
		b.state("a@1")
		b.state("a@1", "b@1")
		b.ackAll()
		b.want("after the first wait", "a@1", true)
		b.want("after the first wait", "b@1", false)
		b.ackAll()
		b.want("after the second wait", "a@1", true)
		b.want("after the second wait", "b@1", true)
		if b.mesh.begun != 2 {
			t.Errorf("%d waits, want 2", b.mesh.begun)
		}
	})
}

// A wait whose states have all changed begins again, and acks of a state that no write states are dropped.
func TestAChangedStateIsWaitedForFromTheBeginning(t *testing.T) {
	inBench(t, func(b *bench) {
		b.state("a@1")
		b.state("a@2")
		b.ackAll()
		b.want("of another state", "a@1", false)
		b.want("of the new state", "a@2", true)
		b.State("c", nil)
		b.want("no longer stated", "a@2", false)
		b.state("a@2")
		b.want("stated again", "a@2", false)
		if b.mesh.begun != 3 {
			t.Errorf("%d waits, want 3", b.mesh.begun)
		}
		b.State("c", nil)
		synctest.Wait()
		if len(b.conditions) > 0 {
			t.Errorf("%v is kept, and no write states a condition", b.conditions)
		}
	})
}

// A leader does not rely on the acks of its earlier run.
func TestARunBeginsWithoutAcks(t *testing.T) {
	inBench(t, func(b *bench) {
		b.state("a@1")
		b.ackAll()
		b.stop()
		b.run()
		b.want("in the second run", "a@1", false)
		b.ackAll()
		b.want("acked again", "a@1", true)
	})
}

func TestAWaitThatFailsIsRepeated(t *testing.T) {
	inBench(t, func(b *bench) {
		b.state("a@1")
		b.mesh.acked <- errors.New("the store is away")
		time.Sleep(retryDelay)
		b.want("after the failure", "a@1", false)
		b.ackAll()
		b.want("repeated", "a@1", true)
	})
}

// TestFollowersKeepNoConditions: a replica that is not the leader keeps nothing of conditions that no write states.
func TestFollowersKeepNoConditions(t *testing.T) {
	db := table.New()
	b := New(NewRows(db), nil, func(change func(*table.Tx)) { db.Commit(change) }, slog.New(slog.DiscardHandler))
	for i := range 10 {
		name := fmt.Sprint("removal of ", i)
		b.State(name, &Condition{Name: name})
		b.State(name, nil)
	}
	if len(b.conditions) > 0 {
		t.Errorf("%d conditions are kept", len(b.conditions))
	}
}
