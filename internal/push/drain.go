package push

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// Drains runs the drains of listeners. The record that survives a restart is the listener status: a listener that it
// has and the Dataplane does not have is draining, and waits again after a restart. One instance runs the drains, for
// the clients of every instance.
type Drains struct {
	*published // its lock guards the rest
	acks       *Acks
	callbacks  *Callbacks
	log        *slog.Logger
	ctx        context.Context                      // of the run; nil: another instance runs the drains
	open       map[state.ProxyKey]map[string]uint64 // the revision that clients must have acked, by listener
	pinned     map[state.ProxyKey]bool              // the proxies whose drains are followed
}

func newDrains(p *published, acks *Acks, callbacks *Callbacks, log *slog.Logger) *Drains {
	return &Drains{published: p, acks: acks, callbacks: callbacks, log: log, pinned: map[state.ProxyKey]bool{}}
}

// start records the listeners that drain now, and returns those that did not drain before. A listener that no longer
// drains is wanted again: should it drain later, clients must ack a later revision.
func (d *Drains) start(key state.ProxyKey, listeners []string, revision uint64) (fresh []string) {
	if len(listeners) == 0 {
		delete(d.open, key)
		return nil
	}
	maps.DeleteFunc(d.open[key], func(l string, _ uint64) bool { return !slices.Contains(listeners, l) })
	for _, l := range listeners {
		if _, waits := d.open[key][l]; waits {
			continue
		}
		if d.open[key] == nil {
			d.open[key] = map[string]uint64{}
		}
		d.open[key][l] = revision
		fresh = append(fresh, l)
	}
	return fresh
}

// stillDraining returns those of the listeners that have drained since a revision.
func (d *Drains) stillDraining(key state.ProxyKey, listeners []string, revision uint64) []string {
	return slices.DeleteFunc(slices.Clone(listeners), func(l string) bool {
		since, waits := d.open[key][l]
		return !waits || since != revision
	})
}

// Run runs drains until ctx ends: those that wait already, and every later one.
func (d *Drains) Run(ctx context.Context) {
	d.mu.Lock()
	d.ctx, d.open = ctx, map[state.ProxyKey]map[string]uint64{}
	for key := range d.pinned {
		if listeners, _ := d.state.Proxies.Draining.Value(key); len(listeners) > 0 {
			d.drain(key, listeners)
		}
	}
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	d.ctx, d.open = nil, nil
	d.mu.Unlock()
}

// Open returns the number of listeners that drain.
func (d *Drains) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := 0
	for _, listeners := range d.open {
		open += len(listeners)
	}
	return open
}

// follow follows the drains of every Dataplane that has a listener status. It is a [Follower].
func (d *Drains) follow(put []resource.Any, removed []resource.Key, commits []*table.Changes, _ time.Time) {
	draining := d.state.Proxies.Draining
	for _, changes := range commits {
		for key, listeners := range table.ChangedValues(draining, changes) {
			d.drain(key, listeners)
		}
	}
	for _, o := range put {
		serving, ok := o.(*resource.Object[kind.DataplaneListenerStatus])
		if !ok {
			continue
		}
		if key, _ := state.ProxyOf(serving.Key()); !d.pinned[key] {
			d.pinned[key] = true
			d.drain(key, draining.Pin(key))
		}
	}
	for _, row := range removed {
		key, ok := state.ProxyOf(row)
		if ok && row == key.ListenerStatusRow() && d.pinned[key] {
			delete(d.pinned, key)
			delete(d.open, key)
			draining.Unpin(key)
		}
	}
}

// drain removes listeners once no client can send requests to them. They left the endpoint lists with the commit that
// published the newest revision.
func (d *Drains) drain(key state.ProxyKey, listeners []string) {
	ctx, revision := d.ctx, d.catalog.Revision()
	if ctx == nil {
		return
	}
	if fresh := d.start(key, listeners, revision); len(fresh) > 0 {
		go d.drainOnceAcked(ctx, key, fresh, revision)
	}
}

// addressRowsOf returns the rows by which other zones dial any of a proxy's listeners; none where the listeners serve
// the own zone alone.
func (d *Drains) addressRowsOf(key state.ProxyKey, listeners []string) []resource.Key {
	r := d.reader()
	serving, ok := d.state.Tables.ListenerStatus(r, key)
	if !ok || !slices.ContainsFunc(serving.Spec.Ingresses, func(z kind.ZoneIngressSection) bool {
		return slices.Contains(listeners, z.Listener())
	}) {
		return nil
	}
	return d.state.ZoneProxies.AddressRows(r, key)
}

func (d *Drains) drainOnceAcked(ctx context.Context, key state.ProxyKey, listeners []string, revision uint64) {
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, Bound)
	defer cancel()
	clients := kind.AckClients{Wait: kind.EndpointRemoved, Mesh: key.Mesh}
	err := d.acks.everywhere(bounded, clients, revision, append(d.acks.rowsOf(key), key.Resource()), nil)
	if rows := d.addressRowsOf(key, listeners); err == nil && len(rows) > 0 {
		err = d.acks.confirmed(bounded, rows)
	}
	_ = wait.Sleep(ctx, d.callbacks.DrainTime)
	d.mu.Lock()
	listeners = d.stillDraining(key, listeners, revision)
	d.mu.Unlock()
	if ctx.Err() != nil || len(listeners) == 0 {
		return
	}
	if err != nil {
		d.log.Warn("not every client acked the removal of draining listeners in time", "proxy", key, "bound", Bound,
			"error", err)
	}
	if err := d.callbacks.RemoveListeners(ctx, key, listeners); err != nil {
		d.log.Warn("drained listeners are not removed before the next start", "proxy", key, "listeners", listeners,
			"error", err)
		return
	}
	took := time.Since(started)
	if d.callbacks.Drained != nil {
		d.callbacks.Drained(len(listeners), took, err == nil)
	}
	d.log.Info("listeners drained", "proxy", key, "listeners", listeners, "after", took.Round(time.Millisecond))
}
