package barrier

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

const (
	// pendingZonesInterval is the time between two reports of the zones that have not confirmed.
	pendingZonesInterval = 10 * time.Second
	// retryDelay is the pause after a wait that failed.
	retryDelay = time.Second
)

// AckWaiter waits for the acks of proxies.
type AckWaiter interface {
	// WaitAcked returns once every proxy of a mesh that holds a certificate has acked rows as they are in the table
	// now, at whatever replica, or with ctx's error. It calls pending with the proxies that it waits for, whenever they
	// change. With everybody it also waits for connected proxies without a certificate.
	WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key,
		pending func(kind.PendingAcks)) error
}

// Zones wait for the acks of other zones' proxies.
type Zones interface {
	// AwaitConfirmed returns once the proxies of every other zone have acked rows as they are in the table now. Where
	// ctx ends before, the error names the zones that have not confirmed.
	AwaitConfirmed(ctx context.Context, rows ...resource.Key) error
}

// Barrier waits for the conditions that derived writes state. Only the leader runs it.
type Barrier struct {
	// Zones are the other zones; nil for a zone that is alone. It must be set before the first run.
	Zones Zones
	// DrainTime is how long former configuration stays in use after the last ack of the next one, since traffic that a
	// proxy sent before its ack may still be in flight. It must be set before the first run.
	DrainTime time.Duration
	// Now is the clock of Progress.Since; time.Now unless a test replaces it.
	Now func() time.Time

	rows   *Rows
	waiter AckWaiter
	commit func(func(*table.Tx))
	log    *slog.Logger
	wake   wait.Signal

	mu         sync.Mutex
	conditions map[string]*condition // by name
}

// condition is a condition that is stated, or was stated and has rows still.
type condition struct {
	stated *Condition // nil: no write states it any more
	acked  []string   // states, sorted
	wait   *Wait      // nil: none runs
	// stored are its rows in the table.
	storedAcks     []string
	storedProgress Progress
}

// Wait is one wait for the states that a condition had when the wait began.
type Wait struct {
	Condition
	progress Progress // without changes after the end of the wait
	over     bool     // every proxy and zone has acked
	ended    chan struct{}
}

// New returns a Barrier. commit must run a function as the table's writer.
func New(rows *Rows, waiter AckWaiter, commit func(func(*table.Tx)), log *slog.Logger) *Barrier {
	return &Barrier{
		Now: time.Now, rows: rows, waiter: waiter, commit: commit, log: log,
		wake: wait.NewSignal(), conditions: map[string]*condition{},
	}
}

// State records the condition of a name, or that no write states it any more (nil). It does not block, so that the
// table's writer may call it.
func (b *Barrier) State(name string, stated *Condition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.conditions[name]
	if c == nil {
		if stated == nil {
			return
		}
		c = &condition{}
		b.conditions[name] = c
	}
	c.stated = stated
	if stated == nil && c.wait == nil && len(c.acked)+len(c.storedAcks) == 0 && c.storedProgress.Name == "" {
		delete(b.conditions, name)
	}
	b.wake.Send()
}

// Reset drops all acks, and removes the rows of an earlier run. It must be called before the writes of a new run,
// which would otherwise follow from acks of states that other leaders have changed since.
func (b *Barrier) Reset() {
	b.mu.Lock()
	for _, c := range b.conditions {
		c.endWait()
		c.acked = nil
	}
	b.mu.Unlock()
	b.store()
}

// Run waits for the stated conditions until ctx ends. It may be called again after another replica has been the leader.
func (b *Barrier) Run(ctx context.Context) {
	var waits sync.WaitGroup
	defer waits.Wait()
	for ctx.Err() == nil {
		for _, w := range b.Begin() {
			waits.Go(func() { b.wait(ctx, w) })
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
		}
	}
}

// Begin stores the progress of all waits, and returns the waits that begin now.
func (b *Barrier) Begin() []*Wait {
	b.mu.Lock()
	var fresh []*Wait
	for _, name := range slices.Sorted(maps.Keys(b.conditions)) {
		if w := b.conditions[name].begin(b.Now()); w != nil {
			fresh = append(fresh, w)
		}
	}
	b.mu.Unlock()
	b.store()
	return fresh
}

// begin takes the acks of a wait that is over, ends a wait of which no state is stated any more, and returns a new wait
// where there are states to wait for and none runs.
func (c *condition) begin(now time.Time) *Wait {
	if c.stated == nil {
		c.acked = nil
		c.endWait()
		return nil
	}
	stated := map[string]bool{}
	for _, state := range c.stated.States {
		stated[state] = true
	}
	isStated := func(state string) bool { return stated[state] }
	if c.wait != nil && c.wait.over {
		c.acked = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(append(c.acked, c.wait.States...)))),
			func(state string) bool { return !isStated(state) })
		c.endWait()
	}
	if c.wait != nil && !slices.ContainsFunc(c.wait.States, isStated) {
		c.endWait()
	}
	if c.wait != nil || c.stated.Incomplete || !slices.ContainsFunc(c.stated.States, func(state string) bool {
		_, acked := slices.BinarySearch(c.acked, state)
		return !acked
	}) {
		return nil
	}
	c.wait = &Wait{
		Condition: *c.stated, ended: make(chan struct{}),
		progress: Progress{Name: c.stated.Name, States: c.stated.States, Since: now},
	}
	return c.wait
}

func (c *condition) endWait() {
	if c.wait != nil {
		close(c.wait.ended)
		c.wait = nil
	}
}

// store brings the rows up to date. Only one goroutine at a time calls it.
func (b *Barrier) store() {
	b.mu.Lock()
	var changes []func(*table.Tx)
	for name, c := range b.conditions {
		var progress Progress
		if c.wait != nil {
			progress = c.wait.progress
		}
		if !reflect.DeepEqual(progress, c.storedProgress) {
			changes = append(changes, func(tx *table.Tx) { b.rows.putProgress(tx, name, progress) })
			c.storedProgress = progress
		}
		if !slices.Equal(c.acked, c.storedAcks) {
			states := slices.Clone(c.acked)
			changes = append(changes, func(tx *table.Tx) { b.rows.putAcks(tx, name, states) })
			c.storedAcks = states
		}
		if c.stated == nil && c.wait == nil && len(c.acked) == 0 {
			delete(b.conditions, name)
		}
	}
	b.mu.Unlock()
	if len(changes) == 0 {
		return
	}
	b.commit(func(tx *table.Tx) {
		for _, change := range changes {
			change(tx)
		}
	})
}

func (rows *Rows) putProgress(tx *table.Tx, name string, p Progress) {
	if p.Name == "" {
		rows.progress.Delete(tx, name)
	} else {
		rows.progress.Put(tx, p)
	}
}

func (rows *Rows) putAcks(tx *table.Tx, name string, states []string) {
	if len(states) == 0 {
		rows.acks.Delete(tx, name)
	} else {
		rows.acks.Put(tx, acks{name, states})
	}
}

// wait waits until every proxy and zone has acked, until no write waits for it any more, or until ctx ends.
func (b *Barrier) wait(ctx context.Context, w *Wait) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		err := b.waitAcked(ctx, w)
		if err == nil && !w.NoDrain {
			err = wait.Sleep(ctx, b.DrainTime)
		}
		if err == nil {
			b.Finish(w)
			return
		}
		if ctx.Err() != nil {
			return
		}
		b.log.Warn("waiting for acks failed", "wait", w.Name, "retryAfter", retryDelay, "error", err)
		_ = wait.Sleep(ctx, retryDelay)
	}
}

// Finish records that every proxy and zone has acked the states of a wait.
func (b *Barrier) Finish(w *Wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.over = true
	b.wake.Send()
}

// waitAcked waits for the proxies of this zone and then for the proxies of the other zones.
func (b *Barrier) waitAcked(ctx context.Context, w *Wait) error {
	if !w.ZonesOnly {
		err := b.waiter.WaitAcked(ctx, w.Mesh, w.AllProxies, w.Rows, func(proxies kind.PendingAcks) {
			b.Report(w, proxies, "")
		})
		if err != nil {
			return err
		}
	}
	if w.ZoneRows == nil || b.Zones == nil {
		return nil
	}
	for {
		why := b.waitZones(ctx, w)
		if why == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		b.Report(w, kind.PendingAcks{}, strings.TrimSuffix(why.Error(), ": "+context.DeadlineExceeded.Error()))
	}
}

// waitZones waits for the other zones. After pendingZonesInterval it returns an error that names the zones which have
// not confirmed.
func (b *Barrier) waitZones(ctx context.Context, w *Wait) error {
	bounded, cancel := context.WithTimeout(ctx, pendingZonesInterval)
	defer cancel()
	why := b.Zones.AwaitConfirmed(bounded, w.ZoneRows...)
	if why != nil {
		<-bounded.Done() // an immediate failure is not retried in a busy loop
	}
	return why
}

// Report records the pending proxies or zones of a wait.
func (b *Barrier) Report(w *Wait, proxies kind.PendingAcks, zones string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.progress.Proxies, w.progress.Zones = proxies, zones
	b.wake.Send()
}
